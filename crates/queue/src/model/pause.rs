//! The pause of a queue.

use std::time::{SystemTime, UNIX_EPOCH};

/// That a queue is paused: consumers take nothing from it. Pushes go on, and running items are finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// Since when, by the clock of the pausing process, stored to the [millisecond](crate::millis); the start of 1970 if unknown.
    pub at: SystemTime,
    /// Whether sweepers leave the queue alone too: nothing becomes due, and no lease that ran out comes back.
    pub frozen: bool,
    /// Why, for people: at most [`MAX_REASON`](crate::MAX_REASON) bytes are kept.
    pub reason: String,
}

impl Default for Pause {
    /// A pause of unknown age and reason, in which sweepers go on.
    fn default() -> Pause {
        Pause { at: UNIX_EPOCH, frozen: false, reason: String::new() }
    }
}

impl Pause {
    /// The reason, for people.
    pub fn why(&self) -> &str {
        if self.reason.is_empty() { "for a reason that this version cannot read" } else { &self.reason }
    }
}
