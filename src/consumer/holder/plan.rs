//! When the holder of a lease settles, extends, or has to give up. Pure: what happened goes in with its time, and what to do next
//! comes out.
//!
//! All times are this process's monotonic clock's. A lease counts as held until its length after the *beginning* of the last change
//! that succeeded. Sweepers take it away no sooner, whatever the database's versions do: each waits until its own monotonic clock
//! proves that the lease was not changed for its length (`kvqueue_queue::VersionHistory`).

use std::time::Duration;

use tokio::time::Instant;

/// How long an outcome may wait for others to be settled with.
pub(super) const GATHER: Duration = Duration::from_millis(5);

/// The same where it is the last one of a slice: its consumer has no more to add, and takes only so far ahead of it.
pub(super) const GATHER_SLICES: Duration = Duration::from_millis(1);

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Settle what waits.
    Settle,
    /// Move the deadline on.
    Extend,
    /// Wait for word from the dispatcher, no longer than this.
    Wait(Instant),
    /// The lease has run out.
    Lost,
    /// There is nothing left to hold, or nobody to hold it for.
    End,
}

/// What the holder of a lease knows.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    length: Duration,
    /// When the last change that succeeded began.
    changed_at: Instant,
    /// Whether that does not tell how old the lease is.
    doubtful: bool,
    /// Items that are not settled.
    open: usize,
    /// By when to settle what is known of some of them.
    settle_at: Option<Instant>,
    /// A handler has a transaction, which an extension would make conflict.
    handing_out: bool,
    /// The dispatcher is gone.
    alone: bool,
}

impl Plan {
    /// A lease on so many items, by a take that began at `taken_at`; `doubtful` if that does not tell how old it is.
    pub(super) fn new(length: Duration, taken_at: Instant, doubtful: bool, items: usize) -> Self {
        Self {
            length,
            changed_at: taken_at,
            doubtful,
            open: items,
            settle_at: None,
            handing_out: false,
            alone: false,
        }
    }

    /// It is known of items what becomes of them. They wait to be settled, no longer than `gather` from now.
    pub(super) fn said(&mut self, now: Instant, gather: Duration) {
        self.handing_out = false;
        let at = now + gather;
        self.settle_at = Some(self.settle_at.map_or(at, |before| before.min(at)));
    }

    /// Nothing waits any more.
    pub(super) fn settled(&mut self) {
        self.settle_at = None;
    }

    /// A change succeeded that began at `began` and settled so many items.
    pub(super) fn changed(&mut self, began: Instant, settled: usize) {
        // A handler's transaction may have been begun before the last extension. If it commits it has read after that, or the two
        // would have conflicted.
        self.changed_at = self.changed_at.max(began);
        self.doubtful = false;
        self.open -= settled;
    }

    /// The last change does not tell how old the lease is.
    pub(super) fn doubt(&mut self) {
        self.doubtful = true;
    }

    /// A handler has got a transaction, or the transaction has come back.
    pub(super) fn hand_out(&mut self, out: bool) {
        self.handing_out = out;
    }

    /// The dispatcher is gone: nothing will be said any more.
    pub(super) fn left_alone(&mut self) {
        self.alone = true;
    }

    /// Until when the lease is certainly held.
    pub(super) fn held_until(&self) -> Instant {
        self.changed_at + self.length
    }

    /// How long a change that begins now may take.
    pub(super) fn time_left(&self, now: Instant) -> Duration {
        // What is in doubt is for the database to say.
        if self.doubtful { self.length } else { self.held_until().saturating_duration_since(now) }
    }

    /// Items that are not settled.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// What to do at `now`.
    pub(super) fn next(&self, now: Instant) -> Next {
        if self.open == 0 {
            return Next::End;
        }
        if self.doubtful {
            return Next::Extend;
        }
        if now >= self.held_until() {
            return Next::Lost;
        }
        if self.settle_at.is_some_and(|at| self.alone || now >= at) {
            return Next::Settle;
        }
        if self.alone {
            return Next::End;
        }
        let extend_at = self.extend_at();
        if now >= extend_at {
            return Next::Extend;
        }
        Next::Wait(self.settle_at.map_or(extend_at, |at| at.min(extend_at)))
    }

