//! Freeing unique keys.

use foundationdb::Transaction;
use foundationdb::options::MutationType;

use crate::keys::Space;
use crate::model::id::ItemId;
use crate::model::meta::Meta;
use crate::ops::{cost, item_times};
use mutant::mutant;

/// Frees the key of an item that is done, or was taken for good, unless it is taken for a time.
pub(crate) fn of_ended(space: &Space, tr: &Transaction, id: &ItemId, meta: &Meta) {
    if meta.unique_until.is_none() || mutant("unique-time-ends-with-item") {
        free(space, tr, id, meta.unique.as_deref().unwrap_or_default());
    }
}

/// Frees the key of an item that was not done, also if it is taken for a time: it is a dead letter, was cancelled or deleted, or has expired.
pub(crate) fn of_undone(space: &Space, tr: &Transaction, id: &ItemId, meta: &Meta) {
    let Some(key) = &meta.unique else { return };
    free(space, tr, id, key);
    item_times::clear_unique(space, tr, id, meta);
}

/// Frees a key if it is still this item's. The empty key is none. Reads nothing, and conflicts as a write does. Returns the bytes that this takes.
pub(crate) fn free(space: &Space, tr: &Transaction, id: &ItemId, unique: &[u8]) -> usize {
    if unique.is_empty() {
        return 0;
    }
    let key = space.unique_key(unique);
    if mutant("frees-keys-of-others") {
        tr.clear(&key);
    } else {
        tr.atomic_op(&key, id.as_bytes(), MutationType::CompareAndClear);
    }
    cost::clear(key.len()) + id.as_bytes().len()
}
