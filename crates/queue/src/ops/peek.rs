//! Looking at ready items a page at a time, or at one. Reads that conflict with nothing.

use std::num::NonZeroUsize;

use foundationdb::Transaction;
use futures::future::try_join;

use crate::keys::Space;
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::item::Item;
use crate::model::place::Place;
use crate::model::sizes::MAX_TAKE_BYTES;
use crate::ops::aside::fitting;
use crate::ops::find::{first_key, last_key};
use crate::ops::scan::{Isolation, Row, Window, metas_between};
use crate::ops::{kinds, partitions, scan};

/// The items behind one, or the first: at most `k`, and no more than make up [`MAX_TAKE_BYTES`] with all their parts, but one at least.
pub(crate) async fn after(
    space: &Space,
    tr: &Transaction,
    after: Option<&ItemId>,
    k: NonZeroUsize,
) -> Result<Vec<Item>, QueueError> {
    let stamp = after.and_then(ItemId::stamp);
    let behind = stamp.map(ItemId::from).or_else(|| after.cloned());
    let window = Window {
        place: Place { behind, skip: 0 },
        limit: Some(k),
        max_bytes: MAX_TAKE_BYTES,
        isolation: Isolation::Snapshot,
    };
    let (mut rows, record) = try_join(scan::rows(space, tr, window), partitions::read(space, tr)).await?;
    if record.is_some() {
        rows = partitions::find(&partitions::all(space, record), tr, k, stamp).await?;
    }
    if rows.is_empty() && after.is_none() {
        kinds::check_elsewhere(space, tr).await?;
    }
    if let Some(ends) = scan::ends(space, &rows).filter(|_| record.is_none()) {
        let metas = metas_between(space, tr, ends).await?;
        scan::attach(&mut rows, metas);
    }
    let fit = fitting(space, &rows, MAX_TAKE_BYTES)?;
    scan::items(space, tr, &rows[..fit]).await
}

/// A ready item.
pub(crate) async fn one(space: &Space, tr: &Transaction, id: &ItemId) -> Result<Option<Item>, QueueError> {
    if !possible(space, id) {
        return Ok(None);
    }
    let (key, record) = (space.ready_key(id), space.meta_key(id));
    let (value, meta) = try_join(tr.get(&key, true), tr.get(&record, true)).await?;
    let Some(value) = value else { return Ok(None) };
    let row = Row {
        id: id.clone(),
        value: value.to_vec().into(),
        meta: meta.map_or_else(Vec::new, |meta| meta.to_vec()).into(),
    };
    Ok(scan::items(space, tr, &[row]).await?.pop())
}

/// The item that would be taken first. Only its key is read.
pub(crate) async fn first_id(space: &Space, tr: &Transaction) -> Result<Option<ItemId>, QueueError> {
    let spaces = partitions::read_all(space, tr).await?;
    if spaces.len() > 1 {
        let heads = (0..).zip(partitions::heads(&spaces, tr).await?);
        let first = heads.filter_map(|(i, head)| Some((head?, i))).min();
        return Ok(first.map(|(stamp, partition)| ItemId::in_partition(partition, stamp)));
    }
    end_id(space, tr, space.kind.takes_last()).await
}

/// The item that would be taken last.
pub(crate) async fn last_id(space: &Space, tr: &Transaction) -> Result<Option<ItemId>, QueueError> {
    let spaces = partitions::read_all(space, tr).await?;
    if spaces.len() > 1 {
        return partitions::last(&spaces, tr).await;
    }
    end_id(space, tr, !space.kind.takes_last()).await
}

async fn end_id(space: &Space, tr: &Transaction, last: bool) -> Result<Option<ItemId>, QueueError> {
    let range = space.item_range();
    let key = if last { last_key(tr, &range).await? } else { first_key(tr, &range).await? };
    key.map(|key| scan::suffix(space, &key).map(|id| ItemId::new(id.to_vec().into()))).transpose()
}

/// Whether an item of the queue can have this id.
pub(crate) fn possible(space: &Space, id: &ItemId) -> bool {
    !space.kind.is_stamped() || space.kind.owns(id)
}
