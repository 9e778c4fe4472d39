//! How many items a queue has, and in which state.

use crate::meta::Millis;

/// Whether there are items in each of the states that are not an end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rest {
    /// Some are ready.
    pub ready: bool,
    /// Some are held under a lease.
    pub running: bool,
    /// Some wait for their time: that of the first of them.
    pub waiting: Option<Millis>,
}

impl Rest {
    /// Whether there are none: every item is finished or a dead letter.
    pub fn is_none(&self) -> bool {
        *self == Rest::default()
    }
}

/// How many items there are in each state, all at the same version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ready to be taken; as [`Queue::len`](crate::Queue::len).
    pub ready: i64,
    /// Held under a lease. If the headers of all leases have more than 4 MB, an estimate.
    pub running: u64,
    /// Waiting for their time.
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
