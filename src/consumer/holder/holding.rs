//! The dispatcher's end of a lease: says what becomes of items, and asks for transactions.

use foundationdb::{FdbError, Transaction};
use kvqueue_queue::Settlement;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// What a dispatcher says to the holder.
#[derive(Debug)]
pub(super) enum Said {
    /// What becomes of an item.
    Settle(usize, Settlement),
    /// A handler wants a transaction.
    Begin(oneshot::Sender<Transaction>),
    /// A handler is done with its transaction.
    Commit(Commit),
}

/// A transaction that a handler has written into, and what is to be settled with it.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) transaction: Transaction,
    pub(super) settlements: Vec<(usize, Settlement)>,
    pub(super) answer: oneshot::Sender<Verdict>,
}

/// What came of a transaction.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It committed: the items are settled.
    Settled,
    /// It did not, for a reason that passes: the handler is to run again, in this one.
    Again(Transaction, FdbError),
    /// The database will not have it.
    Refused(FdbError),
}

/// The dispatcher's end. Dropped, it tells the holder that nothing more will be said.
#[derive(Debug)]
pub(crate) struct Holding {
    pub(super) say: mpsc::UnboundedSender<Said>,
    /// Cancelled when the lease is lost, or when the grace of a stop is over.
    pub(crate) cancelled: CancellationToken,
}

/// The lease is lost, or its holder is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost;

impl Holding {
    /// Whether the lease is held no longer.
    pub(crate) fn is_lost(&self) -> bool {
        self.say.is_closed()
    }

    /// Says what becomes of an item. It is settled soon, together with others; unless the lease is lost.
    pub(crate) fn settle(&self, index: usize, settlement: Settlement) {
        // A holder that hears nothing any more has said why.
        let _ = self.say.send(Said::Settle(index, settlement));
    }

    /// A transaction for a handler to write into.
    pub(crate) async fn begin(&self) -> Result<Transaction, Lost> {
        let (answer, begun) = oneshot::channel();
        self.say.send(Said::Begin(answer)).map_err(|_| Lost)?;
        begun.await.map_err(|_| Lost)
    }

    /// Commits what a handler has written together with these settlements, or neither.
    pub(crate) async fn commit(
        &self,
        transaction: Transaction,
        settlements: Vec<(usize, Settlement)>,
    ) -> Result<Verdict, Lost> {
        let (answer, verdict) = oneshot::channel();
        let commit = Commit { transaction, settlements, answer };
        self.say.send(Said::Commit(commit)).map_err(|_| Lost)?;
        verdict.await.map_err(|_| Lost)
    }
}
