//! A gate before the committer: a test decides when each commit continues, and with which fault.
//!
//! A test that runs all its clients on one thread, lets one commit pass at a time and advances
//! versions itself can repeat a run from its decisions.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use super::Fault;
use super::gate_queue::{CLOSED, HeldBackoff};
use crate::engine::mutation::Mutation;
use crate::engine::{CommitPromise, CommitRequest, Durability, Engine};
use crate::error::Code;

/// A closed gate before the commits of an open embedded database. Dropping it opens it.
///
/// Transactions that write arrive here in the order in which clients commit them. Each waits until
/// the test [lets it pass](HeldCommit::pass). Meanwhile other transactions can begin, read and
/// arrive too. A client's retry delay (`on_error`) also lasts until the test ends it. Versions
/// stand still except for one with each commit, and no transaction becomes too old with time. Reads
/// complete at once, so that concurrent reads of one client always complete in the same order.
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

    /// The commits that have arrived since the last call, in order.
    #[must_use]
    pub fn arrived(&self) -> Vec<HeldCommit> {
        let held = |request| HeldCommit { request, engine: Arc::clone(&self.engine) };
        self.engine.gate().take(|waiting| &mut waiting.commits).into_iter().map(held).collect()
    }

    /// The retry delays that have arrived since the last call.
    #[must_use]
    pub fn backoffs(&self) -> Vec<HeldBackoff> {
        self.engine.gate().take(|waiting| &mut waiting.backoffs)
    }

    /// Advances versions, as the recovery of a cluster does. After more than 5,000,000,
    /// transactions that have begun are too old (1007).
    pub fn advance(&self, versions: u64) {
        self.engine.advance(i64::try_from(versions).unwrap_or(i64::MAX));
        // An empty commit makes the advance durable. After it no batch is in flight, so the next
        // read version is after the advance.
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
        // Returns when the sender is dropped.
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

/// A commit that is held at a [`Gate`]. Dropping it loses it: its client gets
/// `commit_unknown_result` (1021).
pub struct HeldCommit {
    request: CommitRequest,
    engine: Arc<Engine>,
}

impl HeldCommit {
    /// The read version of the transaction.
    #[must_use]
    pub fn read_version(&self) -> i64 {
        self.request.read_version
    }

    /// Adds a record to its mutations, with the commit's versionstamp at `offset` of the key. The
    /// record exists if and only if the transaction commits.
    ///
    /// # Panics
    /// If the key does not have ten bytes at `offset`.
    pub fn add_stamped_key(&mut self, key: Vec<u8>, offset: usize, value: Vec<u8>) {
        assert!(offset + crate::engine::mutation::STAMP_LEN <= key.len(), "a stamp has ten bytes");
        self.request.mutations.push(Mutation::StampedKey { key, offset, value });
    }
    /// Answers its client with `transaction_timed_out` (1031). The commit still continues.
    pub fn time_out(&mut self) {
        let client = std::mem::replace(&mut self.request.promise, CommitPromise::new(drop));
        client.complete(Err(Code::TRANSACTION_TIMED_OUT.into()));
    }

    /// Lets the commit pass with this fault, and waits for its result, which its client gets too.
    pub fn pass(mut self, fault: Fault) -> Result<i64, Code> {
        let (sender, receiver) = mpsc::channel();
        let client = self.request.promise;
        self.request.promise = CommitPromise::new(move |result| {
            let told = result.as_ref().map(|committed| committed.version).map_err(|failure| failure.code);
            client.complete(result);
            // The test may have ended.
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
