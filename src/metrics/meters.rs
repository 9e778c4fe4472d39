//! What is counted of one queue.

use kvqueue_queue::{ItemOutcome, SweepCounts};

use super::{Counter, Gauge, Histogram};

/// One queue of this process, counted since it started. One for a name, whatever becomes of the queue's settings.
#[derive(Debug, Default)]
pub(crate) struct QueueMeters {
    /// Items that takes brought.
    pub(crate) fetched: Counter,
    /// Takes that brought items.
    pub(crate) fetches_items: Counter,
    /// Takes that found none.
    pub(crate) fetches_empty: Counter,
    /// Takes that the database refused.
    pub(crate) fetches_failed: Counter,
    /// Attempts of takes that lost against another process.
    pub(crate) conflicts: Counter,
    /// Items that are done.
    pub(crate) done: Counter,
    /// Items that failed and are tried again.
    pub(crate) retried: Counter,
    /// Items that failed for good by their handler. The sweeper's are not counted here.
    pub(crate) dead: Counter,
    /// Items that were given back.
    pub(crate) released: Counter,
    /// Items whose end is not known here: their lease ran out, or with at-most-once delivery their handler failed.
    pub(crate) lost: Counter,
    /// Watches that fired.
    pub(crate) wakeups: Counter,
    /// Consumers that failed and were replaced.
    pub(crate) restarts: Counter,
    /// Leases that were lost.
    pub(crate) leases_lost: Counter,
    /// Items whose time came.
    pub(crate) promoted: Counter,
    /// Items of leases that ran out, ready again.
    pub(crate) returned: Counter,
    /// Items of leases that ran out, dead after their last attempt.
    pub(crate) swept_dead: Counter,
    /// Items that another program took, of which this one cleared what was left.
    pub(crate) orphaned: Counter,
    /// Items that handlers have now.
    pub(crate) in_flight: Gauge,
    /// A take that brought items, from its first attempt to its commit.
    pub(crate) fetch_seconds: Histogram,
    /// One call of the handler.
    pub(crate) handle_seconds: Histogram,
    /// A transaction that says what became of items.
    pub(crate) acknowledge_seconds: Histogram,
    /// From the push of an item to the first call of its handler; of one that was pushed for later, that includes the wait for its time.
    pub(crate) start_seconds: Histogram,
}

impl QueueMeters {
    /// Items are settled, durably: this became of them.
    pub(crate) fn acknowledged<'a>(&self, outcomes: impl Iterator<Item = &'a ItemOutcome>) {
        let [mut done, mut retried, mut dead, mut released] = [0; 4];
        for outcome in outcomes {
            *match outcome {
                ItemOutcome::Done => &mut done,
                ItemOutcome::Retry { .. } => &mut retried,
                ItemOutcome::Dead(_) => &mut dead,
                ItemOutcome::Release => &mut released,
            } += 1;
        }
        let cells = [&self.done, &self.retried, &self.dead, &self.released];
        for (cell, more) in cells.into_iter().zip([done, retried, dead, released]) {
            if more > 0 {
                cell.add(more);
            }
        }
    }

    /// A sweep moved items.
    pub(crate) fn swept(&self, moved: &SweepCounts) {
        self.promoted.add(moved.promoted as u64);
        self.returned.add(moved.returned as u64);
        self.swept_dead.add(moved.dead as u64);
        self.orphaned.add(moved.orphans as u64);
    }

    /// Items that need nothing more of this process's handlers: done, dead.
    pub(crate) fn finished(&self) -> u64 {
        self.done.get() + self.dead.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_in_which_nothing_goes_on_takes_less_than_a_kilobyte() {
        assert!(size_of::<QueueMeters>() < 1_024, "{}", size_of::<QueueMeters>());
    }
}
