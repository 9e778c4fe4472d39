//! Batches that a consumer has and no handler has begun.

use std::{collections::VecDeque, sync::Arc};

use kvqueue_queue::Item;
use tokio::sync::oneshot;

use super::{lease::Slice, runtime::QueueRuntime};
use crate::metrics::QueueMeters;

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
    begun: usize,
}

impl Batch {
    pub(crate) fn new(runtime: &QueueRuntime, items: Vec<Item>) -> Self {
        Self { queue: runtime.name.clone(), meters: runtime.meters.clone(), items, begun: 0 }
    }

    /// All of them, in queue order.
    pub(crate) fn items(&self) -> &[Item] {
        &self.items
    }

    /// The handler has begun this number of items, from the first on.
    pub(crate) fn begin(&mut self, items: usize) {
        self.begun = items;
    }

    /// How many have not.
    pub(crate) fn not_begun(&self) -> usize {
        self.items.len() - self.begun
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let [first, .., last] | [first @ last] = &self.items[self.begun..] {
            self.meters.lost.inc_by(self.not_begun() as u64);
            tracing::error!(
                event = "items_lost",
                queue = %self.queue,
                items = self.not_begun(),
                first = %first.id,
                last = %last.id,
                "items lost; they were fetched and never handled"
            );
        }
    }
}
