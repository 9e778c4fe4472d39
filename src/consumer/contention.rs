//! How often takes lose against those of other processes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Takes of one process, counted.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    takes: AtomicU64,
    conflicts: AtomicU64,
}

impl Contention {
    /// A take brought items, after so many attempts that lost.
    pub(crate) fn took(&self, conflicts: u32) {
        self.takes.fetch_add(1, Relaxed);
        self.conflicts.fetch_add(u64::from(conflicts), Relaxed);
    }

    /// An attempt lost.
    pub(crate) fn lost(&self) {
        self.conflicts.fetch_add(1, Relaxed);
    }

    /// Lost attempts for each hundred takes.
    pub(crate) fn per_100_takes(&self) -> f64 {
        100.0 * self.conflicts.load(Relaxed) as f64 / self.takes.load(Relaxed).max(1) as f64
    }
}
