//! The meters of one queue.

use kvqueue_queue::{ItemOutcome, SweepCounts};
use prometheus_client::metrics::{counter::Counter, gauge::Gauge, histogram::Histogram};

/// The upper bounds of the buckets of durations, in seconds: from a transaction of an embedded database to a minute's work.
const BUCKETS: [f64; 16] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// The meters of one queue since the process started. A queue keeps them when its settings change.
#[derive(Debug)]
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
    /// Items that another program took; this process cleared their records.
    pub(crate) orphaned: Counter,
    /// Items that handlers have now.
    pub(crate) in_flight: InFlight,
    /// A fetch that brought items, from its first attempt to its commit.
    pub(crate) fetch_seconds: Histogram,
    /// One call of the handler.
    pub(crate) handle_seconds: Histogram,
    /// A transaction that acknowledges items.
    pub(crate) acknowledge_seconds: Histogram,
    /// From the push of an item to the first call of its handler. For a scheduled item that includes the wait for its time.
    pub(crate) start_seconds: Histogram,
}

impl Default for QueueMeters {
    fn default() -> Self {
        Self {
            fetched: Counter::default(),
            fetches_items: Counter::default(),
            fetches_empty: Counter::default(),
            fetches_failed: Counter::default(),
            conflicts: Counter::default(),
            done: Counter::default(),
            retried: Counter::default(),
            dead: Counter::default(),
            released: Counter::default(),
            lost: Counter::default(),
            wakeups: Counter::default(),
            restarts: Counter::default(),
            leases_lost: Counter::default(),
            promoted: Counter::default(),
            returned: Counter::default(),
            swept_dead: Counter::default(),
            orphaned: Counter::default(),
            in_flight: InFlight::default(),
            fetch_seconds: Histogram::new(BUCKETS),
            handle_seconds: Histogram::new(BUCKETS),
            acknowledge_seconds: Histogram::new(BUCKETS),
            start_seconds: Histogram::new(BUCKETS),
        }
    }
}

/// The number of items that handlers have.
#[derive(Debug, Default)]
pub(crate) struct InFlight(pub(super) Gauge);

impl InFlight {
    /// Adds items until the returned guard is dropped.
    pub(crate) fn hold(&self, items: usize) -> Held<'_> {
        let items = i64::try_from(items).unwrap_or(i64::MAX);
        self.0.inc_by(items);
        Held { gauge: &self.0, items }
    }

    /// The current number.
    pub(crate) fn get(&self) -> i64 {
        self.0.get()
    }
}

/// Items that a handler has.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    gauge: &'a Gauge,
    items: i64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.gauge.dec_by(self.items);
    }
}

impl QueueMeters {
    /// Items are acknowledged, durably, with these outcomes.
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
                cell.inc_by(more);
            }
        }
    }

    /// A sweep moved items.
    pub(crate) fn swept(&self, moved: &SweepCounts) {
        self.promoted.inc_by(moved.promoted as u64);
        self.returned.inc_by(moved.returned as u64);
        self.swept_dead.inc_by(moved.dead as u64);
        self.orphaned.inc_by(moved.orphans as u64);
    }

    /// Items that are done or dead.
    pub(crate) fn finished(&self) -> u64 {
        self.done.get() + self.dead.get()
    }
}
