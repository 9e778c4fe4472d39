//! The number and size of a queue's rows.

/// The number and size of a queue's rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Rows.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Items that are ready.
    pub ready: u64,
    /// Items that wait for their time.
    pub waiting: u64,
    /// Dead letters.
    pub dead: u64,
    /// Items in leases.
    pub running: u64,
}

impl Tally {
    /// Items in any state.
    pub fn items(&self) -> u64 {
        self.ready + self.waiting + self.dead + self.running
    }
}
