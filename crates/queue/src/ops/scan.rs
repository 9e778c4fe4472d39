//! Reading ready items in the order in which they are taken.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use foundationdb::{KeySelector, Transaction};
use futures::future::try_join_all;

use crate::keys::{Space, after, chunks, meta, recipes};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::id_layout::{split_id, split_partition};
use crate::model::item::Item;
use crate::model::kind::Kind;
use crate::model::meta::Meta;
use crate::model::place::Place;
use crate::ops::{cost, kinds};
use crate::run::range_read::{RangeRead, RowPage};

/// Whether a read counts when the database looks for conflicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// The rows must not have changed at the commit.
    Serializable,
    /// The rows may change.
    Snapshot,
}

/// Which of the ready items to read.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub(crate) place: Place,
    /// at most this number; `None`: all.
    pub(crate) limit: Option<NonZeroUsize>,
    /// Reading ends when fetching the rows would take this many bytes, as the database counts them.
    pub(crate) max_bytes: usize,
    pub(crate) isolation: Isolation,
}

/// A ready item as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) id: ItemId,
    pub(crate) value: Bytes,
    /// Its side record, encoded; empty if it has none.
    pub(crate) meta: Bytes,
}

/// The rows of a window, in the order in which they are taken, without side records.
pub(crate) async fn rows(space: &Space, tr: &Transaction, window: Window) -> Result<Vec<Row>, QueueError> {
    let (begin, end) = space.item_range();
    let Place { behind, skip } = window.place;
    let skip = i32::try_from(skip).unwrap_or(i32::MAX - 1);
    let behind = behind.map(|id| space.ready_key(&id));
    let takes_last = space.kind.takes_last();
    // The first key taken is the first not before `begin`, or, from the other end, the last before `end`.
    let range = if takes_last {
        let end = KeySelector::new(behind.as_ref().unwrap_or(&end).as_slice().into(), false, 1 - skip);
        (KeySelector::first_greater_or_equal(begin.as_slice()), end)
    } else {
        let first = behind.as_ref().unwrap_or(&begin).as_slice();
        let begin = KeySelector::new(first.into(), behind.is_some(), 1 + skip);
        (begin, KeySelector::first_greater_or_equal(end.as_slice()))
    };
    let mut read = RangeRead::of(range).reverse(takes_last).snapshot(window.isolation == Isolation::Snapshot);
    if let Some(limit) = window.limit {
        read = read.limit(limit.get());
    }
    let mut pages = read.pages(tr);
    let (mut found, mut bytes) = (Vec::new(), 0);
    while bytes < window.max_bytes
        && let Some(page) = pages.next_page().await?
    {
        let page = shared(space, &page)?;
        if !space.kind.is_stamped()
            && let Some(row) = page.first()
        {
            kinds::check_ready(space, &row.id)?;
        }
        let cost = |row: &Row| cost::take_plain(space, row.id.as_bytes().len(), row.value.len());
        bytes += page.iter().map(cost).sum::<usize>();
        found.extend(page);
    }
    Ok(found)
}

/// The rows of a page, which share one piece of memory: a piece for each id and each value would be most of the work of a take.
fn shared(space: &Space, page: &RowPage) -> Result<Vec<Row>, QueueError> {
    let mut bytes = Vec::with_capacity(page.byte_len());
    let mut ends = Vec::with_capacity(page.len());
    for row in page.iter() {
        bytes.extend_from_slice(suffix(space, row.key())?);
        let id_end = bytes.len();
        bytes.extend_from_slice(row.value());
        ends.push((id_end, bytes.len()));
    }
    let bytes = Bytes::from(bytes);
    let mut begin = 0;
    let row = |(id_end, end)| {
        let id = ItemId::new(bytes.slice(begin..id_end));
        begin = end;
        Row { id, value: bytes.slice(id_end..end), meta: Bytes::new() }
    };
    Ok(ends.into_iter().map(row).collect())
}

/// The rest of a ready item's key, which is its id.
pub(crate) fn suffix<'k>(space: &Space, key: &'k [u8]) -> Result<&'k [u8], QueueError> {
    let suffix = key.strip_prefix(space.ready.as_slice()).filter(|suffix| match space.kind {
        Kind::Fifo => split_partition(suffix).is_some_and(|(partition, _)| partition == space.partition),
        Kind::Keyed => split_id(suffix).is_some(),
        Kind::Recipe(_) | Kind::Priority(..) => !suffix.is_empty(),
    });
    suffix.ok_or_else(|| QueueError::ForeignKey { key: key.escape_ascii().to_string() })
}

/// The first side records behind an item, or from the front, at most `limit`, in the order in which items are taken; and whether there
/// are more.
pub(crate) async fn first_metas(
    space: &Space,
    tr: &Transaction,
    behind: Option<&ItemId>,
    limit: usize,
) -> Result<(Vec<(ItemId, Bytes)>, bool), QueueError> {
    let (mut begin, mut end) = space.meta_range();
    if let Some(behind) = behind.map(|id| space.meta_key(id)) {
        match space.kind.takes_last() {
            true => end = behind,
            false => begin = after(&behind),
        }
    }
    let read = RangeRead::of((begin, end)).reverse(space.kind.takes_last()).limit(limit);
    let page = read.page(tr).await?;
    Ok((page.iter().map(|row| meta_row(space, row.key(), row.value())).collect(), page.has_more()))
}

