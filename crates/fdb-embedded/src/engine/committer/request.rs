//! A commit request, and the promise that receives its result.

use crate::engine::faults::Fault;
use crate::engine::mutation::{Mutation, Stamp};
use crate::engine::storage::Durability;
use crate::error::Code;
use crate::range_set::KeyRange;

/// A commit that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The commit version.
    pub version: i64,
    /// The order among the commits of this version.
    pub order: u16,
}

impl Committed {
    /// The versionstamp of the commit.
    #[must_use]
    pub fn stamp(self) -> Stamp {
        Stamp::new(self.version, self.order)
    }
}

/// A commit that did not happen, or whose outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitFailure {
    /// The error.
    pub code: Code,
    /// The read ranges that were written since, if `code` is `NOT_COMMITTED`.
    pub conflicting: Vec<KeyRange>,
}

impl From<Code> for CommitFailure {
    fn from(code: Code) -> Self {
        CommitFailure { code, conflicting: Vec::new() }
    }
}

/// The result of a commit that the engine had not started when it ended. It did not happen and can
/// be retried.
pub(in crate::engine) const NOT_STARTED: Code = Code::TRANSACTION_TOO_OLD;

/// The result of a commit.
pub type CommitResult = Result<Committed, CommitFailure>;

/// The callback for a commit's result. If it is dropped without a result, the client gets
/// `COMMIT_UNKNOWN_RESULT`. So no client waits forever, even if the committer panics.
pub struct CommitPromise(Option<Box<dyn FnOnce(CommitResult) + Send>>);

impl CommitPromise {
    /// `callback` is called once: on the committer's thread, or on the caller's if the engine
    /// accepts no commits.
    pub fn new(callback: impl FnOnce(CommitResult) + Send + 'static) -> CommitPromise {
        CommitPromise(Some(Box::new(callback)))
    }

    /// Passes on the result.
    pub(crate) fn complete(mut self, result: CommitResult) {
        if let Some(callback) = self.0.take() {
            callback(result);
        }
    }
}

impl Drop for CommitPromise {
    fn drop(&mut self) {
        if let Some(callback) = self.0.take() {
            callback(Err(Code::COMMIT_UNKNOWN_RESULT.into()));
        }
    }
}

/// A transaction to commit.
pub struct CommitRequest {
    /// The commit conflicts with writes to `reads` after this version.
    pub read_version: i64,
    /// The ranges that it read: disjoint, in key order.
    pub reads: Vec<KeyRange>,
    /// Report all conflicting reads, not only that there is one.
    pub report_conflicts: bool,
    /// The ranges that it writes. The final keys of stamped mutations are added on commit.
    pub writes: Vec<KeyRange>,
    /// Its changes, in order.
    pub mutations: Vec<Mutation>,
    /// The events that the commit must wait for.
    pub durability: Durability,
    /// The fault to inject, if a test chose one. Otherwise the installed plan decides.
    pub fault: Option<Fault>,
    /// Receives the result.
    pub promise: CommitPromise,
}

impl CommitRequest {
    /// True if it does not wait for a flush.
    pub(super) fn is_asynchronous(&self) -> bool {
        self.durability == Durability::Asynchronous
    }

    /// Bytes of keys and values, including conflict ranges.
    pub(super) fn len(&self) -> usize {
        let ranges = self.reads.iter().chain(&self.writes);
        let ranges: usize = ranges.map(|(begin, end)| begin.len() + end.len()).sum();
        ranges + self.mutations.iter().map(Mutation::payload_len).sum::<usize>()
    }
}
