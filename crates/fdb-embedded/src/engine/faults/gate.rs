//! A gate before the committer: commits wait until a test says what becomes of them, and when.
//!
//! A test that runs all its clients on one thread, lets one commit through at a time and makes versions advance by its own word
//! has the same run again from the same decisions, however many clients there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use parking_lot::Mutex;

use super::Fault;
use crate::engine::mutation::Mutation;
use crate::engine::{CommitPromise, CommitRequest, Durability, Engine};
use crate::error::Code;
use crate::future::Future;

/// How many gates of this process are closed.
static CLOSED: AtomicUsize = AtomicUsize::new(0);

/// Whether a gate of this process is closed.
pub(crate) fn is_any_closed() -> bool {
    CLOSED.load(Ordering::Relaxed) > 0
}

/// What has come to a gate, if it is closed.
#[derive(Default)]
pub(in crate::engine) struct GateQueue {
    waiting: Mutex<Option<HeldRequests>>,
    /// Spares the lock as long as it is open.
    is_closed: AtomicBool,
}

#[derive(Default)]
struct HeldRequests {
    commits: Vec<CommitRequest>,
    backoffs: Vec<HeldBackoff>,
}

impl GateQueue {
    /// Keeps a commit at the gate; gives it back if that is open.
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

    /// Keeps a client at the gate that is to wait before it tries again, and completes `future` then; `false` if it is open.
    pub fn stop_backoff(&self, future: &Arc<Future>) -> bool {
        if !self.is_closed.load(Ordering::Acquire) {
            return false;
        }
        let mut waiting = self.waiting.lock();
        waiting.as_mut().map(|waiting| waiting.backoffs.push(HeldBackoff(Arc::clone(future)))).is_some()
    }

    fn close(&self) {
        self.waiting.lock().get_or_insert_default();
        self.is_closed.store(true, Ordering::Release);
    }

    /// Opens it; what has come meanwhile.
    fn open(&self) -> HeldRequests {
        self.is_closed.store(false, Ordering::Release);
        self.waiting.lock().take().unwrap_or_default()
    }

    fn take<T>(&self, part: impl FnOnce(&mut HeldRequests) -> &mut Vec<T>) -> Vec<T> {
        self.waiting.lock().as_mut().map(|waiting| std::mem::take(part(waiting))).unwrap_or_default()
    }
}

/// A closed gate before the commits of an open embedded database. Dropping it opens it.
///
/// Only transactions that write come to it, one after the other as clients commit them. Each waits there, and its client with it,
/// until it is [let through](HeldCommit::pass); meanwhile others begin, read and come to the gate as well. A client that would wait a
/// while before it tries again (`on_error`) waits there for as long as the test lets it. Versions stand still, but for one with each commit, and no
/// transaction becomes too old with time. Reads are ready at once, all of them, so that reads of one client that are under way together are
/// always made in the same order.
pub struct Gate {
    engine: Arc<Engine>,
}

impl Gate {
    pub(crate) fn of(engine: Arc<Engine>) -> Gate {
        CLOSED.fetch_add(1, Ordering::Relaxed);
        engine.gate().close();
        engine.hold_versions(true);
        Gate { engine }
    }

    /// The commits that have come since the last call, in order.
    #[must_use]
    pub fn arrived(&self) -> Vec<HeldCommit> {
        let held = |request| HeldCommit { request, engine: Arc::clone(&self.engine) };
        self.engine.gate().take(|waiting| &mut waiting.commits).into_iter().map(held).collect()
    }

    /// The clients of this process that have come since the last call and wait before they try again.
    #[must_use]
    pub fn backoffs(&self) -> Vec<HeldBackoff> {
        self.engine.gate().take(|waiting| &mut waiting.backoffs)
    }

    /// Lets versions jump ahead, as the recovery of a cluster does. Transactions that have begun are too old
    /// (1007) after more than 5,000,000.
    pub fn advance(&self, versions: u64) {
        self.engine.advance(i64::try_from(versions).unwrap_or(i64::MAX));
        // An empty commit makes the jump durable. Nothing is on its way to the disk after it, so the next read version is of after
        // the jump.
        let (sender, receiver) = mpsc::channel();
        self.engine.admit(CommitRequest {
            read_version: i64::MAX,
            reads: Vec::new(),
            report_conflicts: false,
            writes: Vec::new(),
            mutations: Vec::new(),
            durability: Durability::Flushed,
            fault: Some(Fault::None),
            promise: CommitPromise::new(move |_| drop(sender)),
        });
        // Ends with the sender.
        let _ = receiver.recv() as Result<(), _>;
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        CLOSED.fetch_sub(1, Ordering::Relaxed);
        self.engine.hold_versions(false);
        for request in self.engine.gate().open().commits {
            self.engine.admit(request);
        }
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gate")
    }
}

/// A client that waits at a [`Gate`] before it tries again. It goes on when this is dropped.
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

/// A commit that waits at a [`Gate`]. Dropping it loses it on its way: its client is told that the outcome is unknown (1021).
pub struct HeldCommit {
    request: CommitRequest,
    engine: Arc<Engine>,
}

impl HeldCommit {
    /// The version that its transaction reads at.
    #[must_use]
    pub fn read_version(&self) -> i64 {
        self.request.read_version
    }

    /// Adds a record to what it writes, with the commit's versionstamp in place of the ten bytes at `offset` of the key: the record is
    /// there exactly if the transaction commits.
    ///
    /// # Panics
    /// If the key has no ten bytes at `offset`.
    pub fn add_stamped_key(&mut self, key: Vec<u8>, offset: usize, value: Vec<u8>) {
        assert!(offset + crate::engine::mutation::STAMP_LEN <= key.len(), "a stamp has ten bytes");
        self.request.mutations.push(Mutation::StampedKey { key, offset, value });
    }
    /// Tells its client that time has run out (1031), as after the timeout option's time. It is on its way all the same.
    pub fn time_out(&mut self) {
        let client = std::mem::replace(&mut self.request.promise, CommitPromise::new(drop));
        client.complete(Err(Code::TRANSACTION_TIMED_OUT.into()));
    }

    /// Lets it through to meet this fault, and waits for its end: the version of its commit, or the error. Both are what its client
    /// is told.
    pub fn pass(mut self, fault: Fault) -> Result<i64, Code> {
        let (sender, receiver) = mpsc::channel();
        let client = self.request.promise;
        self.request.promise = CommitPromise::new(move |result| {
            let told = result.as_ref().map(|committed| committed.version).map_err(|failure| failure.code);
            client.complete(result);
            // Nobody is left to hear it if the test has ended.
            let _ = sender.send(told);
        });
        self.request.fault = Some(fault);
        self.engine.admit(self.request);
        receiver.recv().unwrap_or(Err(Code::COMMIT_UNKNOWN_RESULT))
    }
}

impl std::fmt::Debug for HeldCommit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HeldCommit(read at {})", self.read_version())
    }
}
