//! Bounds: the sizes of pages, replies and groups. A fault beyond one page is not found by a test whose pages hold
//! everything, so tests make the pages small.

#[cfg(debug_assertions)]
use std::cell::RefCell;
use std::collections::BTreeMap;
#[cfg(debug_assertions)]
use std::collections::BTreeSet;
use std::fmt;
#[cfg(debug_assertions)]
use std::path::Path;
#[cfg(debug_assertions)]
use std::sync::LazyLock;

/// The bounds whose least value that makes sense is another one than 1.
#[cfg(debug_assertions)]
const LEAST: [(&str, usize); 6] = [
    ("lease-inline-bytes", 0),
    ("lease-piece-bytes", 500),
    ("looks-of-a-sweep", 2),
    ("memtable-cleared-keys", 0),
    ("noted-times", 2),
    ("reply-bytes", 200),
];

/// Values of bounds for the code that one thread runs.
///
/// Its text has the form of the environment variable `KVQUEUE_BOUNDS`, which chooses values for a whole process:
/// `fetch-window=7,reply-bytes=2000`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bounds {
    seed: Option<u64>,
    /// Bounds that are not drawn.
    kept: &'static [&'static str],
    /// Chosen values, and all values drawn since.
    values: BTreeMap<String, usize>,
}

impl Bounds {
    /// A seed decides all values: each bound is as in production, or between that and the least. One seed in four draws
    /// nothing.
    #[must_use]
    pub fn drawn(seed: u64) -> Bounds {
        Bounds { seed: (!hash(seed, "any").is_multiple_of(4)).then_some(seed), ..Bounds::default() }
    }

    /// Does not draw these: they are as in production. For tests whose model has them, too.
    #[must_use]
    pub fn keep(mut self, names: &'static [&'static str]) -> Bounds {
        self.kept = names;
        self
    }

    /// Chooses a value.
    ///
    /// # Panics
    ///
    /// If no bound in the sources has this name.
    #[must_use]
    pub fn with(mut self, name: &str, value: usize) -> Bounds {
        #[cfg(debug_assertions)]
        assert!(names().is_none_or(|names| names.contains(name)), "no bound is called {name:?}");
        self.values.insert(name.to_owned(), value);
        self
    }

    /// Lets these values hold for this thread, and for no other, until the returned value is dropped.
    #[must_use]
    pub fn enter(self) -> DrawnBounds {
        DrawnBounds { before: exchange(Some(self)) }
    }

    #[cfg(debug_assertions)]
    fn parse(text: &str) -> Bounds {
        text.split(',').filter(|part| !part.is_empty()).fold(Bounds::default(), |bounds, part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value = value
                .parse()
                .unwrap_or_else(|_| panic!("KVQUEUE_BOUNDS has {part:?}; write NAME=NUMBER,NAME=NUMBER"));
            bounds.with(name, value)
        })
    }

    #[cfg(debug_assertions)]
    fn value(&mut self, name: &str, value: usize) -> Option<usize> {
        if let Some(chosen) = self.values.get(name) {
            return Some(*chosen);
        }
        if self.kept.contains(&name) {
            return None;
        }
        let drawn = draw(self.seed?, name, value);
        self.values.insert(name.to_owned(), drawn);
        Some(drawn)
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.values.iter().enumerate() {
            write!(f, "{}{name}={value}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// The bounds of a thread, until it is dropped; the ones before hold again then.
#[derive(Debug)]
pub struct DrawnBounds {
    before: Option<Bounds>,
}

impl DrawnBounds {
    /// The values now: the chosen ones, and the drawn ones for which the code has asked since.
    #[must_use]
    pub fn used(&self) -> Bounds {
        current()
    }
}

impl Drop for DrawnBounds {
    fn drop(&mut self) {
        exchange(self.before.take());
    }
}

/// The value of the bound `name`: `value`, or what a test has chosen by [`Bounds::enter`] or `KVQUEUE_BOUNDS`.
#[cfg(debug_assertions)]
pub fn bound(name: &str, value: usize) -> usize {
    static CHOSEN: LazyLock<Bounds> =
        LazyLock::new(|| Bounds::parse(&std::env::var("KVQUEUE_BOUNDS").unwrap_or_default()));
    if let Some(chosen) = CHOSEN.values.get(name) {
        return *chosen;
    }
    let drawn = BOUNDS.try_with(|bounds| bounds.borrow_mut().as_mut().and_then(|of| of.value(name, value)));
    drawn.ok().flatten().unwrap_or(value)
}

/// Always `value` without debug assertions, as in a release build.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn bound(_name: &str, value: usize) -> usize {
    value
}

#[cfg(debug_assertions)]
thread_local! {
    static BOUNDS: RefCell<Option<Bounds>> = const { RefCell::new(None) };
}

#[cfg(debug_assertions)]
fn exchange(bounds: Option<Bounds>) -> Option<Bounds> {
    BOUNDS.replace(bounds)
}

#[cfg(not(debug_assertions))]
fn exchange(_bounds: Option<Bounds>) -> Option<Bounds> {
    None
}

#[cfg(debug_assertions)]
fn current() -> Bounds {
    BOUNDS.with_borrow(Clone::clone).unwrap_or_default()
}

#[cfg(not(debug_assertions))]
fn current() -> Bounds {
    Bounds::default()
}

/// The names of the bounds in the sources of the crates that have them; `None` where a test runs without the sources.
#[cfg(debug_assertions)]
fn names() -> Option<&'static BTreeSet<String>> {
    static NAMES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
        let mut names = BTreeSet::new();
        for package in ["queue", "fdb-embedded"] {
            collect(&Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(package).join("src"), &mut names);
        }
        names
    });
    Some(&*NAMES).filter(|names| !names.is_empty())
}

