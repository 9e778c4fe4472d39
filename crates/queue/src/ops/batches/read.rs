//! Reading batches.

use std::num::NonZeroUsize;

use foundationdb::Transaction;
use futures::future::{try_join, try_join_all};
use mutant::{bound, mutant};

use crate::keys::batches::{BatchSpace, Record, Unique, decode_callback};
use crate::keys::{Space, after, batches};
use crate::model::error::QueueError;
use crate::model::item_batch::{BatchCounts, BatchId, BatchView, NewBatch};
use crate::model::new_item::NewItem;
use crate::model::time::from_millis;
use crate::run::range_read::RangeRead;

/// The most batches of a page: each has a callback of up to 80 KiB.
fn page_batches() -> usize {
    bound("batches-page", 100)
}

/// The record, with a conflict.
pub(crate) async fn record(
    keys: &BatchSpace,
    tr: &Transaction,
    id: Unique,
) -> Result<Option<Record>, QueueError> {
    let key = keys.record_key(id);
    match tr.get(&key, mutant("batch-closes-without-conflict")).await? {
        None => Ok(None),
        Some(value) => Record::decode(&value).map(Some).ok_or_else(|| QueueError::unreadable(&key)),
    }
}

/// What a batch with this record pushes in the end. Without a conflict: it changes only with the record.
pub(crate) async fn callback(
    keys: &BatchSpace,
    tr: &Transaction,
    id: Unique,
    record: &Record,
) -> Result<NewItem, QueueError> {
    if let Some(callback) = &record.callback {
        return Ok(callback.clone());
    }
    let key = keys.item_key(id);
    let value = tr.get(&key, true).await?;
    value.and_then(|value| decode_callback(&value)).ok_or_else(|| QueueError::unreadable(&key))
}

/// The counters, without a conflict: whatever changes them goes by the record.
pub(crate) async fn counts(
    keys: &BatchSpace,
    tr: &Transaction,
    id: Unique,
) -> Result<BatchCounts, QueueError> {
    let mut counts = BatchCounts::default();
    let mut pages = RangeRead::of(keys.counts_of(id)).pages(tr);
    while let Some(page) = pages.next_page().await? {
        for row in page.iter() {
            if let Some(what) = keys.decode_count(id, row.key()) {
                batches::add_count(&mut counts, what, row.value());
            }
        }
    }
    Ok(counts)
}

/// One batch, without a conflict.
pub(crate) async fn one(
    space: &Space,
    tr: &Transaction,
    id: &BatchId,
) -> Result<Option<BatchView>, QueueError> {
    let keys = space.batches();
    let key = keys.record_key(id.unique());
    let Some(value) = tr.get(&key, true).await? else { return Ok(None) };
    let record = Record::decode(&value).ok_or_else(|| QueueError::unreadable(&key))?;
    Ok(Some(view(&keys, tr, id.clone(), record).await?))
}

/// A page of batches behind one of them.
pub(crate) async fn page(
    space: &Space,
    tr: &Transaction,
    behind: Option<&BatchId>,
    k: NonZeroUsize,
) -> Result<Vec<BatchView>, QueueError> {
    let keys = space.batches();
    let (first, end) = keys.all_records();
    let begin = behind.map_or(first, |id| after(&keys.record_key(id.unique())));
    let mut pages = RangeRead::of((begin, end)).page_limit(k.get().min(page_batches())).pages(tr);
    let mut found = Vec::new();
    // Of a page that cannot be read nothing is left, and others may follow.
    while found.is_empty()
        && let Some(rows) = pages.next_page().await?
    {
        let record = |key: &[u8], value: &[u8]| {
            let id = BatchId::with_unique(&space.name, keys.decode_record(key)?);
            Some((id, Record::decode(value)?))
        };
        let records: Vec<_> = rows.iter().filter_map(|row| record(row.key(), row.value())).collect();
        drop(rows);
        let views = records
            .into_iter()
            .map(async |(id, record)| QueueError::if_readable(view(&keys, tr, id, record).await));
        found.extend(try_join_all(views).await?.into_iter().flatten());
    }
    Ok(found)
}

async fn view(
    keys: &BatchSpace,
    tr: &Transaction,
    id: BatchId,
    record: Record,
) -> Result<BatchView, QueueError> {
    let unique = id.unique();
    let (counts, callback) = try_join(counts(keys, tr, unique), callback(keys, tr, unique, &record)).await?;
    let batch = NewBatch { callback, deadline: record.deadline.map(from_millis) };
    let (created, committed) = (from_millis(record.created), record.committed.map(from_millis));
    Ok(BatchView { id, created, committed, batch, counts })
}
