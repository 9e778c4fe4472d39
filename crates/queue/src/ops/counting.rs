//! What each transition of an item adds to the counters. The table in `docs/guarantees/life.md` is this one; a test compares them.

use foundationdb::Transaction;
use foundationdb::options::MutationType;
use mutant::mutant;

use crate::keys::{Counter, Space};

/// Where an item comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Was {
    /// It is pushed, or comes from another queue.
    New,
    Ready,
    /// Scheduled or retrying.
    Scheduled,
    /// On a lease: running.
    Leased,
    Dead,
}

/// What becomes of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Becomes {
    Ready,
    Scheduled,
    Leased,
    Dead,
    /// Its handler has finished it.
    Done,
    /// It was cancelled while it ran.
    Cancelled,
    /// It has left the queue otherwise.
    Gone,
}

/// What one item adds; `None`: there is no such transition.
///
/// `npush - npop` is the number of ready items, so whatever makes an item ready counts it in `npush`, and whatever removes a
/// ready one in `npop`. `nlater - ndue` is the number of scheduled ones. An item that leaves the queue while it is scheduled
/// counts as if its time had come and it had been popped. `nback` counts items that come back from a lease or from the
/// dead letters, and ready ones that get a time: `npush + nlater - ndue - nback` is the number of items ever pushed.
#[inline]
const fn deltas(was: Was, becomes: Becomes) -> Option<&'static [(Counter, i64)]> {
    use Counter::{Back, Cancel, Dead, Done, Due, Later, Pop, Push};
    Some(match (was, becomes) {
        (Was::New, Becomes::Ready) => &[(Push, 1)],
        (Was::New, Becomes::Scheduled) => &[(Later, 1)],
        (Was::New, Becomes::Dead) => &[(Dead, 1)],
        (Was::Ready, Becomes::Scheduled) => &[(Pop, 1), (Later, 1), (Back, 1)],
        (Was::Ready, Becomes::Leased | Becomes::Gone) => &[(Pop, 1)],
        (Was::Ready, Becomes::Dead) => &[(Pop, 1), (Dead, 1)],
        (Was::Scheduled, Becomes::Ready) => &[(Push, 1), (Due, 1)],
        (Was::Scheduled, Becomes::Scheduled) => &[(Later, 1), (Due, 1)],
        (Was::Scheduled, Becomes::Dead) => &[(Push, 1), (Pop, 1), (Due, 1), (Dead, 1)],
        (Was::Scheduled, Becomes::Gone) => &[(Push, 1), (Pop, 1), (Due, 1)],
        (Was::Leased, Becomes::Ready) => &[(Push, 1), (Back, 1)],
        (Was::Leased, Becomes::Scheduled) => &[(Later, 1), (Back, 1)],
        (Was::Leased, Becomes::Dead) => &[(Dead, 1)],
        (Was::Leased, Becomes::Done) => &[(Done, 1)],
        (Was::Leased, Becomes::Cancelled) => &[(Cancel, 1)],
        (Was::Dead, Becomes::Ready) => &[(Push, 1), (Back, 1), (Dead, -1)],
        (Was::Dead, Becomes::Gone) => &[(Dead, -1)],
        // It had expired when it was fetched.
        (Was::Leased, Becomes::Gone) => &[],
        _ => return None,
    })
}

/// The same of a transition that happens.
#[inline]
const fn added(was: Was, becomes: Becomes) -> &'static [(Counter, i64)] {
    deltas(was, becomes).expect("the table has each transition that happens")
}

/// Adds to a counter. An ADD to `npush` wakes idle consumers, one to `nlater` the sweepers, and one to `ncancel` the holders of leases.
fn add(space: &Space, tr: &Transaction, counter: Counter, n: i64) {
    let is_lost = (counter == Counter::Pop && mutant("take-uncounted"))
        || (counter == Counter::Back && mutant("back-is-not-counted"));
    if !is_lost {
        tr.atomic_op(space.counter(counter), &n.to_le_bytes(), MutationType::Add);
    }
}

/// Counts `n` items of one transition.
pub(crate) fn count(space: &Space, tr: &Transaction, was: Was, becomes: Becomes, n: usize) {
    if n > 0 {
        for (counter, delta) in added(was, becomes) {
            add(space, tr, *counter, delta * n as i64);
        }
    }
}

