//! The pause of a queue.

use crate::model::meta::Millis;

/// That a queue is paused: consumers take nothing from it. Pushes go on, and running items are finished.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pause {
    /// Since when, by the clock of the pausing process; 0 if unknown.
    pub at: Millis,
    /// Whether sweepers leave the queue alone too: nothing becomes due, and no lease that ran out comes back.
    pub frozen: bool,
    /// Why, for people: at most [`MAX_REASON`](crate::MAX_REASON) bytes are kept.
    pub reason: String,
}

impl Pause {
    /// The reason, for people.
    pub fn why(&self) -> &str {
        if self.reason.is_empty() { "for a reason that this version cannot read" } else { &self.reason }
    }
}
