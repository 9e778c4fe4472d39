//! The rows of the [agenda](crate::keys::agenda) that an item has besides its own place: when it expires, and until when its unique key is taken.
//!
//! If both are at the same time, one row serves for both; its value is the unique key.

use foundationdb::Transaction;

use crate::keys::agenda::Event;
use crate::keys::{Space, meta};
use crate::model::id::ItemId;
use crate::model::meta::Meta;
use crate::model::time::Millis;
use mutant::mutant;

/// The rows of a new item: the event, the time, and the value.
pub(crate) fn of_new(meta: &Meta) -> Vec<(Event, Millis, Vec<u8>)> {
    let expires = meta.expiry().filter(|_| meta.may_expire());
    let mut times: Vec<_> = expires.into_iter().chain(meta.unique_end()).collect();
    times.dedup();
    times.into_iter().map(|time| (Event::Expiry, time, value(meta, time).to_vec())).collect()
}

/// Writes the expiry of an item that goes on waiting, if it may still expire.
pub(crate) fn note_expiry(space: &Space, tr: &Transaction, id: &ItemId, record: &[u8]) {
    if !record.is_empty()
        && let Some(meta) = meta::decode(record).filter(Meta::may_expire)
        && let Some(expires) = meta.expiry()
        && !mutant("released-item-does-not-expire")
    {
        tr.set(&space.expiry.key(expires, id.as_bytes()), value(&meta, expires));
    }
}

/// Clears the rows of an item that ends, is a dead letter, or gets other times: its expiry. A row that also says until when its unique key is taken stays.
pub(crate) fn clear(space: &Space, tr: &Transaction, id: &ItemId, meta: &Meta) {
    if let Some(expires) = meta.expiry().filter(|expires| meta.unique_end() != Some(*expires)) {
        tr.clear(&space.expiry.key(expires, id.as_bytes()));
    }
}

/// How many rows [`clear`] clears at most.
pub(crate) fn cleared(meta: &Meta) -> usize {
    usize::from(meta.expires.is_some())
}

/// Clears the time until which the unique key of an item is taken.
pub(crate) fn clear_unique(space: &Space, tr: &Transaction, id: &ItemId, meta: &Meta) {
    if let Some(until) = meta.unique_end() {
        tr.clear(&space.expiry.key(until, id.as_bytes()));
    }
}

/// The value of an item's row of this time.
fn value(meta: &Meta, time: Millis) -> &[u8] {
    match &meta.unique {
        Some(key) if meta.unique_end() == Some(time) => key,
        _ => b"",
    }
}
