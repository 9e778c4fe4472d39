//! When a lease keeper acknowledges, extends, or gives up. Pure: events come in with their time, and
//! the next action comes out.
//!
//! All times are of this process's monotonic clock. The timer measures a lease from the *beginning*
//! of its last successful change. Sweepers take a lease away no sooner, whatever the database's
//! versions do: each waits until its own monotonic clock proves that the lease was not changed for
//! its length (`kvqueue_queue::VersionHistory`). So the deadline here is never later than theirs.

use std::time::Duration;

use tokio::time::Instant;

/// How long an outcome may wait for others to be acknowledged with.
pub(super) const GATHER: Duration = Duration::from_millis(5);

/// The same when a slice is complete: its consumer waits for the acknowledgement.
pub(super) const GATHER_SLICES: Duration = Duration::from_millis(1);

/// The keeper's next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Write the pending outcomes.
    Acknowledge,
    /// Extend the lease.
    Extend,
    /// Wait for an event, until this time.
    Wait(Instant),
    /// The lease has expired.
    Lost,
    /// All items are acknowledged, or no more outcomes can come.
    End,
}

#[derive(Clone, Debug)]
pub(crate) struct LeaseTimer {
    length: Duration,
    /// When the last successful change began.
    changed_at: Instant,
    /// The lease may be older than `changed_at`.
    age_unknown: bool,
    /// Items without an acknowledgement. Cancelled items get an outcome, too.
    open: usize,
    /// By when to write the pending outcomes.
    acknowledge_at: Option<Instant>,
    /// A handler has a transaction. An extension would make it conflict.
    transaction_out: bool,
    /// All handles are gone.
    closed: bool,
}

impl LeaseTimer {
    /// For a lease of so many items from a fetch that began at `fetched_at`. `age_unknown`: the lease may be older than that, because
    /// an earlier fetch made it, or this fetch took long.
    pub(crate) fn new(length: Duration, fetched_at: Instant, age_unknown: bool, items: usize) -> Self {
        Self {
            length,
            changed_at: fetched_at,
            age_unknown,
            open: items,
            acknowledge_at: None,
            transaction_out: false,
            closed: false,
        }
    }

    /// There are outcomes. They wait for `gather` at most.
    pub(crate) fn outcomes_pending(&mut self, now: Instant, gather: Duration) {
        self.transaction_out = false;
        let at = now + gather;
        self.acknowledge_at = Some(self.acknowledge_at.map_or(at, |before| before.min(at)));
    }

    /// The pending outcomes are written.
    pub(crate) fn outcomes_written(&mut self) {
        self.acknowledge_at = None;
    }

    /// A change that began at `began` has succeeded and acknowledged this number of items.
    pub(crate) fn changed(&mut self, began: Instant, acknowledged: usize) {
        // A handler's transaction may have begun before the last extension. If it commits it has read
        // the lease after the extension, otherwise the two would have conflicted.
        self.changed_at = self.changed_at.max(began);
        self.age_unknown = false;
        self.open -= acknowledged;
    }

    /// The last change may have happened earlier than it was noted.
    pub(super) fn age_is_unknown(&mut self) {
        self.age_unknown = true;
    }

    /// A handler has got a transaction, or has returned it.
    pub(super) fn transaction_out(&mut self, out: bool) {
        self.transaction_out = out;
    }

    /// All handles are gone: no more outcomes can come.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// The deadline of the lease.
    pub(crate) fn held_until(&self) -> Instant {
        self.changed_at + self.length
    }

    /// How long a change that begins now may take.
    pub(super) fn time_left(&self, now: Instant) -> Duration {
        // If the age is unknown, the database decides.
        if self.age_unknown { self.length } else { self.held_until().saturating_duration_since(now) }
    }

