//! The stages of a stop, for all parts of the daemon that work on items.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;

use crate::{
    database::storage_failure,
    handlers::{Processes, StopRequest},
};

/// One per process.
#[derive(Debug, Default)]
pub(crate) struct ShutdownTokens {
    /// Fires when the daemon stops: nothing is fetched, and items that were not begun are released.
    pub(crate) draining: CancellationToken,
    /// Fires at the shutdown timeout: handlers are cancelled.
    pub(crate) drain_timed_out: CancellationToken,
    /// Fires when the daemon has to stop because of an error.
    pub(crate) stop: StopRequest,
    /// Processes of handlers. They end after the last item.
    pub(crate) processes: Processes,
    /// Items that a drain has neither finished nor released.
    left_behind: AtomicUsize,
    /// A failure of the storage is logged once.
    storage_failed: AtomicBool,
}

impl ShutdownTokens {
    /// Counts items that were neither finished nor released. Before a drain it counts nothing, since
    /// other consumers go on with such items.
    pub(crate) fn leave_behind(&self, items: usize) {
        if self.draining.is_cancelled() {
            self.left_behind.fetch_add(items, Ordering::Relaxed);
        }
    }

    pub(crate) fn left_behind(&self) -> usize {
        self.left_behind.load(Ordering::Relaxed)
    }

    /// The storage under an embedded database failed.
    pub(crate) fn storage_failed(&self) {
        let reason = storage_failure();
        if !self.storage_failed.swap(true, Ordering::Relaxed) {
            tracing::error!(event = "storage_failed", reason, "the database's storage failed");
        }
        self.stop.request(format!(
            "the database's storage failed: {reason}; mend that, then start the daemon again"
        ));
    }
}
