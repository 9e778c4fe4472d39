//! How a sweeper's clock compares with those of other sweepers.

/// The clock of a sweeper's process is far from the one of another sweeper of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClocksDiffer {
    /// How far it is ahead, in milliseconds; negative if it is behind.
    pub ahead: i64,
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
