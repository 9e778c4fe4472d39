//! What the daemon tells everything that works on items, and what it is told.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;

use crate::{database::storage_failure, handlers::StopRequest};

/// One per process.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// Fires when the daemon is to stop: what is not begun is given back, nothing is taken.
    pub(crate) draining: CancellationToken,
    /// Fires when the shutdown timeout is over: handlers are to give up.
    pub(crate) drain_timed_out: CancellationToken,
    /// Fires when a handler, or what it works on, cannot go on.
    pub(crate) stop: StopRequest,
    left_behind: AtomicUsize,
    /// It is logged once that storage failed.
    storage_failed: AtomicBool,
}

impl Signals {
    /// So many items were neither finished nor given back. Of interest in a drain; before, others go on with them.
    pub(crate) fn leave_behind(&self, items: usize) {
        if self.draining.is_cancelled() {
            self.left_behind.fetch_add(items, Ordering::Relaxed);
        }
    }

    /// How many there are of them.
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
