//! The rows of items that may expire.

use foundationdb::Transaction;

use crate::keys::{Space, expiry, meta, range};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::meta::{Meta, Millis};
use crate::ops::find::first_key;
use mutant::mutant;

/// Writes the row of an item that goes on waiting, if it may still expire.
pub(crate) fn note(space: &Space, tr: &Transaction, id: &ItemId, record: &[u8]) {
    if !record.is_empty()
        && let Some(meta) = meta::decode(record).filter(Meta::may_expire)
        && let Some(expires) = meta.expires
        && !mutant("released-item-does-not-expire")
    {
        tr.set(&expiry::key(&space.expiry, expires, id), expiry::value(&meta, expires));
    }
}

/// Clears the row of the expiry of an item that ends or is a dead letter. A row that also says until when its unique key is taken stays.
pub(crate) fn clear(space: &Space, tr: &Transaction, id: &ItemId, meta: &Meta) {
    if let Some(expires) = meta.expires.filter(|expires| meta.unique_until != Some(*expires)) {
        tr.clear(&expiry::key(&space.expiry, expires, id));
    }
}

/// The earliest time at which an item may expire. A key that is none of ours counts as due, so that the sweeper names it.
pub(crate) async fn first(space: &Space, tr: &Transaction) -> Result<Option<Millis>, QueueError> {
    let Some(key) = first_key(tr, &range(&space.expiry)).await? else { return Ok(None) };
    let none_of_ours = || (key <= expiry::at(&space.expiry, Millis::MAX)).then_some(0);
    Ok(expiry::decode(&space.expiry, &key).map_or_else(none_of_ours, |(time, _)| Some(time)))
}
