//! The log's record in redb's file.

use super::record::Header;

/// The log's record in redb's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogAnchor {
    /// A random number, drawn by each process that starts to use the log.
    pub id: u64,
    /// The LSN of the checkpoint. The first record has the next LSN.
    pub checkpoint_lsn: u64,
    /// Length of the log in bytes, all of which were flushed when they were allocated.
    pub len: u64,
}

impl LogAnchor {
    /// True for the header of the batch `lsn` of this round.
    pub(super) fn matches(&self, header: &Header, lsn: u64) -> bool {
        (header.id, header.checkpoint_lsn, header.lsn) == (self.id, self.checkpoint_lsn, lsn)
    }
}
