//! Resolution: decides which transactions of a batch commit.

use std::time::Duration;

use super::{CommitFailure, CommitPromise, CommitRequest, Committed, Committer};
use mutant::mutant;

use crate::engine::faults::Fault;
use crate::engine::mutation::Mutation;
use crate::engine::resolver::ConflictCheck;
use crate::engine::storage::Durability;
use crate::error::Code;

/// An accepted transaction. Its promise is completed when the batch is durable.
pub(super) struct Accepted {
    pub(super) committed: Committed,
    pub(super) unknown: bool,
    pub(super) promise: CommitPromise,
}

/// A batch after its resolution.
#[derive(Default)]
pub(super) struct ResolvedBatch {
    /// An injected fault makes the write fail.
    pub(super) fails: bool,
    /// An injected fault makes the flush fail: the batch is written, but its outcome is unknown.
    pub(super) flush_fails: bool,
    /// An injected fault delays the write.
    pub(super) delay: Duration,
    /// At least one commit waits for a flush.
    pub(super) is_flushed: bool,
    pub(super) mutations: Vec<Mutation>,
    /// The version from which later versions continue.
    pub(super) advance: Option<i64>,
    pub(super) accepted: Vec<Accepted>,
    pub(super) refused: Vec<(CommitFailure, CommitPromise)>,
}

impl Committer {
    /// Decides on each transaction in order, and stamps the mutations of transactions that commit.
    pub(super) fn resolve(&mut self, requests: Vec<CommitRequest>, version: i64) -> ResolvedBatch {
        let mut batch = ResolvedBatch::default();
        for request in requests {
            let fault = request.fault.unwrap_or_else(|| self.shared.faults.commit());
            let refusal = self.refusal(&request, fault).or_else(|| self.space_refusal(&request));
            if let Some(failure) = refusal {
                if mutant("refused-commits-are-written") {
                    let stamp = Committed { version, order: u16::MAX }.stamp();
                    batch.mutations.extend(request.mutations.into_iter().map(|it| it.stamped(stamp)));
                }
                batch.refused.push((failure, request.promise));
                continue;
            }
            batch.fails |= fault == Fault::DiskFailure;
            batch.flush_fails |= fault == Fault::FlushFailure;
            batch.is_flushed |= request.durability == Durability::Flushed;
            if let Fault::Slow(delay) = fault {
                batch.delay = batch.delay.max(delay);
            }
            let order = if mutant("one-order-for-a-batch") { 0 } else { batch.accepted.len() };
            let order = u16::try_from(order).expect("MAX_BATCH_TRANSACTIONS is below 65536");
            let committed = Committed { version, order };
            if !mutant("conflicts-of-a-batch-unseen") {
                self.resolver.add_writes(request.writes);
            }
            for mutation in request.mutations {
                let is_stamped_key = matches!(mutation, Mutation::StampedKey { .. });
                let mutation = mutation.stamped(committed.stamp());
                if is_stamped_key {
                    self.resolver.add_writes([mutation.write_range()]);
                }
                batch.advance = batch.advance.max(mutation.min_commit_version());
                batch.mutations.push(mutation);
            }
            let unknown = fault == Fault::UnknownCommitted;
            batch.accepted.push(Accepted { committed, unknown, promise: request.promise });
        }
        batch
    }

    fn refusal(&self, request: &CommitRequest, fault: Fault) -> Option<CommitFailure> {
        match fault {
            Fault::None
            | Fault::UnknownCommitted
            | Fault::Slow(_)
            | Fault::DiskFailure
            | Fault::FlushFailure => {}
            Fault::UnknownNotCommitted => return Some(Code::COMMIT_UNKNOWN_RESULT.into()),
            Fault::Conflict => return Some(Code::NOT_COMMITTED.into()),
            Fault::TooOld => return Some(Code::TRANSACTION_TOO_OLD.into()),
        }
        match self.resolver.check(request.read_version, &request.reads, request.report_conflicts) {
            ConflictCheck::Commit => None,
            ConflictCheck::TooOld => Some(Code::TRANSACTION_TOO_OLD.into()),
            ConflictCheck::Conflict(indices) => {
                let conflicting = indices.iter().map(|i| request.reads[*i].clone()).collect();
                Some(CommitFailure { code: Code::NOT_COMMITTED, conflicting })
            }
        }
    }

    /// Refuses a commit for lack of disk space. If a row cannot be read, applying the batch will
    /// report that.
    fn space_refusal(&mut self, request: &CommitRequest) -> Option<CommitFailure> {
        let admitted = self.admission.admits(&self.storage, &request.mutations);
        (!admitted.unwrap_or(true)).then(|| Code::COMMIT_PROXY_MEMORY.into())
    }
}
