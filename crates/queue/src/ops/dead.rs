//! Reading dead letters, and writing what moves one of them.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use foundationdb::Transaction;
use foundationdb::future::FdbKeyValue;

use crate::keys;
use crate::keys::{Space, meta, range};
use crate::model::dead::DeadLetter;
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::item::Item;
use crate::model::meta::{Failure, Meta};
use crate::model::sizes::MAX_TAKE_BYTES;
use crate::ops::aside::read_records;
use crate::ops::scan::Row;
use crate::ops::{item_times, parts, place};
use crate::run::range_read::RangeRead;

/// A page of letters, without payloads. One whose record cannot be read is among them and says so, for people to decide about it.
pub(crate) async fn list(
    space: &Space,
    tr: &Transaction,
    after: Option<&ItemId>,
    limit: NonZeroUsize,
) -> Result<Vec<DeadLetter>, QueueError> {
    let records = records(space, tr, after, limit).await?;
    Ok(records.iter().map(|(id, record)| without_payload(space, id, record)).collect())
}

/// The records of letters in the order of ids, from behind `after` on. Read without a conflict.
pub(crate) async fn records(
    space: &Space,
    tr: &Transaction,
    after: Option<&ItemId>,
    limit: NonZeroUsize,
) -> Result<Vec<(ItemId, Bytes)>, QueueError> {
    let (first, end) = range(&space.dead);
    let begin = after.map_or(first, |id| keys::after(&space.dead_key(id)));
    let record = |row: &FdbKeyValue| {
        let id = Bytes::copy_from_slice(&row.key()[space.dead.len()..]);
        (ItemId::new(id), Bytes::copy_from_slice(row.value()))
    };
    RangeRead::of((begin, end)).limit(limit.get()).collect(tr, record).await
}

/// A page of letters with payloads.
pub(crate) async fn after(
    space: &Space,
    tr: &Transaction,
    after: Option<&ItemId>,
    limit: NonZeroUsize,
) -> Result<Vec<DeadLetter>, QueueError> {
    let records = records(space, tr, after, limit).await?;
    let found = read_records(space, tr, &records, MAX_TAKE_BYTES).await?;
    Ok(records.iter().zip(found).map(|(record, found)| letter(space, record, found)).collect())
}

fn letter(
    space: &Space,
    (id, record): &(ItemId, Bytes),
    found: Result<(Row, Item), QueueError>,
) -> DeadLetter {
    match found {
        Ok((_, item)) => {
            let meta = item.meta.map(Arc::unwrap_or_clone).unwrap_or_default();
            DeadLetter::new(item.id, meta, Some(item.payload))
        }
        Err(error) => {
            DeadLetter { unreadable: Some(error.to_string()), ..without_payload(space, id, record) }
        }
    }
}

/// A letter by its record alone.
fn without_payload(space: &Space, id: &ItemId, record: &[u8]) -> DeadLetter {
    let meta = decode(space, id, record).unwrap_or_else(|error| Meta {
        death: Some(Failure::new(UNIX_EPOCH, 0, &error.to_string())),
        ..meta::as_it_is(record)
    });
    DeadLetter::new(id.clone(), meta, None)
}

/// Whether there is a letter of this id.
pub(crate) async fn is_dead(space: &Space, tr: &Transaction, id: &ItemId) -> Result<bool, QueueError> {
    Ok(tr.get(&space.dead_key(id), true).await?.is_some())
}

/// A letter with its payload.
pub(crate) async fn get(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
) -> Result<Option<DeadLetter>, QueueError> {
    let Some(record) = tr.get(&space.dead_key(id), true).await? else { return Ok(None) };
    let record = (id.clone(), Bytes::copy_from_slice(&record));
    let found = read_records(space, tr, std::slice::from_ref(&record), MAX_TAKE_BYTES).await?.pop();
    Ok(found.map(|found| letter(space, &record, found)))
}

/// The side record of a letter.
pub(crate) fn decode(space: &Space, id: &ItemId, value: &[u8]) -> Result<Meta, QueueError> {
    meta::decode(value).ok_or_else(|| QueueError::unreadable(&space.dead_key(id)))
}

/// The other item that is there under a letter's unique key. Conflicts with a transaction that takes or frees the key.
pub(crate) async fn unique_holder(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
    meta: &Meta,
) -> Result<Option<ItemId>, QueueError> {
    let Some(key) = &meta.unique else { return Ok(None) };
    let holder = tr.get(&space.unique_key(key), false).await?;
    let holder = holder.map(|holder| ItemId::new(Bytes::copy_from_slice(&holder)));
    Ok(holder.filter(|holder| holder != id))
}

/// Makes a letter ready, whose record is cleared, with all its attempts before it.
pub(crate) fn revive(space: &Space, tr: &Transaction, id: &ItemId, value: &[u8], meta: Meta) {
    if let Some(key) = &meta.unique {
        tr.set(&space.unique_key(key), id.as_bytes());
    }
    // An earlier version leaves it, and it would free the key.
    item_times::clear_unique(space, tr, id, &meta);
    // One that could not be read is put back as it was, for a version that can read it.
    let record = match meta::unreadable(&meta) {
        Some(record) => record.to_vec(),
        None => meta::encode(&retried(meta)),
    };
    place::ready(space, tr, id, value, &record);
    tr.clear(&space.body_key(id));
}

/// The side record of a letter that is to be tried again: with all attempts before it, and without an expiry, since it did not wait for
/// its first. Its unique key is its own until it ends.
pub(crate) fn retried(meta: Meta) -> Meta {
    Meta { attempts: 0, crashes: 0, death: None, expires: None, unique_until: None, ..meta }
}

/// Clears all there is of a letter besides its record.
pub(crate) fn bury(space: &Space, tr: &Transaction, id: &ItemId, record: &[u8]) {
    tr.clear(&space.body_key(id));
    parts::clear_by(space, tr, id, record);
}
