//! The consumer's side of a lease. Each consumer that a fetch was for has a [`Slice`] of the lease's items. Its
//! dispatcher acknowledges them by a [`LeaseHandle`], through a buffer that all handles of the lease share.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use foundationdb::{FdbError, Transaction};
use kvqueue_queue::{Item, ItemOutcome};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::cancelled::{CallGuard, CancelledItems};
use crate::{base::answer::answer, consumer::heartbeat::Heartbeat, handlers::ProgressNews};

/// A consumer's part of a lease.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) items: Vec<Item>,
    pub(crate) handle: LeaseHandle,
    /// Resolves when all items are acknowledged or the keeper has ended; to an error if the keeper
    /// panicked.
    pub(crate) acknowledged: oneshot::Receiver<()>,
}

impl Slice {
    /// Returns the items to their places in the queue. The receiver resolves when they are there.
    pub(crate) fn release(self) -> oneshot::Receiver<()> {
        (0..self.items.len()).for_each(|index| self.handle.acknowledge(index, ItemOutcome::Release));
        self.acknowledged
    }
}

/// By which a dispatcher acknowledges the items of its slice. When the last handle of a lease is
/// dropped, no more outcomes can come, and the keeper acknowledges at once.
#[derive(Debug)]
pub(crate) struct LeaseHandle {
    /// The index in the lease of the slice's first item.
    pub(super) first: usize,
    /// Items of the slice without an outcome.
    pub(super) remaining: AtomicUsize,
    pub(super) slices: Arc<Slices>,
    /// The keeper's sign of life, dropped when the keeper ends.
    pub(crate) heartbeat: Weak<Heartbeat>,
    pub(super) acks: Arc<AckBuffer>,
    pub(super) requests: mpsc::UnboundedSender<KeeperRequest>,
    /// Cancelled when the lease is lost, and when the shutdown timeout is over.
    pub(crate) cancelled: CancellationToken,
    pub(super) cancelled_items: Arc<CancelledItems>,
    /// What handlers report about the items of the lease.
    pub(crate) progress: Arc<ProgressNews>,
}

/// A dispatcher's request to the keeper.
#[derive(Debug)]
pub(super) enum KeeperRequest {
    /// A transaction for a handler to write into.
    Begin(oneshot::Sender<Transaction>),
    Commit(CommitRequest),
    /// The consumer does not wait for these items, by indexes in the lease. Their outcomes come later.
    Leave(Range<usize>),
    /// Items of the lease were cancelled.
    LookForCancelled,
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
    /// It has not, because one of its items was cancelled.
    Cancelled,
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

    /// Whether an item of the slice was cancelled, by its index in it. Its outcome is passed over.
    pub(crate) fn is_cancelled(&self, index: usize) -> bool {
        self.cancelled_items.contains(self.first + index)
    }

    /// Whether one of these items was cancelled.
    pub(crate) fn has_cancelled(&self, items: &Range<usize>) -> bool {
        self.cancelled_items.first(self.first + items.start..self.first + items.end).is_some()
    }

    /// The parts of a call that are left without cancelled items, which get an outcome here.
    pub(crate) fn open_parts(&self, items: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let (mut whole, mut parts) = (None, Vec::new());
        if !self.has_cancelled(&items) {
            whole = Some(items);
        } else {
            for index in items {
                match parts.last_mut() {
                    _ if self.is_cancelled(index) => self.acknowledge(index, ItemOutcome::Release),
                    Some(Range { end, .. }) if *end == index => *end += 1,
                    _ => parts.push(index..index + 1),
                }
            }
        }
        whole.into_iter().chain(parts)
    }

