//! Items in hand.

use std::sync::Arc;

use kvqueue_queue::Item;

use super::{holder::Slice, source::Source};
use crate::metrics::QueueMeters;

/// What a take has brought.
#[derive(Debug)]
pub(crate) enum InHand {
    /// Items on a lease: if they are dropped, the lease runs out.
    Leased(Slice),
    /// Items that have left the queue.
    Taken(Batch),
}

impl InHand {
    /// How many items there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Leased(slice) => slice.items.len(),
            Self::Taken(batch) => batch.items().len(),
        }
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
    pub(crate) fn new(source: &Source, items: Vec<Item>) -> Self {
        Self { queue: source.name.clone(), meters: source.meters.clone(), items, begun: 0 }
    }

    /// All of them, in queue order.
    pub(crate) fn items(&self) -> &[Item] {
        &self.items
    }

    /// The first so many go to the handler, or have done so.
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
            self.meters.lost.add(self.not_begun() as u64);
            tracing::error!(
                queue = %self.queue,
                items = self.not_begun(),
                first = %first.id,
                last = %last.id,
                "items lost: taken and never handled"
            );
        }
    }
}
