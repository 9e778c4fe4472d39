//! Removing items from the front, as the Erlang program does.

use std::num::NonZeroUsize;

use foundationdb::Transaction;
use foundationdb::options::MutationType;

use crate::error::QueueError;
use crate::item::Item;
use crate::keys::{Space, counters, items};
use crate::ops::scan::{Isolation, front};

/// What a pop removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Popped {
    /// The items, in order.
    pub items: Vec<Item>,
    /// Whether there were fewer than asked for: the queue is now empty.
    pub short: bool,
}

/// Reads the first `k` items and removes them.
pub(crate) async fn pop_k(space: &Space, tr: &Transaction, k: NonZeroUsize) -> Result<Popped, QueueError> {
    let items = front(space, tr, Some(k), Isolation::Serializable).await?;
    if let Some((begin, end)) = extent(space, &items) {
        remove(space, tr, items.len(), &begin, &end);
    }
    Ok(Popped { short: items.len() < k.get(), items })
}

/// The keys from the first to the last of these items, begin and end; `None` if there are none.
pub(crate) fn extent(space: &Space, items: &[Item]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (first, last) = (items.first()?, items.last()?);
    Some((items::key(&space.items, first.stamp), items::after(&space.items, last.stamp)))
}

/// Clears a range that holds `n` items and counts them as popped.
pub(crate) fn remove(space: &Space, tr: &Transaction, n: usize, begin: &[u8], end: &[u8]) {
    tr.clear_range(begin, end);
    tr.atomic_op(&space.npop, &counters::increment(n), MutationType::Add);
}
