//! The state that the client's threads and the committer share.

use baton::thread::ThreadId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use baton::{Condvar, Mutex};

use super::committer::CommitQueue;
use super::faults::{GateQueue, InstalledFaults};
#[cfg(feature = "testing")]
use super::holdings::Holdings;
use super::read_views::ReadViews;
use super::watches::Watches;

/// The state that the client's threads and the committer share.
pub(super) struct Shared {
    pub(super) views: Mutex<ReadViews>,
    pub(super) queue: Mutex<CommitQueue>,
    pub(super) work: Condvar,
    pub(super) watches: Watches,
    /// The committer's thread, after it has started.
    pub(super) committer: OnceLock<ThreadId>,
    pub(super) faults: Arc<InstalledFaults>,
    pub(super) gate: GateQueue,
    pub(super) poisoned: AtomicBool,
    /// The engine ends only to be opened again: its storage has not failed.
    pub(super) is_reopening: AtomicBool,
    pub(super) ended: Mutex<Option<EngineEnd>>,
    pub(super) has_ended: Condvar,
}

/// How an engine ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineEnd {
    /// It was closed.
    Closed,
    /// Its storage failed with this error. The directory has to be closed and opened again.
    Failed(String),
}

impl Shared {
    /// True if the engine has failed.
    pub(super) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Ends the engine's work after a failure: it accepts no commit, hands out no version above the
    /// durable ceiling, and answers no read. Watches stay armed until the directory is opened
    /// again.
    pub(super) fn poison(&self, error: &dyn std::fmt::Display) {
        let is_reopening = self.is_reopening.load(Ordering::Acquire);
        if !is_reopening {
            crate::reports::keep_failure(error.to_string());
        }
        self.poisoned.store(true, Ordering::Release);
        {
            let mut views = self.views.lock();
            views.clock().stop();
            views.close();
        }
        let what = if is_reopening {
            "opening the embedded database again"
        } else {
            "the embedded database has failed"
        };
        crate::reports::report(&format!("{what}: {error}"));
        self.end(EngineEnd::Failed(error.to_string()));
    }

    /// Records how the engine ended. Only the first call counts.
    pub(super) fn end(&self, end: EngineEnd) {
        self.ended.lock().get_or_insert(end);
        self.has_ended.notify_all();
        self.watches.end();
    }

    /// Wakes the committer after a failed read, so that it finds the failure and poisons the
    /// engine.
    pub(super) fn wake_committer(shared: &Weak<Shared>) {
        if let Some(shared) = shared.upgrade() {
            shared.queue.lock().raise_ceiling = true;
            shared.work.notify_one();
        }
    }
}

#[cfg(feature = "testing")]
impl Shared {
    /// Adds what it holds.
    pub(super) fn add_holdings(&self, holdings: &mut Holdings) {
        self.views.lock().add_holdings(holdings);
        self.watches.add_holdings(holdings);
        let queue = self.queue.lock();
        holdings.commits = (queue.requests.len(), queue.bytes);
    }
}
