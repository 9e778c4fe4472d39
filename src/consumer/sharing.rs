//! Items that a consumer has fetched and not begun, for idle consumers of its queue.
//!
//! A consumer hands its items to the handler one after the other. If a call takes long, the items behind it are *lent*: an
//! idle consumer of the same queue and process gets the next one, as a batch of its own. A leased item stays on its lease.
//! So items begin in the order in which they were fetched, and no slow item keeps others from an idle consumer.
//! `actors::fetcher` does it.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::{Duration, Instant},
};

use kvqueue_queue::Item;
use mutant::mutant;
use tokio::{sync::Notify, time::sleep_until};

use super::{
    claimed::Claimed,
    lease::{LeaseHandle, Slice},
};

/// A call that takes longer than this lends the items behind it. Compared with such a handler, the transactions of the idle
/// consumer cost little.
const LEND_AFTER: Duration = Duration::from_millis(10);

/// A batch whose dispatcher lends items.
pub(crate) trait Lender: Send + Sync {
    /// The items that it has left.
    fn remaining(&self) -> MutexGuard<'_, Remaining>;

    /// A batch of one of them, which was taken from [`remaining`](Self::remaining).
    fn lent(&self, index: usize) -> Claimed;
}

/// The batches of a queue's consumers that have items left. Dispatchers add and remove them, the fetcher lends their items.
#[derive(Default)]
pub(crate) struct Sharing {
    /// By their addresses.
    batches: Mutex<BTreeMap<usize, Weak<dyn Lender>>>,
    added: Notify,
}

impl Sharing {
    /// Lends items of this batch until the guard is dropped.
    pub(crate) fn add<B: Lender + 'static>(&self, batch: &Arc<B>) -> Lending<'_> {
        let address = Arc::as_ptr(batch).addr();
        let batch: Weak<B> = Arc::downgrade(batch);
        self.lock().insert(address, batch);
        self.added.notify_waiters();
        Lending { sharing: self, address }
    }

    /// Waits until there is an item to lend.
    pub(crate) async fn any(&self) {
        loop {
            // Before the question: a batch that is added after it is noticed.
            let added = self.added.notified();
            match self.due() {
                None => added.await,
                Some(due) if due <= Instant::now() => return,
                // Those of a batch that is added meanwhile are due later.
                Some(due) => sleep_until(due.into()).await,
            }
        }
    }

    /// Whether a batch has items left.
    pub(crate) fn has_items(&self) -> bool {
        self.due().is_some()
    }

    /// When the next item is to be lent.
    fn due(&self) -> Option<Instant> {
        self.batches().iter().filter_map(|batch| batch.remaining().due()).min()
    }

    /// The next item of the batch whose call has taken longest, if that is long.
    pub(crate) fn lend(&self) -> Option<Claimed> {
        let due = |batch: Arc<dyn Lender>| {
            let due = batch.remaining().due()?;
            Some((due, batch))
        };
        let (_, longest) = self.batches().into_iter().filter_map(due).min_by_key(|(due, _)| *due)?;
        let index = longest.remaining().lend(Instant::now())?;
        Some(longest.lent(index))
    }

    fn batches(&self) -> Vec<Arc<dyn Lender>> {
        self.lock().values().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Weak<dyn Lender>>> {
        self.batches.lock().expect("nothing panics while it holds the lock")
    }
}

/// A batch in [`Sharing`].
pub(crate) struct Lending<'a> {
    sharing: &'a Sharing,
    address: usize,
}

impl Drop for Lending<'_> {
    fn drop(&mut self) {
        self.sharing.lock().remove(&self.address);
    }
}

/// Items on a lease, as their dispatcher has them.
pub(crate) struct LeasedBatch {
    pub(crate) items: Vec<Item>,
    pub(crate) lease: Arc<LeaseHandle>,
    remaining: Mutex<Remaining>,
}

impl LeasedBatch {
    pub(crate) fn new(items: Vec<Item>, lease: LeaseHandle) -> Self {
        let remaining = Mutex::new(Remaining::new(items.len()));
        Self { items, lease: Arc::new(lease), remaining }
    }
}

impl Lender for LeasedBatch {
    fn remaining(&self) -> MutexGuard<'_, Remaining> {
        self.remaining.lock().expect("nothing panics while it holds the lock")
    }

    fn lent(&self, index: usize) -> Claimed {
        let (handle, acknowledged) = self.lease.lend(index);
        Claimed::Leased(Slice { items: vec![self.items[index].clone()], handle, acknowledged })
    }
}

/// Which items of a batch were neither begun nor lent. Pure.
#[derive(Clone, Debug)]
pub(crate) struct Remaining {
    items: Range<usize>,
    /// When the last call began.
    called: Instant,
}

impl Remaining {
    /// All of so many items.
    pub(crate) fn new(items: usize) -> Self {
        Self { items: 0..items, called: Instant::now() }
    }

    /// Their indexes.
    pub(crate) fn items(&self) -> Range<usize> {
        self.items.clone()
    }

    /// The next items, up to so many, for a call that begins now.
    pub(crate) fn begin(&mut self, most: usize) -> Option<Range<usize>> {
        self.called = Instant::now();
        Some(self.take(most)).filter(|items| !items.is_empty())
    }

    /// The next items, up to so many.
    pub(crate) fn take(&mut self, most: usize) -> Range<usize> {
        let taken = self.items.start..self.items.end.min(self.items.start.saturating_add(most));
        self.items.start = taken.end;
        taken
    }

    /// When an item may be lent.
    fn due(&self) -> Option<Instant> {
        (!self.items.is_empty() && !mutant("nothing-is-lent")).then(|| self.called + LEND_AFTER)
    }

    fn lend(&mut self, now: Instant) -> Option<usize> {
        self.due().filter(|due| *due <= now)?;
        if mutant("lent-item-stays") {
            return Some(self.items.start);
        }
        self.take(1).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_behind_a_slow_call_are_lent_in_order() {
        let mut batch = Remaining::new(4);
        assert_eq!(batch.begin(1), Some(0..1));
        let due = batch.due().unwrap();
        assert_eq!((due, batch.lend(batch.called)), (batch.called + LEND_AFTER, None));
        assert_eq!((batch.lend(due), batch.lend(due)), (Some(1), Some(2)));
        assert_eq!(batch.begin(1), Some(3..4));
        assert_eq!((batch.due(), batch.lend(due + LEND_AFTER), batch.begin(1)), (None, None, None));
    }

    #[test]
    fn a_call_that_begins_starts_the_time_again() {
        let mut batch = Remaining::new(3);
        batch.called -= LEND_AFTER;
        let first = batch.due().unwrap();
        batch.begin(1);
        assert!(batch.due().unwrap() >= first + LEND_AFTER);
    }

    #[test]
    fn each_item_is_begun_lent_or_left_once() {
        let mut batch = Remaining::new(9);
        let later = Instant::now() + Duration::from_secs(1_000);
        let mut seen: Vec<_> = batch.begin(2).unwrap().collect();
        seen.extend(batch.lend(later));
        seen.extend(batch.begin(2).unwrap());
        seen.extend(batch.lend(later));
        seen.extend(batch.take(usize::MAX));
        assert!(seen.into_iter().eq(0..9));
        assert!(batch.take(usize::MAX).is_empty() && batch.begin(1).is_none());
    }
}
