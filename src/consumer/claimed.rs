//! Batches that a consumer has and no handler has begun.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
};

use kvqueue_queue::Item;
use tokio::sync::oneshot;

use super::{
    lease::Slice,
    sharing::{Lender, Remaining},
};
use crate::meters::QueueMeters;

/// The items of a fetch.
#[derive(Debug)]
pub(crate) enum Claimed {
    /// Items on a lease: if they are dropped, the lease runs out.
    Leased(Slice),
    /// Items that have left the queue.
    Taken(Batch),
}

impl Claimed {
    /// How many items there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Leased(slice) => slice.items.len(),
            Self::Taken(batch) => batch.items().len(),
        }
    }
}

/// Batches that no handler has begun. Leased items are released when this is dropped, so a consumer
/// that panics loses none, not even those of a reply that it has not read.
#[derive(Debug, Default)]
pub(crate) struct NotBegun(VecDeque<Claimed>);

impl NotBegun {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many items there are.
    pub(crate) fn items(&self) -> usize {
        self.0.iter().map(Claimed::len).sum()
    }

    /// Adds batches at the end.
    pub(crate) fn append(&mut self, mut batches: Self) {
        self.0.append(&mut batches.0);
    }

    /// The next batch, for a handler.
    pub(crate) fn begin_next(&mut self) -> Option<Claimed> {
        self.0.pop_front()
    }

    /// Releases the leased items, and removes all batches. The receivers resolve when the queue has
    /// the items again.
    pub(crate) fn release(&mut self) -> Vec<oneshot::Receiver<()>> {
        let leased = self.0.drain(..).filter_map(|batch| match batch {
            Claimed::Leased(slice) => Some(slice.release()),
            // It logs the loss of its items when it is dropped.
            Claimed::Taken(_) => None,
        });
        leased.collect()
    }
}

impl FromIterator<Claimed> for NotBegun {
    fn from_iter<I: IntoIterator<Item = Claimed>>(batches: I) -> Self {
        Self(batches.into_iter().collect())
    }
}

impl Drop for NotBegun {
    fn drop(&mut self) {
        drop(self.release());
    }
}

/// Items that have left the queue. With at-most-once delivery they exist nowhere else, so dropping a batch of which not everything
/// was begun is logged and counted as the loss it is.
#[derive(Debug)]
pub(crate) struct Batch {
    queue: Arc<str>,
    meters: Arc<QueueMeters>,
    items: Vec<Item>,
    remaining: Mutex<Remaining>,
}

impl Batch {
    pub(super) fn new(queue: Arc<str>, meters: Arc<QueueMeters>, items: Vec<Item>) -> Self {
        let remaining = Mutex::new(Remaining::new(items.len()));
        Self { queue, meters, items, remaining }
    }

    /// All of them, in queue order.
    pub(crate) fn items(&self) -> &[Item] {
        &self.items
    }
}

impl Lender for Batch {
    fn remaining(&self) -> MutexGuard<'_, Remaining> {
        self.remaining.lock().expect("nothing panics while it holds the lock")
    }

    fn lent(&self, index: usize) -> Claimed {
        let item = self.items[index].clone();
        Claimed::Taken(Self::new(self.queue.clone(), self.meters.clone(), vec![item]))
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let lost = &self.items[self.remaining().items()];
        if let [first, .., last] | [first @ last] = lost {
            self.meters.lost.inc_by(lost.len() as u64);
            tracing::error!(
                event = "items_lost",
                queue = %self.queue,
                items = lost.len(),
                first = %first.id,
                last = %last.id,
                "items lost; they were fetched and never handled"
            );
        }
    }
}
