//! The dispatcher's end of a lease: says what becomes of items, and asks for transactions.

use std::sync::{Arc, Mutex, MutexGuard};

use foundationdb::{FdbError, Transaction};
use kvqueue_queue::Settlement;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// What becomes of items, from the dispatcher to the holder. They are on different threads, and waking one from the other costs more
/// than handling a small item: so the holder is woken by the first only, and fetches all when it is time to settle.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    said: Mutex<Vec<(usize, Settlement)>>,
    /// Something lies in it, for the first time since it was emptied.
    pub(super) first: Notify,
}

/// What a dispatcher asks of the holder.
#[derive(Debug)]
pub(super) enum Asked {
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

/// The dispatcher's end. Dropped, it tells the holder that nothing more will be said, so that it settles at once.
#[derive(Debug)]
pub(crate) struct Holding {
    pub(super) outbox: Arc<Outbox>,
    pub(super) ask: mpsc::UnboundedSender<Asked>,
    /// Cancelled when the lease is lost, or when the grace of a stop is over.
    pub(crate) cancelled: CancellationToken,
}

/// The lease is lost, or its holder is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost;

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Vec<(usize, Settlement)>> {
        self.said.lock().expect("nothing panics while it holds the lock")
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Empties it.
    pub(super) fn take(&self) -> Vec<(usize, Settlement)> {
        std::mem::take(&mut *self.lock())
    }
}

impl Holding {
    /// Whether the lease is held no longer.
    pub(crate) fn is_lost(&self) -> bool {
        self.ask.is_closed()
    }

    /// Says what becomes of an item. It is settled soon, together with others; unless the lease is lost.
    pub(crate) fn settle(&self, index: usize, settlement: Settlement) {
        let mut said = self.outbox.lock();
        said.push((index, settlement));
        if said.len() == 1 {
            self.outbox.first.notify_one();
        }
    }

    /// A transaction for a handler to write into.
    pub(crate) async fn begin(&self) -> Result<Transaction, Lost> {
        let (answer, begun) = oneshot::channel();
        self.ask.send(Asked::Begin(answer)).map_err(|_| Lost)?;
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
        self.ask.send(Asked::Commit(commit)).map_err(|_| Lost)?;
        verdict.await.map_err(|_| Lost)
    }
}
