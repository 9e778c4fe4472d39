//! Removing items from the front with as few conflicts as possible.
//!
//! [`pop_k`](crate::ops::pop) conflicts with every push that commits meanwhile when it finds fewer than it asked for,
//! because the range it read ends where pushes land. Nothing is gained by that: a push can only add items behind
//! those found. So a take reads at snapshot isolation and adds read conflicts on what it removes, no more.

use std::num::NonZeroUsize;

use foundationdb::Transaction;
use foundationdb::options::ConflictRangeType;

use crate::error::QueueError;
use crate::item::Item;
use crate::keys::Space;
use crate::ops::pop::{extent, remove};
use crate::ops::scan::{Isolation, front};

/// Reads the first `k` items and removes them. Without items it leaves the transaction without writes.
pub(crate) async fn take(space: &Space, tr: &Transaction, k: NonZeroUsize) -> Result<Vec<Item>, QueueError> {
    let items = front(space, tr, Some(k), Isolation::Snapshot).await?;
    if let Some((begin, end)) = extent(space, &items) {
        // Before the clear: a transaction does not conflict on what it has itself overwritten.
        tr.add_conflict_range(&begin, &end, ConflictRangeType::Read)?;
        remove(space, tr, items.len(), &begin, &end);
    }
    Ok(items)
}
