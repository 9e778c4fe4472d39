//! How often the takes of the baseline conflict with each other.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Takes and conflicts, counted.
#[derive(Debug, Default)]
pub(super) struct Contention {
    takes: AtomicU64,
    conflicts: AtomicU64,
}

impl Contention {
    /// A take brought items, after this number of conflicts.
    pub(super) fn took(&self, conflicts: u32) {
        self.takes.fetch_add(1, Relaxed);
        self.conflicts.fetch_add(u64::from(conflicts), Relaxed);
    }

    /// An attempt ended with a conflict.
    pub(super) fn lost(&self) {
        self.conflicts.fetch_add(1, Relaxed);
    }

    /// Conflicts for each hundred takes.
    pub(super) fn per_100_takes(&self) -> f64 {
        100.0 * self.conflicts.load(Relaxed) as f64 / self.takes.load(Relaxed).max(1) as f64
    }
}
