//! What an engine holds in memory and on the disk, for tests that nothing grows with time.

/// What the host of a directory holds when it is at rest: all memtables are in the data file, and no
/// old version can be read any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Bytes of memtables.
    pub memtables: usize,
    /// Bytes of the undo log, and the pieces of it that wait to be freed.
    pub undo_log: (usize, usize),
    /// Bytes of the ranges that commits are checked against.
    pub conflicts: usize,
    /// Replaced and pinned states that transactions keep readable.
    pub old_states: usize,
    /// Commits that wait, and their bytes.
    pub commits: (usize, usize),
    /// Armed watches, and their bytes.
    pub watches: (usize, usize),
    /// Watches that this process would arm at the next host.
    pub kept_watches: usize,
    /// Connections of guests.
    pub guests: usize,
    /// Bytes of the disk that the data file occupies.
    pub data_file: u64,
    /// Bytes of all keys and values in it.
    pub rows: u64,
    /// Bytes of the log.
    pub log: u64,
}

impl Holdings {
    /// What would be there longer than the transactions that made it; empty if there is nothing of
    /// that kind. Does not judge the files: how large they may be depends on what was written.
    #[must_use]
    pub fn left_over(&self) -> Vec<String> {
        let counts = [
            ("bytes of memtables", self.memtables),
            ("bytes of the undo log", self.undo_log.0),
            ("pieces of the undo log to free", self.undo_log.1),
            ("bytes of ranges for conflicts", self.conflicts),
            ("old states", self.old_states),
            ("waiting commits", self.commits.0),
            ("bytes of waiting commits", self.commits.1),
            ("watches", self.watches.0),
            ("bytes of watches", self.watches.1),
            ("watches for the next host", self.kept_watches),
            ("guests", self.guests),
        ];
        counts.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{n} {what}")).collect()
    }
}
