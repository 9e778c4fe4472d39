//! How a sweeper's clock compares with those of other sweepers.

use std::time::Duration;

/// The clock of a sweeper's process is far from the one of another sweeper of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClocksDiffer {
    /// How far the two are apart, in whole milliseconds.
    pub apart: Duration,
    /// Whether it is ahead of the other one; otherwise it is behind.
    pub is_ahead: bool,
    /// How far the sweeper goes by its own clock.
    pub believed: Believed,
}

/// How far a sweeper goes by a clock that differs from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Believed {
    /// In all: it is not ahead, or more sweepers agree with it than not.
    InAll,
    /// For what can be undone. It removes by the slower clock: as many sweepers agree with it as not, and it was there first.
    NotForRemovals,
    /// It goes by the slower clock.
    Not,
}