    /// Items without an acknowledgement. Cancelled items get an outcome, too.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    pub(crate) fn next(&self, now: Instant) -> Next {
        if self.open == 0 {
            return Next::End;
        }
        if self.age_unknown {
            return Next::Extend;
        }
        if now >= self.held_until() {
            return Next::Lost;
        }
        if self.acknowledge_at.is_some_and(|at| self.closed || now >= at) {
            return Next::Acknowledge;
        }
        if self.closed {
            return Next::End;
        }
        let extend_at = self.extend_at();
        if now >= extend_at {
            return Next::Extend;
        }
        Next::Wait(self.acknowledge_at.map_or(extend_at, |at| at.min(extend_at)))
    }

    /// After a third of the lease; after two thirds while a handler has a transaction.
    fn extend_at(&self) -> Instant {
        self.changed_at + self.length / 3 * if self.transaction_out { 2 } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(30);

    fn after(timer: &LeaseTimer, seconds: u64) -> Next {
        timer.next(timer.changed_at + Duration::from_secs(seconds))
    }

    fn timer(items: usize) -> LeaseTimer {
        LeaseTimer::new(LENGTH, Instant::now(), false, items)
    }

    /// As the keeper does it.
    fn acknowledge(timer: &mut LeaseTimer, items: usize) {
        timer.changed(timer.changed_at, items);
        timer.outcomes_written();
    }

    #[test]
    fn a_lease_is_extended_after_a_third_and_lost_at_its_end() {
        let mut timer = timer(3);
        assert_eq!(after(&timer, 0), Next::Wait(timer.changed_at + LENGTH / 3));
        assert_eq!(after(&timer, 10), Next::Extend);
        assert_eq!(after(&timer, 29), Next::Extend);
        assert_eq!(after(&timer, 30), Next::Lost);
        timer.changed(timer.changed_at + LENGTH / 3, 0);
        assert_eq!(after(&timer, 9), Next::Wait(timer.changed_at + LENGTH / 3));
    }

    #[test]
    fn a_transaction_from_before_an_extension_does_not_shorten_the_lease() {
        let mut timer = timer(2);
        let (begun, extended) = (timer.changed_at, timer.changed_at + LENGTH / 3 * 2);
        timer.changed(extended, 0);
        timer.changed(begun, 1);
        assert_eq!(timer.held_until(), extended + LENGTH);
    }

    #[test]
    fn outcomes_are_gathered_for_a_bounded_time() {
        let mut timer = timer(3);
        let start = timer.changed_at;
        timer.outcomes_pending(start, GATHER);
        timer.outcomes_pending(start + GATHER / 2, GATHER);
        assert_eq!(timer.next(start + GATHER / 2), Next::Wait(start + GATHER));
        assert_eq!(timer.next(start + GATHER), Next::Acknowledge);
        acknowledge(&mut timer, 2);
        assert_eq!(timer.open(), 1);
        assert_eq!(after(&timer, 0), Next::Wait(start + LENGTH / 3));
    }

    #[test]
    fn a_complete_slice_is_acknowledged_sooner() {
        let mut timer = timer(3);
        let start = timer.changed_at;
        timer.outcomes_pending(start, GATHER);
        timer.outcomes_pending(start + GATHER_SLICES, GATHER_SLICES);
        timer.outcomes_pending(start + GATHER_SLICES, GATHER);
        assert_eq!(timer.next(start), Next::Wait(start + GATHER_SLICES * 2));
        assert_eq!(timer.next(start + GATHER_SLICES * 2), Next::Acknowledge);
    }

    #[test]
    fn without_handles_outcomes_are_acknowledged_at_once() {
        let mut timer = timer(2);
        let start = timer.changed_at;
        timer.outcomes_pending(start, GATHER);
        timer.close();
        assert_eq!(timer.next(start), Next::Acknowledge);
        acknowledge(&mut timer, 2);
        assert_eq!(timer.next(start), Next::End);
        assert_eq!(after(&timer, 1_000), Next::End);
    }

    #[test]
    fn without_handles_the_lease_of_the_rest_is_not_extended() {
        let mut timer = timer(2);
        let start = timer.changed_at;
        timer.outcomes_pending(start, GATHER);
        timer.close();
        assert_eq!(timer.next(start), Next::Acknowledge);
        acknowledge(&mut timer, 1);
        assert_eq!(timer.next(start), Next::End);
    }

    #[test]
    fn a_lease_of_unknown_age_is_extended_first() {
        let mut timer = LeaseTimer::new(LENGTH, Instant::now(), true, 1);
        timer.outcomes_pending(timer.changed_at, GATHER);
        for seconds in [0, 1_000] {
            assert_eq!(after(&timer, seconds), Next::Extend);
            assert_eq!(timer.time_left(timer.changed_at + Duration::from_secs(seconds)), LENGTH);
        }
        timer.changed(timer.changed_at, 0);
        assert_eq!(timer.next(timer.changed_at + GATHER), Next::Acknowledge);
    }

    #[test]
    fn a_handlers_transaction_delays_the_extension() {
        let mut timer = timer(1);
        timer.transaction_out(true);
        assert_eq!(after(&timer, 19), Next::Wait(timer.changed_at + LENGTH / 3 * 2));
        assert_eq!(after(&timer, 20), Next::Extend);
        timer.transaction_out(false);
        assert_eq!(after(&timer, 10), Next::Extend);
    }
}
