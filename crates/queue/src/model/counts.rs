//! How many items a queue has, and in which state.

use std::time::SystemTime;

/// Whether a queue has items that are ready, running, or scheduled: items that are not ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Some are ready.
    pub ready: bool,
    /// Some are running: a worker has them on a lease.
    pub running: bool,
    /// Some are scheduled or wait for a retry: when the first of them is due.
    pub waiting: Option<SystemTime>,
}

impl Unfinished {
    /// Whether there are none: every item is finished or dead.
    pub fn is_none(&self) -> bool {
        *self == Unfinished::default()
    }
}

/// How many items there are in each state, all at the same version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ready to be fetched; as [`Queue::len`](crate::Queue::len).
    pub ready: i64,
    /// Running, on a lease. If the headers of all leases have more than 4 MB, an estimate.
    pub running: u64,
    /// Scheduled, or waiting for a retry.
    pub waiting: i64,
    /// Dead letters.
    pub dead: i64,
    /// Finished since the queue was made. Items that left it by a pop, or were taken at most once, are not among them.
    pub done: u64,
    /// Pushed since the queue was made, by whatever program: by [`Session`](crate::Session)s, imports and moves from other queues, and by
    /// programs in other languages. Each item once, however often it is tried; imported dead letters do not count. `None` of a recipe's queue, whose other producers count
    /// nothing. Items that came back before kvqueue counted these count once more.
    pub pushed: Option<u64>,
}