#[cfg(debug_assertions)]
fn collect(dir: &Path, names: &mut BTreeSet<String>) {
    for path in std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let found = text.split("bound(\"").skip(1).filter_map(|rest| rest.split('"').next());
            names.extend(found.map(str::to_owned));
        }
    }
}

/// A value of the bound: half of the seeds have `value`, some the least, the others one between them, rather a small one.
#[cfg(debug_assertions)]
fn draw(seed: u64, name: &str, value: usize) -> usize {
    let least = LEAST.iter().find(|(of, _)| *of == name).map_or(1, |(_, least)| *least).min(value);
    let (kind, at) = (hash(seed, name) % 8, hash(seed.rotate_left(32), name));
    match kind {
        0..=3 => value,
        4 => least,
        _ => {
            let doublings = u64::from((value - least + 1).ilog2());
            let span = (2_usize << (at % (doublings + 1))).min(value - least + 1);
            least + usize::try_from(at >> 8).unwrap_or(usize::MAX) % span
        }
    }
}

/// FNV-1a, mixed: the same everywhere and always, as a seed has to be.
fn hash(seed: u64, name: &str) -> u64 {
    let bytes = seed.to_le_bytes();
    let hash = bytes.iter().chain(name.as_bytes()).fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_with_another_least_value_is_in_the_code() {
        let names = names().expect("the sources are there");
        assert!(names.contains("promote-page"));
        assert!(LEAST.iter().all(|(name, _)| names.contains(*name)), "{LEAST:?}, and in the code {names:?}");
    }

    #[test]
    fn a_seed_draws_the_same_values_each_time_and_keeps_the_least() {
        let mut drawn = BTreeSet::new();
        for seed in 0..2_000 {
            let value = || {
                let entered = Bounds::drawn(seed).keep(&["expiry-page"]).enter();
                assert_eq!(bound("expiry-page", 500), 500);
                (bound("reply-bytes", 80_000), bound("promote-page", 500), entered.used())
            };
            let (reply, page, used) = value();
            assert_eq!((reply, page, used), value());
            assert!((200..=80_000).contains(&reply) && (1..=500).contains(&page), "{reply} {page}");
            drawn.insert((reply, page));
        }
        assert!(drawn.contains(&(80_000, 500)) && drawn.iter().any(|(reply, _)| *reply == 200));
        assert!(drawn.len() > 400, "{}", drawn.len());
        assert_eq!(bound("promote-page", 500), 500);
    }

    #[test]
    fn chosen_values_hold_for_a_thread_until_they_are_dropped() {
        let outer = Bounds::default().with("promote-page", 7).enter();
        {
            let inner = Bounds::parse("promote-page=3,reply-bytes=900").enter();
            assert_eq!((bound("promote-page", 500), bound("reply-bytes", 80_000)), (3, 900));
            assert_eq!(bound("expiry-page", 500), 500);
            assert_eq!(inner.used().to_string(), "promote-page=3,reply-bytes=900");
        }
        assert_eq!(std::thread::spawn(|| bound("promote-page", 500)).join().unwrap(), 500);
        assert_eq!(bound("promote-page", 500), 7);
        drop(outer);
    }

    #[test]
    #[should_panic(expected = "no bound is called")]
    fn a_name_that_no_bound_in_the_code_has_is_refused() {
        let _ = Bounds::default().with("promote-pages", 1);
    }
}
