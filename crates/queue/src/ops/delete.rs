//! Deleting a queue.

use foundationdb::Transaction;

use crate::keys::Space;

/// Clears the tuple range of (q).
pub(crate) fn delete(space: &Space, tr: &Transaction) {
    let (begin, end) = space.queue_range();
    tr.clear_range(&begin, &end);
}