/// What the transitions of a transaction add to the counters.
#[derive(Debug, Default)]
pub(crate) struct Counting([i64; Counter::ALL.len()]);

impl Counting {
    #[inline]
    pub(crate) fn add(&mut self, was: Was, becomes: Becomes) {
        for (counter, delta) in added(was, becomes) {
            self.0[*counter as usize] += delta;
        }
    }

    /// Adds to each counter once: every operand counts in the size of a transaction.
    pub(crate) fn write(&self, space: &Space, tr: &Transaction) {
        for (counter, sum) in Counter::ALL.into_iter().zip(self.0).filter(|(_, sum)| *sum != 0) {
            add(space, tr, counter, sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL_WAS: [Was; 5] = [Was::New, Was::Ready, Was::Scheduled, Was::Leased, Was::Dead];
    const ALL_BECOMES: [Becomes; 7] = [
        Becomes::Ready,
        Becomes::Scheduled,
        Becomes::Leased,
        Becomes::Dead,
        Becomes::Done,
        Becomes::Cancelled,
        Becomes::Gone,
    ];
    const LIFE: &str = include_str!("../../../../docs/guarantees/life.md");

    fn was(text: &str) -> Was {
        match text {
            "" => Was::New,
            "ready" => Was::Ready,
            "waiting" => Was::Scheduled,
            "running" => Was::Leased,
            "dead" => Was::Dead,
            other => panic!("{other:?} is no state before a transition"),
        }
    }

    fn becomes(text: &str) -> Becomes {
        match text {
            "ready" => Becomes::Ready,
            "waiting" => Becomes::Scheduled,
            "running" => Becomes::Leased,
            "dead" => Becomes::Dead,
            "done" => Becomes::Done,
            "cancelled" => Becomes::Cancelled,
            "gone" => Becomes::Gone,
            other => panic!("{other:?} is no state after a transition"),
        }
    }

    /// As the document writes what is added: `npush` + 1, `ndead` - 1.
    fn written(was: Was, becomes: Becomes) -> String {
        let sign = |delta: i64| if delta < 0 { '-' } else { '+' };
        let parts = added(was, becomes).iter();
        let parts = parts.map(|(counter, n)| format!("`{}` {} {}", counter.name(), sign(*n), n.abs()));
        parts.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn the_document_has_each_transition_with_its_counters() {
        let rows = LIFE.lines().skip_while(|line| !line.starts_with("| from | to |")).skip(2);
        let mut seen = Vec::new();
        for row in rows.take_while(|line| line.starts_with('|')) {
            let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
            let (was, becomes) = (was(cells[0]), becomes(cells[1]));
            assert_eq!(cells[4], written(was, becomes), "{row}");
            seen.push((was, becomes));
        }
        for was in ALL_WAS {
            for becomes in ALL_BECOMES.into_iter().filter(|becomes| deltas(was, *becomes).is_some()) {
                assert!(
                    seen.contains(&(was, becomes)),
                    "docs/guarantees/life.md has no {was:?} to {becomes:?}"
                );
            }
        }
    }

    #[test]
    fn the_counters_tell_how_many_items_are_ready_scheduled_and_dead() {
        for (was, becomes) in ALL_WAS.iter().flat_map(|was| ALL_BECOMES.map(|becomes| (*was, becomes))) {
            let Some(deltas) = deltas(was, becomes) else { continue };
            let sum = |counter| deltas.iter().filter(|(of, _)| *of == counter).map(|(_, n)| n).sum::<i64>();
            let changes = |before, after| i64::from(becomes == after) - i64::from(was == before);
            let at = format!("{was:?} to {becomes:?}");
            assert_eq!(sum(Counter::Push) - sum(Counter::Pop), changes(Was::Ready, Becomes::Ready), "{at}");
            let scheduled = changes(Was::Scheduled, Becomes::Scheduled);
            assert_eq!(sum(Counter::Later) - sum(Counter::Due), scheduled, "{at}");
            assert_eq!(sum(Counter::Dead), changes(Was::Dead, Becomes::Dead), "{at}");
            // What is pushed as a dead letter is not counted: it was pushed before, elsewhere.
            let pushed = i64::from(was == Was::New && becomes != Becomes::Dead);
            let counted = sum(Counter::Push) + sum(Counter::Later) - sum(Counter::Due) - sum(Counter::Back);
            assert_eq!(counted, pushed, "{at}");
        }
    }
}
