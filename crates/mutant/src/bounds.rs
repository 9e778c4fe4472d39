//! Bounds: the sizes of pages, replies and groups. A fault beyond one page is not found by a test whose pages hold
//! everything, so tests make the pages small.

#[cfg(debug_assertions)]
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

/// The names of all bounds, sorted, with the least value that makes sense.
const LEAST: &[(&str, usize)] = &[
    ("batch-ends-together", 1),
    ("batches-page", 1),
    ("bodies-of-a-range", 1),
    ("cancel-page-bytes", 1),
    ("cancel-page-leases", 1),
    ("data-file-unflushed-bytes", 1),
    ("dead-page-bytes", 1),
    ("dead-together", 1),
    ("due-batch-bytes", 1),
    ("due-batch-rows", 1),
    ("due-batches-together", 1),
    ("due-schedule-bytes", 1),
    ("due-schedule-items", 1),
    ("due-schedule-rows", 1),
    ("due-schedules", 1),
    ("expiry-page", 1),
    ("expiry-page-bytes", 1),
    ("expiry-together", 1),
    ("fetch-index-bytes", 1),
    ("fetch-window", 1),
    ("forget-operations-page", 1),
    ("history-clear-slice", 1),
    ("history-group-bytes", 1),
    ("history-groups-together", 1),
    ("history-hours-together", 1),
    ("history-index-rows", 1),
    ("history-page-bytes", 1),
    ("idle-tokens", 1),
    ("index-page", 1),
    ("index-repair-bytes", 1),
    ("items-aside", 1),
    ("items-served", 1),
    ("joins-together", 1),
    ("keys-of-a-fetch", 1),
    ("known-limits", 1),
    ("lane-idle", 1),
    ("large-batch-removals", 1),
    ("large-batch-writes", 1),
    ("lease-bytes-counted", 1),
    ("lease-inline-bytes", 0),
    ("lease-piece-bytes", 500),
    ("locate-page", 1),
    ("log-records-bytes", 1),
    ("log-unflushed-batches", 1),
    ("look-bytes", 1),
    ("look-expired-leases", 1),
    ("looks-of-a-fetch", 1),
    ("looks-of-a-sweep", 2),
    ("memtable-bytes", 1),
    ("memtable-cleared-keys", 0),
    ("memtable-first-page", 1),
    ("memtable-page", 1),
    ("memtable-removals", 1),
    ("memtable-writes", 1),
    ("migration-page", 1),
    ("migration-page-bytes", 1),
    ("noted-times", 2),
    ("old-cancellations", 1),
    ("old-cancellations-swept", 1),
    ("orphans-page", 1),
    ("orphans-page-bytes", 1),
    ("pages-of-a-sweep", 1),
    ("parked-keys-of-a-fetch", 1),
    ("place-keys", 1),
    ("place-timers", 1),
    ("promote-page", 1),
    ("promote-page-bytes", 1),
    ("promote-together", 1),
    ("pushes-at-a-time", 1),
    ("queues-page", 1),
    ("queues-page-steps", 1),
    ("rates-page", 1),
    ("records-together", 1),
    ("recount-texts", 1),
    ("relocate-page-bytes", 1),
    ("reply-bytes", 200),
    ("requests-glanced-at", 1),
    ("requests-of-a-session", 1),
    ("requests-served", 1),
    ("retention-page", 1),
    ("retention-page-bytes", 1),
    ("rules-page", 1),
    ("rules-pause", 1),
    ("running-page-bytes", 1),
    ("running-page-leases", 1),
    ("running-together", 1),
    ("schedules-page", 1),
    ("schedules-page-bytes", 1),
    ("suspects-of-a-fetch", 1),
    ("transaction-part-bytes", 1),
    ("unlisted-page", 1),
    ("view-bytes-passed", 1),
    ("view-items-passed", 1),
    ("waiting-bytes-counted", 1),
    ("waiting-counted", 1),
    ("waiting-push-bytes", 1),
    ("waiting-pushes", 1),
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
    /// If no bound has this name.
    #[must_use]
    pub fn with(mut self, name: &str, value: usize) -> Bounds {
        assert!(least(name).is_some(), "no bound is called {name:?}; see crates/mutant/src/bounds.rs");
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
///
/// # Panics
///
/// If no bound has this name.
#[cfg(debug_assertions)]
pub fn bound(name: &str, value: usize) -> usize {
    use std::sync::LazyLock;
    static CHOSEN: LazyLock<Bounds> =
        LazyLock::new(|| Bounds::parse(&std::env::var("KVQUEUE_BOUNDS").unwrap_or_default()));
    debug_assert!(least(name).is_some(), "no bound is called {name:?}; see crates/mutant/src/bounds.rs");
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

fn least(name: &str) -> Option<usize> {
    LEAST.binary_search_by_key(&name, |(of, _)| *of).ok().map(|at| LEAST[at].1)
}

/// A value of the bound: half of the seeds have `value`, some the least, the others one between them, rather a small one.
#[cfg(debug_assertions)]
fn draw(seed: u64, name: &str, value: usize) -> usize {
    let least = least(name).unwrap_or(value).min(value);
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
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_bound_in_the_code_has_a_least_value_and_the_other_way_round() {
        let mut in_code = BTreeSet::new();
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for package in ["queue", "fdb-embedded"] {
            collect(&crates.join(package).join("src"), &mut in_code);
        }
        let in_list: BTreeSet<_> = LEAST.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(in_code, in_list, "left: the code; right: the list");
        assert!(LEAST.is_sorted());
    }

    /// The names of the bounds in the sources of a directory.
    fn collect(dir: &Path, names: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, names);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let found = text.split("bound(\"").skip(1).filter_map(|rest| rest.split('"').next());
                names.extend(found.map(str::to_owned));
            }
        }
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
    fn a_bound_without_a_least_value_is_refused() {
        bound(&"no-such-bound".to_uppercase(), 1);
    }
}
