//! The meters of a queue.

use std::sync::atomic::AtomicU64;

use kvqueue_queue::{ItemOutcome, SweepCounts};
use prometheus_client::metrics::{counter::Counter, histogram::Histogram};

use super::InFlight;
use crate::base::clock_lag::ClockLag;

/// The upper bounds of the buckets of durations, in seconds: from a transaction of an embedded database to a minute's work.
const BUCKETS: [f64; 16] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// The meters of one queue since the process started. A queue keeps them when its settings change.
#[derive(Debug, Default)]
pub(crate) struct QueueMeters {
    /// Items that fetches brought.
    pub(crate) fetched: Counter,
    /// Fetches that brought items.
    pub(crate) fetches_items: Counter,
    /// Fetches that found none.
    pub(crate) fetches_empty: Counter,
    /// Fetches that the database refused.
    pub(crate) fetches_failed: Counter,
    /// Attempts of fetches that conflicted with another process.
    pub(crate) conflicts: Counter,
    /// Items that are done.
    pub(crate) done: Counter,
    /// Items that failed and are tried again.
    pub(crate) retried: Counter,
    /// Items that failed for good by their handler. The sweeper's are not counted here.
    pub(crate) dead: Counter,
    /// Items that were released.
    pub(crate) released: Counter,
    /// Items that were released, with a scope that waits.
    pub(crate) throttled: Counter,
    /// Items that had expired when a handler would have been called with them.
    pub(crate) expired: Counter,
    /// Items that expired, by sweeps.
    pub(crate) swept_expired: Counter,
    /// Items that were cancelled while a handler of this process had them.
    pub(crate) cancelled: Counter,
    /// Items whose outcome this process does not know: their lease was lost, or with at-most-once delivery their handler failed.
    pub(crate) lost: Counter,
    /// Watches that fired.
    pub(crate) wakeups: Counter,
    /// Consumers that failed and were replaced.
    pub(crate) restarts: Counter,
    /// Leases that were lost.
    pub(crate) leases_lost: Counter,
    /// Scheduled items that became ready.
    pub(crate) promoted: Counter,
    /// Items of expired leases that are ready again.
    pub(crate) returned: Counter,
    /// Items of expired leases that are dead after their last attempt.
    pub(crate) swept_dead: Counter,
    /// Dead letters that were older than they are kept.
    pub(crate) removed_dead: Counter,
    /// When the oldest dead letter will be removed, in milliseconds since 1970; 0 if there is none, or this process does not know.
    pub(crate) dead_removal: AtomicU64,
    /// By how much items expire later than this process's clock says.
    pub(crate) clock_lag: ClockLag,
    /// Items that another program took; this process cleared their records.
    pub(crate) orphaned: Counter,
    /// Occurrences of schedules.
    pub(crate) occurrences: OccurrenceMeters,
    /// Batches whose callbacks go to the queue.
    pub(crate) batches: BatchMeters,
    /// Items that handlers have now.
    pub(crate) in_flight: InFlight,
    /// Processes of `exec` that stay.
    pub(crate) processes: ProcessMeters,
    /// A fetch that brought items, from its first attempt to its commit.
    pub(crate) fetch_seconds: Seconds,
    /// One call of the handler.
    pub(crate) handle_seconds: Seconds,
    /// A transaction that acknowledges items.
    pub(crate) acknowledge_seconds: Seconds,
    /// From the push of an item to the first call of its handler. For a scheduled item that includes the wait for its time.
    pub(crate) start_seconds: Seconds,
}

/// The processes of one queue that take one item after the other.
#[derive(Debug, Default)]
pub(crate) struct ProcessMeters {
    /// Processes that run now.
    pub(crate) running: InFlight,
    /// Replaced because they ended by themselves.
    pub(crate) died: Counter,
    /// Replaced because they did not end an item in time.
    pub(crate) hung: Counter,
    /// Replaced because they wrote something that is not of the protocol.
    pub(crate) protocol: Counter,
    /// Replaced after the configured number of items.
    pub(crate) max_items: Counter,
    /// Replaced because they had too much memory.
    pub(crate) max_memory: Counter,
}

/// Occurrences of schedules that sweeps of this process accounted for.
#[derive(Debug, Default)]
pub(crate) struct OccurrenceMeters {
    /// Pushed.
    pub(crate) fired: Counter,
    /// Not pushed, since the last item had not ended.
    pub(crate) skipped: Counter,
    /// Not pushed in time, and not later either.
    pub(crate) missed: Counter,
}

/// Batches that sweeps of this process closed.
#[derive(Debug, Default)]
pub(crate) struct BatchMeters {
    /// All members had ended.
    pub(crate) complete: Counter,
    /// The deadline had come.
    pub(crate) deadline: Counter,
}

/// Durations.
#[derive(Debug)]
pub(crate) struct Seconds(pub(crate) Histogram);

impl Seconds {
    pub(crate) fn observe(&self, seconds: f64) {
        self.0.observe(seconds);
    }
}

impl Default for Seconds {
    fn default() -> Self {
        Self(Histogram::new(BUCKETS))
    }
}

impl QueueMeters {
    /// Items are acknowledged, durably, with these outcomes.
    pub(crate) fn acknowledged<'a>(&self, outcomes: impl Iterator<Item = &'a ItemOutcome>) {
        let [mut done, mut retried, mut dead, mut released, mut throttled, mut expired] = [0; 6];
        for outcome in outcomes {
            *match outcome {
                ItemOutcome::Done | ItemOutcome::DoneWith(_) => &mut done,
                ItemOutcome::Retry { .. } => &mut retried,
                ItemOutcome::Dead(_) => &mut dead,
                ItemOutcome::Release | ItemOutcome::Postpone { .. } => &mut released,
                ItemOutcome::Throttle { .. } => &mut throttled,
                ItemOutcome::Expired { .. } => &mut expired,
            } += 1;
        }
        let cells = [&self.done, &self.retried, &self.dead, &self.released, &self.throttled, &self.expired];
        for (cell, more) in cells.into_iter().zip([done, retried, dead, released, throttled, expired]) {
            if more > 0 {
                cell.inc_by(more);
            }
        }
    }

    /// A sweep moved items.
    pub(crate) fn swept(&self, moved: &SweepCounts) {
        self.promoted.inc_by(moved.promoted as u64);
        self.returned.inc_by(moved.returned as u64);
        self.swept_dead.inc_by(moved.dead as u64);
        self.swept_expired.inc_by(moved.expired as u64);
        self.removed_dead.inc_by(moved.removed_dead as u64);
        self.orphaned.inc_by(moved.orphans as u64);
    }

    /// Items that are done or dead.
    pub(crate) fn finished(&self) -> u64 {
        self.done.get() + self.dead.get()
    }
}
