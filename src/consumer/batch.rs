//! Items in hand.

use std::{collections::VecDeque, sync::Arc};

use kvqueue_queue::Item;

/// Items that have left the queue and are not handled yet. With at-most-once delivery they exist nowhere else, so
/// dropping a batch before it is empty is logged as the loss it is.
#[derive(Debug)]
pub(crate) struct Batch {
    queue: Arc<str>,
    items: VecDeque<Item>,
}

impl Batch {
    pub(crate) fn new(queue: Arc<str>, items: Vec<Item>) -> Self {
        Self { queue, items: items.into() }
    }

    /// The next item, in queue order.
    pub(crate) fn next(&mut self) -> Option<Item> {
        self.items.pop_front()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let (Some(first), Some(last)) = (self.items.front(), self.items.back()) {
            tracing::error!(
                queue = %self.queue,
                items = self.items.len(),
                first = %first.id,
                last = %last.id,
                "items lost: taken and never handled"
            );
        }
    }
}
