//! Putting an item where it goes on: ready, for later, or among the dead letters. [`Transitions`](crate::ops::transition::Transitions) calls these.

use bytes::Bytes;
use foundationdb::Transaction;

use crate::keys::{Space, after, later, meta};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::meta::Meta;
use crate::model::time::Millis;
use crate::ops::{item_times, unique};
use mutant::mutant;

/// The value of an item that is put aside or a dead letter. Read without a conflict: it stays as it is as long as the item's record
/// does.
pub(crate) async fn body(space: &Space, tr: &Transaction, id: &ItemId) -> Result<Bytes, QueueError> {
    let key = space.body_key(id);
    let value = tr.get(&key, true).await?.ok_or_else(|| QueueError::unreadable(&key))?;
    Ok(Bytes::copy_from_slice(&value))
}

/// Makes sure that an item belongs to a queue of this kind, before it is moved.
pub(crate) fn check_kind(space: &Space, id: &ItemId) -> Result<(), QueueError> {
    let kind = space.kind;
    if kind.owns(id) { Ok(()) } else { Err(QueueError::WrongKind { id: id.clone(), kind }) }
}

/// Makes an item ready, at its own place.
pub(crate) fn ready(space: &Space, tr: &Transaction, id: &ItemId, value: &[u8], meta: &[u8]) {
    tr.set(&space.ready_key(id), value);
    if !meta.is_empty() {
        tr.set(&space.meta_key(id), meta);
    }
}

/// Puts an item aside until a time.
pub(crate) fn later(space: &Space, tr: &Transaction, id: &ItemId, due: Millis, value: &[u8], meta: &Meta) {
    tr.set(&space.later.key(due, id.as_bytes()), &meta::encode(meta));
    tr.set(&space.body_key(id), value);
    tr.set(&space.due_key(id), &later::encode_due(due));
}

/// Clears what an item that is put aside has under its id: its value and its time.
pub(crate) fn clear_aside(space: &Space, tr: &Transaction, id: &ItemId) {
    tr.clear(&space.body_key(id));
    tr.clear(&space.due_key(id));
}

/// The same for all items from `first` to `last`, in the order of their ids.
pub(crate) fn clear_all_aside(space: &Space, tr: &Transaction, first: &ItemId, last: &ItemId) {
    tr.clear_range(&space.body_key(first), &after(&space.body_key(last)));
    tr.clear_range(&space.due_key(first), &after(&space.due_key(last)));
}

/// Puts an item among the dead letters; others of its unique key may then come.
pub(crate) fn dead(space: &Space, tr: &Transaction, id: &ItemId, value: &[u8], meta: &Meta) {
    let record = match meta.batches.as_slice() {
        // It has ended for its batches, and is not to end once more when it is retried.
        [_, ..] if !mutant("dead-letter-stays-a-member") => {
            meta::encode(&Meta { batches: Vec::new(), ..meta.clone() })
        }
        _ => meta::encode(meta),
    };
    tr.set(&space.dead_key(id), &record);
    item_times::clear(space, tr, id, meta);
    tr.set(&space.body_key(id), value);
    if !mutant("dead-letter-keeps-key") {
        unique::of_undone(space, tr, id, meta);
    }
}
