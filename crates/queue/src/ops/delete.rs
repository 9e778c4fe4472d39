//! Deleting a queue.

use foundationdb::Transaction;

use crate::keys::Space;

/// Clears the tuple range of (q), and that of a recipe's items.
pub(crate) fn delete(space: &Space, tr: &Transaction) {
    for (begin, end) in [space.queue_range(), space.item_range()] {
        tr.clear_range(&begin, &end);
    }
}