    /// A call of a handler begins with these items. The token is cancelled when the lease is lost, at the end of the shutdown timeout, and
    /// when one of the items is cancelled.
    pub(crate) fn begin_call(&self, items: &Range<usize>) -> (CancellationToken, CallGuard) {
        let token = self.cancelled.child_token();
        let guard = self.cancelled_items.begin(self.first + items.start..self.first + items.end, &token);
        (token, guard)
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

    /// Takes an item that has no outcome out of the slice, by its index in the slice. The handle of a slice of that item alone, and
    /// its [`Slice::acknowledged`].
    pub(crate) fn lend(&self, index: usize) -> (Self, oneshot::Receiver<()>) {
        let first = self.first + index;
        let acknowledged = self.slices.lend(first);
        self.remaining.fetch_sub(1, Ordering::Relaxed);
        let handle = Self {
            first,
            remaining: AtomicUsize::new(1),
            slices: self.slices.clone(),
            heartbeat: self.heartbeat.clone(),
            acks: self.acks.clone(),
            requests: self.requests.clone(),
            cancelled: self.cancelled.clone(),
            cancelled_items: self.cancelled_items.clone(),
            progress: self.progress.clone(),
        };
        (handle, acknowledged)
    }

    /// A transaction for a handler to write into.
    pub(crate) async fn begin(&self) -> Result<Transaction, LeaseLost> {
        let (reply, begun) = oneshot::channel();
        self.requests.send(KeeperRequest::Begin(reply)).map_err(|_| LeaseLost)?;
        answer(begun, self.requests.closed()).await.ok_or(LeaseLost)
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
        answer(committed, self.requests.closed()).await.ok_or(LeaseLost)
    }
}

/// Outcomes that are not acknowledged yet, by the items' indexes in the lease.
///
/// Dispatchers and keeper are on different threads, and waking a thread costs more than handling a
/// small item. So only the first outcome wakes the keeper, and the one that completes a slice. The
/// keeper then takes all outcomes together.
#[derive(Debug, Default)]
pub(super) struct AckBuffer {
    pending: Mutex<PendingOutcomes>,
    /// There are outcomes, or a slice is complete.
    pub(super) changed: Notify,
}

#[derive(Debug, Default)]
struct PendingOutcomes {
    outcomes: Vec<(usize, ItemOutcome)>,
    slice_complete: bool,
}

/// How soon the buffer has to be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    Nothing,
    Outcomes,
    /// The last outcome of a slice is there: its consumer waits for the acknowledgement.
    CompleteSlice,
}

impl AckBuffer {
    fn lock(&self) -> MutexGuard<'_, PendingOutcomes> {
        self.pending.lock().expect("nothing panics while it holds the lock")
    }

    /// Adds an outcome. `slice_complete` if it is the last one of its slice.
    pub(super) fn push(&self, index: usize, outcome: ItemOutcome, slice_complete: bool) {
        let mut pending = self.lock();
        pending.outcomes.push((index, outcome));
        let is_news = pending.outcomes.len() == 1 || (slice_complete && !pending.slice_complete);
        pending.slice_complete |= slice_complete;
        if is_news {
            self.changed.notify_one();
        }
    }

    pub(super) fn pending(&self) -> Pending {
        let pending = self.lock();
        match (pending.outcomes.is_empty(), pending.slice_complete) {
            (true, _) => Pending::Nothing,
            (false, false) => Pending::Outcomes,
            (false, true) => Pending::CompleteSlice,
        }
    }

    /// Removes all outcomes.
    pub(super) fn take(&self) -> Vec<(usize, ItemOutcome)> {
        std::mem::take(&mut *self.lock()).outcomes
    }
}

/// Who waits for which acknowledgements. The keeper reports them, and handles make further slices.
#[derive(Debug)]
pub(super) struct Slices(Mutex<Record>);

#[derive(Debug)]
struct Record {
    /// In the order of the lease's items.
    parts: Vec<Part>,
    /// Items without an acknowledgement that are slices of their own, by their indexes in the lease.
    lent: BTreeMap<usize, oneshot::Sender<()>>,
    /// Items without an acknowledgement for which their consumer does not wait.
    left: BTreeSet<usize>,
    /// The keeper has ended.
    closed: bool,
}

#[derive(Debug)]
struct Part {
    /// The index in the lease after the slice's last item.
    end: usize,
    /// Items without an acknowledgement that are not lent.
    open: usize,
    acknowledged: Option<oneshot::Sender<()>>,
}

