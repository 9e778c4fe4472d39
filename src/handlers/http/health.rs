//! Whether the target has an outage, or only some of its items fail.
//!
//! The rule, which `docs/decisions/0030-webhooks.md` explains:
//!
//! - A call that reached no target has no effect on its item's attempts, and is not counted here.
//! - A call that the target got, and that is to be retried, is a failure. `outage-after` failures
//!   of different items with no success between them are an outage, and each failure from the last
//!   of them on belongs to it.
//! - An answer about its item alone does not count, once the target has worked. Before that it may
//!   be the answer to every item, as from a wrong port.
//! - An answer that is no failure ends the outage, and the count begins again.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use kvqueue_queue::ItemId;

/// The shortest and the longest time for which an item waits that failed in an outage.
const POSTPONED: [Duration; 2] = [Duration::from_secs(1), Duration::from_hours(1)];

/// What is known of a target.
#[derive(Debug)]
pub(super) struct Health {
    /// `outage-after`; 0: answers are never an outage.
    after: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The items that have failed since the last success: at most `after`.
    failed: BTreeSet<ItemId>,
    /// When the outage began.
    since: Option<Instant>,
    /// There was an answer that is no failure.
    has_worked: bool,
}

/// What a failure says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blames {
    /// The item: another one may be handled.
    Item,
    /// The target, or nothing.
    Target,
}

impl Health {
    pub(super) fn new(after: u32) -> Self {
        Self { after: usize::try_from(after).unwrap_or(usize::MAX), state: Mutex::default() }
    }

    /// The target has answered as it should.
    pub(super) fn works(&self) {
        *self.lock() = State { has_worked: true, ..State::default() };
    }

    /// Notes that the target got this item, or a batch that begins with it, and did not handle it.
    /// In an outage, returns the time for which the item should wait: a quarter of what the outage
    /// has lasted, so that the next trials use other items.
    pub(super) fn fails(&self, item: &ItemId, blames: Blames, now: Instant) -> Option<Duration> {
        let mut state = self.lock();
        let counts = blames == Blames::Target || !state.has_worked;
        if counts && state.since.is_none() && self.after > 0 {
            state.failed.insert(item.clone());
            if state.failed.len() >= self.after {
                state.since = Some(now);
                state.failed.clear();
            }
        }
        let [shortest, longest] = POSTPONED;
        state.since.map(|since| (now.saturating_duration_since(since) / 4).clamp(shortest, longest))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(number: u64) -> ItemId {
        format!("x{number:02}").parse().unwrap()
    }

    #[test]
    fn failures_of_different_items_in_a_row_are_an_outage() {
        let (health, now) = (Health::new(3), Instant::now());
        assert_eq!([1, 2].map(|number| health.fails(&item(number), Blames::Target, now)), [None, None]);
        let [shortest, longest] = POSTPONED;
        assert_eq!(health.fails(&item(3), Blames::Target, now), Some(shortest));
        let after = |seconds| health.fails(&item(1), Blames::Target, now + Duration::from_secs(seconds));
        assert_eq!(after(60), Some(Duration::from_secs(15)), "the same item belongs to it, too");
        assert_eq!(after(1_000_000), Some(longest));
        health.works();
        assert_eq!([1, 2].map(|number| health.fails(&item(number), Blames::Target, now)), [None, None]);
    }

    #[test]
    fn one_item_that_fails_again_and_again_is_no_outage() {
        let (health, now) = (Health::new(2), Instant::now());
        assert!((0..100).all(|_| health.fails(&item(1), Blames::Target, now).is_none()));
        assert!(health.fails(&item(2), Blames::Target, now).is_some());
    }

    #[test]
    fn a_success_between_failures_begins_the_count_again() {
        let (health, now) = (Health::new(2), Instant::now());
        for number in 0..50 {
            assert_eq!(health.fails(&item(number), Blames::Target, now), None);
            health.works();
        }
    }

    #[test]
    fn a_count_of_zero_is_never_reached() {
        let (health, now) = (Health::new(0), Instant::now());
        assert!((0..99).all(|number| health.fails(&item(number), Blames::Target, now).is_none()));
    }
}
