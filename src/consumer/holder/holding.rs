//! The dispatcher's end of a lease: says what becomes of items, and asks for transactions.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use foundationdb::{FdbError, Transaction};
use kvqueue_queue::ItemOutcome as Settlement;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// What becomes of items, from the dispatchers to the holder. They are on different threads, and waking one from the other costs more
/// than handling a small item: so the holder is woken by the first only, and when the first slice is done, and fetches all when it is
/// time to settle.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    said: Mutex<Said>,
    /// There is something to settle, or more reason to do so soon.
    pub(super) news: Notify,
}

#[derive(Debug, Default)]
struct Said {
    settlements: Vec<(usize, Settlement)>,
    /// Of a whole slice all is said.
    slice_done: bool,
}

/// What lies in an outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// Nothing.
    Nothing,
    /// What becomes of items.
    Some,
    /// The same, and a consumer waits for it that has nothing else to say.
    Slice,
}

/// What a dispatcher asks of the holder.
#[derive(Debug)]
pub(super) enum Asked {
    /// A handler wants a transaction.
    Begin(oneshot::Sender<Transaction>),
    /// A handler is done with its transaction.
    Commit(Commit),
    /// The consumer goes on without these items, by their indexes in the lease. Their outcomes follow later.
    Leave(Range<usize>),
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

/// The dispatcher's end, for a slice of the lease. With the last of them dropped nothing more will be said, and the holder settles at once.
#[derive(Debug)]
pub(crate) struct Holding {
    /// The index in the lease of the first item of the slice.
    pub(super) first: usize,
    /// Items of the slice of which nothing was said.
    pub(super) unsaid: AtomicUsize,
    pub(super) outbox: Arc<Outbox>,
    pub(super) ask: mpsc::UnboundedSender<Asked>,
    /// Cancelled when the lease is lost, or when the shutdown timeout is over.
    pub(crate) cancelled: CancellationToken,
}

/// The lease is lost, or its holder is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost;

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Said> {
        self.said.lock().expect("nothing panics while it holds the lock")
    }

    fn say(&self, index: usize, settlement: Settlement, slice_done: bool) {
        let mut said = self.lock();
        said.settlements.push((index, settlement));
        let is_news = said.settlements.len() == 1 || (slice_done && !said.slice_done);
        said.slice_done |= slice_done;
        if is_news {
            self.news.notify_one();
        }
    }

    /// Whether there is something to settle.
    pub(super) fn waiting(&self) -> Waiting {
        let said = self.lock();
        match (said.settlements.is_empty(), said.slice_done) {
            (true, _) => Waiting::Nothing,
            (false, false) => Waiting::Some,
            (false, true) => Waiting::Slice,
        }
    }

    /// Empties it.
    pub(super) fn take(&self) -> Vec<(usize, Settlement)> {
        std::mem::take(&mut *self.lock()).settlements
    }
}

impl Holding {
    /// Whether the lease is held no longer.
    pub(crate) fn is_lost(&self) -> bool {
        self.ask.is_closed()
    }

    /// Says what becomes of an item, by its index in the slice. It is settled soon, together with others; unless the lease is lost.
    pub(crate) fn settle(&self, index: usize, settlement: Settlement) {
        let slice_done = self.unsaid.fetch_sub(1, Ordering::Relaxed) == 1;
        self.outbox.say(self.first + index, settlement, slice_done);
    }

    /// Has the consumer go on without these items, by indexes in the slice. The lease is kept for them until it is said what becomes of
    /// each.
    pub(crate) fn leave(&self, items: Range<usize>) {
        // Without a lease there is nothing to keep.
        let _ = self.ask.send(Asked::Leave(self.first + items.start..self.first + items.end));
    }

    /// A transaction for a handler to write into.
    pub(crate) async fn begin(&self) -> Result<Transaction, Lost> {
        let (answer, begun) = oneshot::channel();
        self.ask.send(Asked::Begin(answer)).map_err(|_| Lost)?;
        begun.await.map_err(|_| Lost)
    }

    /// Commits what a handler has written together with these settlements, by indexes in the slice, or neither.
    pub(crate) async fn commit(
        &self,
        transaction: Transaction,
        mut settlements: Vec<(usize, Settlement)>,
    ) -> Result<Verdict, Lost> {
        settlements.iter_mut().for_each(|(index, _)| *index += self.first);
        let (answer, verdict) = oneshot::channel();
        let commit = Commit { transaction, settlements, answer };
        self.ask.send(Asked::Commit(commit)).map_err(|_| Lost)?;
        verdict.await.map_err(|_| Lost)
    }
}
