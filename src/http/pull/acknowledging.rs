//! The acknowledgements of one queue's leases. Acknowledgements that arrive during a transaction share the next one.

use std::{collections::HashSet, sync::Arc};

use kvqueue_queue::{ItemId, ItemOutcome, Lease, LeaseError, acknowledge_together};
use tokio::sync::{
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    oneshot,
};

use super::kept::Leases;
use crate::http::{
    backend::{Backend, POLICY},
    error::ApiError,
    room::Place,
};

/// The most leases of a transaction.
const MOST: usize = 64;

/// What became of an acknowledgement.
#[derive(Debug, Default)]
pub(super) struct Effect {
    /// How many items were acknowledged.
    pub(super) acknowledged: usize,
    /// How many of the lease are left.
    pub(super) open: usize,
    /// The items of the lease that were cancelled. Their outcomes were passed over.
    pub(super) cancelled: Vec<ItemId>,
}

pub(super) type Written = Result<Effect, ApiError>;

/// The items of a lease that are known to be cancelled.
pub(super) fn cancelled(lease: &Lease) -> Vec<ItemId> {
    if !lease.has_cancelled() {
        return Vec::new();
    }
    let items = lease.items().iter().enumerate();
    items.filter(|(index, _)| lease.is_cancelled(*index)).map(|(_, item)| item.id.clone()).collect()
}

/// A worker acknowledges items of a lease.
pub(super) struct Change {
    pub(super) lease: Lease,
    /// By the indexes of the items.
    pub(super) outcomes: Vec<(usize, ItemOutcome)>,
    pub(super) answer: oneshot::Sender<Written>,
    /// The memory of the request's body, which the outcomes are from.
    pub(super) held: Option<Arc<Place>>,
}

/// A task that writes acknowledgements, whether or not their workers wait for the answers. It ends when nobody can send any more.
pub(super) struct Acknowledging {
    backend: Arc<Backend>,
    leases: Arc<Leases>,
    queue: String,
    /// Bounded by the memory for bodies.
    changes: UnboundedReceiver<Change>,
}

impl Acknowledging {
    /// Returns the task for a queue, and the sender of its changes.
    pub(super) fn new(
        backend: &Arc<Backend>,
        leases: &Arc<Leases>,
        queue: &str,
    ) -> (Self, UnboundedSender<Change>) {
        let (sender, changes) = unbounded_channel();
        (Self { backend: backend.clone(), leases: leases.clone(), queue: queue.to_owned(), changes }, sender)
    }

    pub(super) async fn run(mut self) {
        let mut group = Vec::new();
        while self.changes.recv_many(&mut group, MOST).await > 0 {
            while !group.is_empty() {
                let first = group.drain(..without_repeats(&group)).collect();
                self.write(first).await;
            }
        }
    }

    async fn write(&self, group: Vec<Change>) {
        let (mut leases, mut answers) = (Vec::new(), Vec::new());
        for Change { lease, outcomes, answer, held } in group {
            answers.push((lease.open().count(), cancelled(&lease).len(), answer, held));
            leases.push((lease, outcomes));
        }
        let permit = self.leases.permit().await;
        let results = acknowledge_together(&self.backend.daemon.db, &POLICY, &mut leases).await;
        drop(permit);
        for (((lease, _), result), (before, cancelled_before, answer, _held)) in
            leases.into_iter().zip(results).zip(answers)
        {
            let (open, cancelled) = (lease.open().count(), cancelled(&lease));
            // A restored database may have more open items than before.
            let ended = before.saturating_sub(open);
            let acknowledged = ended.saturating_sub(cancelled.len() - cancelled_before);
            let written = match result.map_err(failure) {
                // Another call for the same items was first.
                Err(ApiError::Conflict { .. }) if self.leases.is_over(lease.id()) => Ok(Effect::default()),
                Err(ApiError::Conflict { .. }) => Err(over()),
                written => {
                    self.leases.keep(&self.queue, lease);
                    written.map(|()| Effect { acknowledged, open, cancelled })
                }
            };
            // Its worker may have gone.
            let _ = answer.send(written);
        }
    }
}

/// How many of the first changes are of different leases. After an unknown outcome, each change of
/// a transaction finds out by its lease whether it is written, which it could not if another one
/// had changed the same lease.
fn without_repeats(group: &[Change]) -> usize {
    let mut leases = HashSet::new();
    group.iter().take_while(|change| leases.insert(change.lease.id())).count()
}

pub(super) fn over() -> ApiError {
    ApiError::Conflict {
        code: "lease_lost",
        message: "this lease is over: all of its items were acknowledged, or it has expired".to_owned(),
        fix: "extend leases in time, or ask for a longer one; items that were not acknowledged are handled again",
    }
}

pub(super) fn failure(error: LeaseError) -> ApiError {
    match error {
        LeaseError::Lost => over(),
        LeaseError::Retry(error) => ApiError::of(&error),
        LeaseError::TooLarge { .. } => ApiError::TooLarge(error.to_string()),
        other => ApiError::Unavailable(other.to_string()),
    }
}
