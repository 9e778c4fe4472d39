//! What an acknowledgement does with an item.

use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::model::limits::Scope;
use crate::model::meta::Failure;
use crate::model::rules::OnExpiry;

/// The outcome of an attempt: what an acknowledgement does with the item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemOutcome {
    /// The item is finished and leaves the queue.
    Done,
    /// The same, with a result: bytes for the program that waits for it. A queue that keeps a [history](crate::Recorder) keeps the result as long
    /// ([`Queue::result`](crate::Queue::result)); of one that is longer than [`MAX_RESULT`](crate::MAX_RESULT) it keeps that there was one. A queue without a
    /// history drops it.
    DoneWith(Bytes),
    /// The attempt failed. The item becomes ready again at once, or a [`Sweeper`](crate::Sweeper)
    /// makes it ready at `due`. If no sweeper runs, it stays scheduled.
    Retry {
        /// When, by the sweeper's clock and to the millisecond; `None`: now.
        due: Option<SystemTime>,
        /// The failure.
        failure: Failure,
    },
    /// The item is ready again, in its old place. The attempt does not count.
    Release,
    /// The item is scheduled. A [`Sweeper`](crate::Sweeper) makes it ready again at `due`. The
    /// attempt does not count.
    Postpone {
        /// When, by the sweeper's clock and to the millisecond.
        due: SystemTime,
    },
    /// The item is ready again, in its old place. The attempt does not count. Nothing of its scope starts for this time, at most a day;
    /// a throttle that ends later stays. In a queue without keys, and if the scope is the item's key and that is empty, this is
    /// [`Release`](ItemOutcome::Release).
    Throttle {
        /// What waits.
        scope: Scope,
        /// How long.
        wait: Duration,
    },
    /// The item becomes a dead letter.
    Dead(Failure),
    /// The item has expired, and its first attempt does not begin. It leaves the queue, or becomes a dead letter.
    Expired {
        /// When that was found.
        at: SystemTime,
        /// What becomes of it.
        on_expiry: OnExpiry,
    },
}

impl ItemOutcome {
    /// Whether the item is finished.
    pub fn is_done(&self) -> bool {
        matches!(self, ItemOutcome::Done | ItemOutcome::DoneWith(_))
    }
}
