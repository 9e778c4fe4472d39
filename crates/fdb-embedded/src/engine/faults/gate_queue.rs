//! What a closed gate holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use baton::Mutex;

use crate::engine::committer::CommitRequest;
use crate::future::Future;

/// The number of closed gates in this process.
pub(super) static CLOSED: AtomicUsize = AtomicUsize::new(0);

/// True if a gate in this process is closed.
pub(crate) fn is_any_closed() -> bool {
    CLOSED.load(Ordering::Relaxed) > 0
}

/// The commits and retry delays that are held at a closed gate.
#[derive(Default)]
pub(in crate::engine) struct GateQueue {
    waiting: Mutex<Option<HeldRequests>>,
    /// Avoids the lock while the gate is open.
    is_closed: AtomicBool,
}

#[derive(Default)]
pub(super) struct HeldRequests {
    pub(super) commits: Vec<CommitRequest>,
    pub(super) backoffs: Vec<HeldBackoff>,
}

impl GateQueue {
    /// Holds a commit at the gate; returns it if the gate is open.
    pub fn stop(&self, request: CommitRequest) -> Option<CommitRequest> {
        if !self.is_closed.load(Ordering::Acquire) {
            return Some(request);
        }
        match &mut *self.waiting.lock() {
            Some(waiting) => waiting.commits.push(request),
            None => return Some(request),
        }
        None
    }

    /// Holds a client's retry delay at the gate, to complete `future` later; `false` if the gate is
    /// open.
    pub fn stop_backoff(&self, future: &Arc<Future>) -> bool {
        if !self.is_closed.load(Ordering::Acquire) {
            return false;
        }
        let mut waiting = self.waiting.lock();
        waiting.as_mut().map(|waiting| waiting.backoffs.push(HeldBackoff(Arc::clone(future)))).is_some()
    }

    /// Closes the gate.
    pub(super) fn close(&self) {
        self.waiting.lock().get_or_insert_default();
        self.is_closed.store(true, Ordering::Release);
    }

    /// Opens the gate, and returns what it held.
    pub(super) fn open(&self) -> HeldRequests {
        self.is_closed.store(false, Ordering::Release);
        self.waiting.lock().take().unwrap_or_default()
    }

    /// Takes what one of the lists holds.
    pub(super) fn take<T>(&self, part: impl FnOnce(&mut HeldRequests) -> &mut Vec<T>) -> Vec<T> {
        self.waiting.lock().as_mut().map(|waiting| std::mem::take(part(waiting))).unwrap_or_default()
    }
}

/// A client's retry delay that is held at a [`Gate`](super::Gate). It ends when this is dropped.
pub struct HeldBackoff(Arc<Future>);

impl Drop for HeldBackoff {
    fn drop(&mut self) {
        self.0.succeed();
    }
}

impl std::fmt::Debug for HeldBackoff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HeldBackoff")
    }
}
