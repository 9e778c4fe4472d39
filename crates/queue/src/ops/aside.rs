//! Looking at items that are not ready, delayed and dead ones, with their payloads. Reads that conflict with nothing.

use std::num::NonZeroUsize;

use bytes::Bytes;
use foundationdb::Transaction;
use futures::future::join_all;
use mutant::bound;

use crate::keys;
use crate::keys::Space;
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::item::Item;
use crate::model::time::Millis;
use crate::ops::scan::{Row, decode_meta};
use crate::ops::{bodies, place, scan};
use crate::run::range_read::RangeRead;

/// How many values are read at once.
fn together() -> usize {
    bound("records-together", 32)
}

/// Delayed items by their time, from behind one on: when each is due, its id and side record.
pub(crate) async fn delayed(
    space: &Space,
    tr: &Transaction,
    after: Option<(Millis, &ItemId)>,
    k: NonZeroUsize,
) -> Result<Vec<(Millis, ItemId, Bytes)>, QueueError> {
    let (first, end) = space.later.all();
    let begin = after.map_or(first, |(due, id)| keys::after(&space.later.key(due, id.as_bytes())));
    let rows = RangeRead::of((begin, end)).limit(k.get()).page(tr).await?;
    let record = |key: &[u8], value: &[u8]| {
        let (due, id) = space.later.decode_item(key).ok_or_else(|| QueueError::unreadable(key))?;
        Ok((due, id, Bytes::copy_from_slice(value)))
    };
    rows.iter().map(|row| record(row.key(), row.value())).collect()
}

/// Records as rows and items: the first, as many as make up `max_bytes` with all parts of their payloads, but one at least. In the place
/// of one that cannot be read stands why.
pub(crate) async fn read_records(
    space: &Space,
    tr: &Transaction,
    records: &[(ItemId, Bytes)],
    max_bytes: usize,
) -> Result<Vec<Result<(Row, Item), QueueError>>, QueueError> {
    let rows = with_bodies(space, tr, records, max_bytes).await?;
    let whole = rows.into_iter().map(async |row| {
        let row = row?;
        let item = scan::items(space, tr, std::slice::from_ref(&row)).await?.pop();
        Ok((row, item.expect("a row is an item")))
    });
    join_all(whole).await.into_iter().map(QueueError::if_readable).collect()
}

async fn with_bodies(
    space: &Space,
    tr: &Transaction,
    records: &[(ItemId, Bytes)],
    max_bytes: usize,
) -> Result<Vec<Result<Row, QueueError>>, QueueError> {
    let (mut rows, mut bytes) = (Vec::new(), 0_u64);
    for group in records.chunks(together()) {
        let values =
            bodies::read(space, tr, &group.iter().map(|(id, _)| id).collect::<Vec<_>>()).await?.values;
        for ((id, meta), value) in group.iter().zip(values) {
            let row = place::check_kind(space, id).and(value).and_then(|value| {
                let row = Row { id: id.clone(), value, meta: meta.clone() };
                bytes = bytes.saturating_add(size(space, &row)?);
                Ok(row)
            });
            if bytes > max_bytes as u64 && !rows.is_empty() {
                return Ok(rows);
            }
            rows.push(QueueError::if_readable(row)?);
        }
    }
    Ok(rows)
}

/// How many of these rows make up `max_bytes`, with all parts of their payloads; one at least, if there are any.
pub(crate) fn fitting(space: &Space, rows: &[Row], max_bytes: usize) -> Result<usize, QueueError> {
    let mut bytes = 0_u64;
    for (at, row) in rows.iter().enumerate() {
        bytes = bytes.saturating_add(size(space, row)?);
        if bytes > max_bytes as u64 {
            return Ok(at.max(1));
        }
    }
    Ok(rows.len())
}

/// The bytes of an item: its whole payload, and what is known next to it.
pub(crate) fn size(space: &Space, row: &Row) -> Result<u64, QueueError> {
    let whole = if row.meta.is_empty() { None } else { decode_meta(space, row)?.payload_len };
    Ok(whole.unwrap_or(row.value.len() as u64).saturating_add(row.meta.len() as u64))
}