/// The side records of the items from one to another, both ends included, in the order of keys.
pub(crate) async fn metas_between(
    space: &Space,
    tr: &Transaction,
    (low, high): (&ItemId, &ItemId),
) -> Result<Vec<(ItemId, Bytes)>, QueueError> {
    let end = after(&space.meta_key(high));
    let metas = RangeRead::of((space.meta_key(low), end));
    metas.collect(tr, |row| meta_row(space, row.key(), row.value())).await
}

pub(crate) fn meta_row(space: &Space, key: &[u8], value: &[u8]) -> (ItemId, Bytes) {
    (ItemId::new(Bytes::copy_from_slice(&key[space.meta.len()..])), Bytes::copy_from_slice(value))
}

/// The lowest and the highest id of rows that are in order, one way or the other.
pub(crate) fn ends<'r>(space: &Space, rows: &'r [Row]) -> Option<(&'r ItemId, &'r ItemId)> {
    let (first, last) = (&rows.first()?.id, &rows.last()?.id);
    Some(if space.kind.takes_last() { (last, first) } else { (first, last) })
}

/// Gives rows their side records; `first` are the first ones there are, as [`first_metas`] has read them.
pub(crate) async fn join_metas(
    space: &Space,
    tr: &Transaction,
    rows: &mut [Row],
    first: (Vec<(ItemId, Bytes)>, bool),
) -> Result<(), QueueError> {
    let (metas, more) = first;
    let Some(ends) = ends(space, rows).filter(|_| !metas.is_empty()) else { return Ok(()) };
    // The first ones are enough if there are no others, or if they reach beyond the last row.
    let reach = metas.last().is_some_and(|(id, _)| match space.kind.takes_last() {
        true => id < ends.0,
        false => id > ends.1,
    });
    let metas = if more && !reach { metas_between(space, tr, ends).await? } else { metas };
    attach(rows, metas);
    Ok(())
}

/// Gives rows those side records that are theirs.
pub(crate) fn attach(rows: &mut [Row], metas: Vec<(ItemId, Bytes)>) {
    let metas: HashMap<_, _> = metas.into_iter().collect();
    for row in rows {
        if let Some(meta) = metas.get(&row.id) {
            row.meta = meta.clone();
        }
    }
}

/// The items of rows, with payloads from all their parts.
pub(crate) async fn items(space: &Space, tr: &Transaction, rows: &[Row]) -> Result<Vec<Item>, QueueError> {
    let (mut items, mut in_parts) = (Vec::with_capacity(rows.len()), Vec::new());
    for (at, row) in rows.iter().enumerate() {
        let item = item(space, row)?;
        if let Some(len) = item.meta.as_ref().and_then(|meta| meta.payload_len) {
            in_parts
                .push(async move { Ok::<_, QueueError>((at, whole_payload(space, tr, row, len).await?)) });
        }
        items.push(item);
    }
    for (at, payload) in try_join_all(in_parts).await? {
        items[at].payload = payload;
    }
    Ok(items)
}

/// The items of rows, with what of their payloads is in the rows.
pub(crate) fn beginnings(space: &Space, rows: &[Row]) -> Result<Vec<Item>, QueueError> {
    rows.iter().map(|row| item(space, row)).collect()
}

/// The item of a row, with what of its payload is in the row.
fn item(space: &Space, row: &Row) -> Result<Item, QueueError> {
    let whole = || recipes::unpack_value(space.kind.packing(), &row.value);
    let id = row.id.clone();
    if row.meta.is_empty() {
        return Ok(Item { id, payload: whole(), attempt: 1, meta: None });
    }
    let meta = decode_meta(space, row)?;
    // The first part of one in parts is as it is.
    let payload = if meta.payload_len.is_some() { row.value.clone() } else { whole() };
    Ok(Item { id, payload, attempt: meta.attempts.saturating_add(1), meta: Some(Arc::new(meta)) })
}

/// The side record of a row; an empty one if it has none.
pub(crate) fn decode_meta(space: &Space, row: &Row) -> Result<Meta, QueueError> {
    decode_record(space, &row.id, &row.meta)
}

/// The same of a record as it is stored.
pub(crate) fn decode_record(space: &Space, id: &ItemId, record: &[u8]) -> Result<Meta, QueueError> {
    meta::decode(record).ok_or_else(|| QueueError::unreadable_item(id, &space.meta_key(id)))
}

async fn whole_payload(space: &Space, tr: &Transaction, row: &Row, len: u64) -> Result<Bytes, QueueError> {
    let mut pages = RangeRead::of(chunks::range(&space.chunks, &row.id)).pages(tr);
    let mut payload = row.value.to_vec();
    while let Some(page) = pages.next_page().await? {
        let own = page.iter().filter(|chunk| chunks::is_of(&space.chunks, &row.id, chunk.key()));
        own.for_each(|chunk| payload.extend_from_slice(chunk.value()));
    }
    if payload.len() as u64 != len {
        return Err(QueueError::unreadable_item(&row.id, &[&space.chunks, row.id.as_bytes()].concat()));
    }
    Ok(payload.into())
}