impl Slices {
    /// One slice for each range. The ranges are in order and cover all items of the lease. The
    /// receivers belong to [`Slice::acknowledged`].
    pub(super) fn new(ranges: &[Range<usize>]) -> (Self, Vec<oneshot::Receiver<()>>) {
        let parts = ranges.iter().map(|range| {
            let (sender, acknowledged) = oneshot::channel();
            (Part { end: range.end, open: range.len(), acknowledged: Some(sender) }, acknowledged)
        });
        let (parts, receivers) = parts.unzip();
        let (lent, left) = (BTreeMap::new(), BTreeSet::new());
        (Self(Mutex::new(Record { parts, lent, left, closed: false })), receivers)
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        self.0.lock().expect("nothing panics while it holds the lock")
    }

    /// These items are acknowledged.
    pub(super) fn acknowledged(&self, items: impl IntoIterator<Item = usize>) {
        let mut record = self.lock();
        for index in items {
            if !record.left.remove(&index) {
                record.close(index);
            }
        }
    }

    /// The consumer of these items does not wait for them any more.
    pub(super) fn leave(&self, items: Range<usize>) {
        let mut record = self.lock();
        for index in items {
            if record.left.insert(index) {
                record.close(index);
            }
        }
    }

    /// Another consumer waits for this item, which has no outcome.
    fn lend(&self, index: usize) -> oneshot::Receiver<()> {
        let (sender, acknowledged) = oneshot::channel();
        let mut record = self.lock();
        if record.closed {
            notify(sender);
        } else {
            record.close(index);
            record.lent.insert(index, sender);
        }
        acknowledged
    }

    /// The keeper ends.
    pub(super) fn close_all(&self) {
        let mut record = self.lock();
        record.closed = true;
        record.parts.iter_mut().filter_map(|part| part.acknowledged.take()).for_each(notify);
        std::mem::take(&mut record.lent).into_values().for_each(notify);
    }
}

impl Record {
    fn close(&mut self, index: usize) {
        if let Some(acknowledged) = self.lent.remove(&index) {
            return notify(acknowledged);
        }
        let at = self.parts.partition_point(|part| part.end <= index);
        let Some(part) = self.parts.get_mut(at) else { return };
        part.open = part.open.saturating_sub(1);
        if part.open == 0
            && let Some(acknowledged) = part.acknowledged.take()
        {
            notify(acknowledged);
        }
    }
}

fn notify(acknowledged: oneshot::Sender<()>) {
    // A consumer that has ended does not wait.
    let _ = acknowledged.send(());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slice_is_notified_of_the_acknowledgement_of_its_last_item() {
        let (slices, mut receivers) = Slices::new(&[0..2, 2..3]);
        slices.acknowledged([1, 2]);
        assert!(receivers[0].try_recv().is_err());
        assert!(receivers[1].try_recv().is_ok());
        slices.acknowledged([0]);
        assert!(receivers[0].try_recv().is_ok());
    }

    #[test]
    fn a_released_item_counts_once_toward_its_slice() {
        let (slices, mut receivers) = Slices::new(std::slice::from_ref(&(0..3)));
        slices.leave(0..1);
        slices.acknowledged([0, 1]);
        assert!(receivers[0].try_recv().is_err());
        slices.leave(2..3);
        assert!(receivers[0].try_recv().is_ok());
    }

    #[test]
    fn a_lent_item_is_waited_for_by_the_consumer_that_has_it() {
        let (slices, mut receivers) = Slices::new(&[0..1, 1..4]);
        let mut lent = [slices.lend(2), slices.lend(3)];
        slices.acknowledged([3]);
        assert!(
            lent[1].try_recv().is_ok() && lent[0].try_recv().is_err() && receivers[1].try_recv().is_err()
        );
        slices.acknowledged([1]);
        assert!(receivers[1].try_recv().is_ok() && lent[0].try_recv().is_err());
        slices.leave(2..3);
        assert!(lent[0].try_recv().is_ok() && receivers[0].try_recv().is_err());
    }

    #[test]
    fn all_slices_are_notified_when_the_keeper_ends() {
        let (slices, mut receivers) = Slices::new(std::slice::from_ref(&(0..9)));
        let mut before = slices.lend(1);
        slices.close_all();
        let mut after = slices.lend(2);
        assert!([&mut receivers[0], &mut before, &mut after].into_iter().all(|it| it.try_recv().is_ok()));
    }
}
