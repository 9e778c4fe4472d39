//! The dispatcher's side of a lease.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use foundationdb::{FdbError, Transaction};
use kvqueue_queue::ItemOutcome;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::ack_buffer::AckBuffer;

/// By which a dispatcher acknowledges the items of its slice. When the last handle of a lease is
/// dropped, no more outcomes can come, and the keeper acknowledges at once.
#[derive(Debug)]
pub(crate) struct LeaseHandle {
    /// The index in the lease of the slice's first item.
    pub(super) first: usize,
    /// Items of the slice without an outcome.
    pub(super) remaining: AtomicUsize,
    pub(super) acks: Arc<AckBuffer>,
    pub(super) requests: mpsc::UnboundedSender<KeeperRequest>,
    /// Cancelled when the lease is lost, and when the shutdown timeout is over.
    pub(crate) cancelled: CancellationToken,
}

/// What a dispatcher asks of the keeper.
#[derive(Debug)]
pub(super) enum KeeperRequest {
    /// A transaction for a handler to write into.
    Begin(oneshot::Sender<Transaction>),
    Commit(CommitRequest),
    /// The consumer does not wait for these items, by indexes in the lease. Their outcomes come later.
    Leave(Range<usize>),
}

/// A transaction that a handler has written into, and the outcomes to acknowledge in it.
#[derive(Debug)]
pub(super) struct CommitRequest {
    pub(super) transaction: Transaction,
    pub(super) outcomes: Vec<(usize, ItemOutcome)>,
    pub(super) reply: oneshot::Sender<CommitOutcome>,
}

#[derive(Debug)]
pub(crate) enum CommitOutcome {
    /// The transaction has committed, and its items are acknowledged.
    Committed,
    /// It has not, for a reason that passes: run the handler again in this transaction.
    Retry(Transaction, FdbError),
    /// The database refuses the transaction for good.
    Refused(FdbError),
}

/// The lease is lost, or its keeper has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseLost;

impl LeaseHandle {
    pub(crate) fn is_lost(&self) -> bool {
        self.requests.is_closed()
    }

    /// Acknowledges an item, by its index in the slice. The keeper writes the outcome soon, together
    /// with others, unless the lease is lost.
    pub(crate) fn acknowledge(&self, index: usize, outcome: ItemOutcome) {
        let slice_complete = self.remaining.fetch_sub(1, Ordering::Relaxed) == 1;
        self.acks.push(self.first + index, outcome, slice_complete);
    }

    /// Lets the consumer go on without these items, by indexes in the slice. The lease is extended
    /// until each has an outcome.
    pub(crate) fn leave(&self, items: Range<usize>) {
        // A keeper that has ended has no lease to extend.
        let _ = self.requests.send(KeeperRequest::Leave(self.first + items.start..self.first + items.end));
    }

    /// A transaction for a handler to write into.
    pub(crate) async fn begin(&self) -> Result<Transaction, LeaseLost> {
        let (reply, begun) = oneshot::channel();
        self.requests.send(KeeperRequest::Begin(reply)).map_err(|_| LeaseLost)?;
        begun.await.map_err(|_| LeaseLost)
    }

    /// Commits what a handler has written together with these outcomes, by indexes in the slice, or
    /// neither.
    pub(crate) async fn commit(
        &self,
        transaction: Transaction,
        mut outcomes: Vec<(usize, ItemOutcome)>,
    ) -> Result<CommitOutcome, LeaseLost> {
        outcomes.iter_mut().for_each(|(index, _)| *index += self.first);
        let (reply, committed) = oneshot::channel();
        let request = CommitRequest { transaction, outcomes, reply };
        self.requests.send(KeeperRequest::Commit(request)).map_err(|_| LeaseLost)?;
        committed.await.map_err(|_| LeaseLost)
    }
}
