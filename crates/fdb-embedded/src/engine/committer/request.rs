//! A transaction that wants to commit, and the answer to it.

use crate::engine::faults::Fault;
use crate::engine::mutation::{Mutation, Stamp};
use crate::engine::storage::Durability;
use crate::error::Code;
use crate::range_set::KeyRange;

/// A commit that took place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Its version.
    pub version: i64,
    /// Its place among the transactions of that version.
    pub order: u16,
}

impl Committed {
    /// The versionstamp of the commit.
    #[must_use]
    pub fn stamp(self) -> Stamp {
        Stamp::new(self.version, self.order)
    }
}

/// A commit that did not, or may not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitFailure {
    /// Why.
    pub code: Code,
    /// The read ranges that were written by others since, when `code` is `NOT_COMMITTED`.
    pub conflicting: Vec<KeyRange>,
}

impl From<Code> for CommitFailure {
    fn from(code: Code) -> Self {
        CommitFailure { code, conflicting: Vec::new() }
    }
}

/// The answer to a commit.
pub type CommitResult = Result<Committed, CommitFailure>;

/// The callback that gets the answer. If it is dropped unanswered, the client gets
/// `COMMIT_UNKNOWN_RESULT`: no client waits for ever, even if the committer dies.
pub struct CommitPromise(Option<Box<dyn FnOnce(CommitResult) + Send>>);

impl CommitPromise {
    /// `waiting` is called once: on the committer's thread, or on the caller's thread when the engine takes no more commits.
    pub fn new(waiting: impl FnOnce(CommitResult) + Send + 'static) -> CommitPromise {
        CommitPromise(Some(Box::new(waiting)))
    }

    /// Gives the answer.
    pub(crate) fn complete(mut self, result: CommitResult) {
        if let Some(waiting) = self.0.take() {
            waiting(result);
        }
    }
}

impl Drop for CommitPromise {
    fn drop(&mut self) {
        if let Some(waiting) = self.0.take() {
            waiting(Err(Code::COMMIT_UNKNOWN_RESULT.into()));
        }
    }
}

/// A transaction that wants to commit.
pub struct CommitRequest {
    /// Writes after this version to what it read make it conflict.
    pub read_version: i64,
    /// What it read: disjoint, in key order.
    pub reads: Vec<KeyRange>,
    /// Say which of the reads conflict, not only that one does.
    pub report_conflicts: bool,
    /// What it writes, as others' reads see it; the final keys of stamped mutations are added on commit.
    pub writes: Vec<KeyRange>,
    /// Its changes in order.
    pub mutations: Vec<Mutation>,
    /// What it waits for before it is answered, at least.
    pub durability: Durability,
    /// What is to happen to it, if a test has decided that; else the installed plan decides.
    pub fault: Option<Fault>,
    /// Gets the outcome.
    pub promise: CommitPromise,
}

impl CommitRequest {
    /// Does it not wait for a flush?
    pub(super) fn is_asynchronous(&self) -> bool {
        self.durability == Durability::Asynchronous
    }

    /// Bytes of keys and values, those of conflict ranges included.
    pub(super) fn len(&self) -> usize {
        let ranges = self.reads.iter().chain(&self.writes);
        let ranges: usize = ranges.map(|(begin, end)| begin.len() + end.len()).sum();
        ranges + self.mutations.iter().map(Mutation::payload_len).sum::<usize>()
    }
}