    /// At a third of the lease; at two while a transaction is about, which an extension would make conflict.
    fn extend_at(&self) -> Instant {
        self.changed_at + self.length / 3 * if self.handing_out { 2 } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(30);

    fn after(plan: &Plan, seconds: u64) -> Next {
        plan.next(plan.changed_at + Duration::from_secs(seconds))
    }

    fn plan(items: usize) -> Plan {
        Plan::new(LENGTH, Instant::now(), false, items)
    }

    #[test]
    fn it_extends_at_a_third_and_gives_up_at_the_end() {
        let mut plan = plan(3);
        assert_eq!(after(&plan, 0), Next::Wait(plan.changed_at + LENGTH / 3));
        assert_eq!(after(&plan, 10), Next::Extend);
        assert_eq!(after(&plan, 29), Next::Extend);
        assert_eq!(after(&plan, 30), Next::Lost);
        plan.changed(plan.changed_at + LENGTH / 3, 0);
        assert_eq!(after(&plan, 9), Next::Wait(plan.changed_at + LENGTH / 3));
    }

    /// As the holder does it.
    fn settle(plan: &mut Plan, items: usize) {
        plan.changed(plan.changed_at, items);
        plan.settled();
    }

    #[test]
    fn a_transaction_that_was_begun_before_an_extension_does_not_take_it_back() {
        let mut plan = plan(2);
        let (begun, extended) = (plan.changed_at, plan.changed_at + LENGTH / 3 * 2);
        plan.changed(extended, 0);
        plan.changed(begun, 1);
        assert_eq!(plan.held_until(), extended + LENGTH);
    }

    #[test]
    fn outcomes_wait_for_others_but_not_long() {
        let mut plan = plan(3);
        let start = plan.changed_at;
        plan.said(start, GATHER);
        plan.said(start + GATHER / 2, GATHER);
        assert_eq!(plan.next(start + GATHER / 2), Next::Wait(start + GATHER));
        assert_eq!(plan.next(start + GATHER), Next::Settle);
        settle(&mut plan, 2);
        assert_eq!(plan.open(), 1);
        assert_eq!(after(&plan, 0), Next::Wait(start + LENGTH / 3));
    }

    #[test]
    fn what_a_consumer_waits_for_is_settled_sooner() {
        let mut plan = plan(3);
        let start = plan.changed_at;
        plan.said(start, GATHER);
        plan.said(start + GATHER_SLICES, GATHER_SLICES);
        plan.said(start + GATHER_SLICES, GATHER);
        assert_eq!(plan.next(start), Next::Wait(start + GATHER_SLICES * 2));
        assert_eq!(plan.next(start + GATHER_SLICES * 2), Next::Settle);
    }

    #[test]
    fn when_all_is_said_they_wait_for_nothing() {
        let mut plan = plan(2);
        let start = plan.changed_at;
        plan.said(start, GATHER);
        plan.left_alone();
        assert_eq!(plan.next(start), Next::Settle);
        settle(&mut plan, 2);
        assert_eq!(plan.next(start), Next::End);
        assert_eq!(after(&plan, 1_000), Next::End);
    }

    #[test]
    fn left_alone_it_settles_what_was_said_and_extends_no_more() {
        let mut plan = plan(2);
        let start = plan.changed_at;
        plan.said(start, GATHER);
        plan.left_alone();
        assert_eq!(plan.next(start), Next::Settle);
        settle(&mut plan, 1);
        assert_eq!(plan.next(start), Next::End);
    }

    #[test]
    fn a_lease_of_unknown_age_is_extended_before_anything_else() {
        let mut plan = Plan::new(LENGTH, Instant::now(), true, 1);
        plan.said(plan.changed_at, GATHER);
        for seconds in [0, 1_000] {
            assert_eq!(after(&plan, seconds), Next::Extend);
            assert_eq!(plan.time_left(plan.changed_at + Duration::from_secs(seconds)), LENGTH);
        }
        plan.changed(plan.changed_at, 0);
        assert_eq!(plan.next(plan.changed_at + GATHER), Next::Settle);
    }

    #[test]
    fn a_transaction_that_is_out_puts_the_extension_off() {
        let mut plan = plan(1);
        plan.hand_out(true);
        assert_eq!(after(&plan, 19), Next::Wait(plan.changed_at + LENGTH / 3 * 2));
        assert_eq!(after(&plan, 20), Next::Extend);
        plan.hand_out(false);
        assert_eq!(after(&plan, 10), Next::Extend);
    }
}
