//! The partitions of a queue: how many there are, which items are first in each, and reading and removing items of all of them.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use foundationdb::Transaction;
use futures::future::try_join_all;

use crate::keys::Space;
use crate::keys::partitions::Record;
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::kind::Kind;
use crate::model::partitions::Partitions;
use crate::model::place::Place;
use crate::model::stamp::Stamp;
use crate::ops::find::{first_key, last_key};
use crate::ops::ready::is_full;
use crate::ops::scan::{Row, suffix};
use crate::run::conflict;
use crate::run::pause::check_unfrozen;
use mutant::mutant;

/// The record; `None` in a queue without partitions. A snapshot read.
pub(crate) async fn read(space: &Space, tr: &Transaction) -> Result<Option<Record>, QueueError> {
    if space.kind != Kind::Fifo {
        return Ok(None);
    }
    let Some(value) = tr.get(&space.partitions, true).await? else { return Ok(None) };
    Record::decode(&value).map(Some).ok_or_else(|| QueueError::unreadable(&space.partitions))
}

/// The record, for a push. A push to a partition conflicts with a change of the record: where the record says nothing of a partition,
/// nobody looks for its items.
pub(crate) async fn read_to_push(space: &Space, tr: &Transaction) -> Result<Option<Record>, QueueError> {
    let record = read(space, tr).await?;
    if record.is_some_and(|record| record.count > 1) && !mutant("push-ignores-partitions-change") {
        conflict::as_reader(tr, &space.partitions)?;
    }
    Ok(record)
}

/// Divides the queue. Returns whether that is a change.
pub(crate) async fn set(space: &Space, tr: &Transaction, to: Partitions) -> Result<bool, QueueError> {
    if space.kind != Kind::Fifo {
        let queue = space.name.escape_ascii().to_string();
        return Err(QueueError::NotDivisible { queue, kind: space.kind });
    }
    let earlier = read(space, tr).await?;
    let record = Record::changed(earlier, to);
    let is_plain = earlier.is_none() && record.most == 1;
    if is_plain || earlier == Some(record) {
        return Ok(false);
    }
    check_unfrozen(space, tr).await?;
    conflict::as_reader(tr, &space.partitions)?;
    tr.set(&space.partitions, &record.encode());
    Ok(true)
}

/// The spaces of all partitions that may have items, by their numbers.
pub(crate) fn all(space: &Space, record: Option<Record>) -> Vec<Arc<Space>> {
    (0..record.map_or(1, |record| record.most)).map(|i| Arc::new(space.in_partition(i))).collect()
}

/// The spaces of all partitions, as the database has it now.
pub(crate) async fn read_all(space: &Space, tr: &Transaction) -> Result<Vec<Arc<Space>>, QueueError> {
    Ok(all(space, read(space, tr).await?))
}

/// The first item in each partition.
pub(crate) async fn heads(spaces: &[Arc<Space>], tr: &Transaction) -> Result<Vec<Option<Stamp>>, QueueError> {
    let heads = spaces.iter().map(async |space| match first_key(tr, &space.item_range()).await? {
        Some(key) => stamp_in(space, &key),
        None => Ok(None),
    });
    try_join_all(heads).await
}

/// The last item of all partitions.
pub(crate) async fn last(spaces: &[Arc<Space>], tr: &Transaction) -> Result<Option<ItemId>, QueueError> {
    let last = spaces.iter().map(async |space| {
        let Some(key) = last_key(tr, &space.item_range()).await? else { return Ok(None) };
        Ok::<_, QueueError>(Some(ItemId::new(suffix(space, &key)?.to_vec().into())))
    });
    Ok(try_join_all(last).await?.into_iter().flatten().max_by_key(ItemId::stamp))
}

/// The first items behind a stamp, or of all, in the order of their pushes, with their side records.
pub(crate) async fn find(
    spaces: &[Arc<Space>],
    tr: &Transaction,
    k: NonZeroUsize,
    behind: Option<Stamp>,
) -> Result<Vec<Row>, QueueError> {
    let found = spaces.iter().map(async |space| {
        let behind = behind.map(|stamp| ItemId::in_partition(space.partition, stamp));
        let rows = crate::ops::ready::find(space, tr, k, &Place { behind, skip: 0 }).await?;
        // Behind the last of these there may be others.
        let until = rows.last().filter(|_| is_full(space, &rows, k)).and_then(|row| row.id.stamp());
        Ok::<_, QueueError>((rows, until))
    });
    let found = try_join_all(found).await?;
    let until = found.iter().filter_map(|(_, until)| *until).min();
    let mut rows: Vec<Row> = found.into_iter().flat_map(|(rows, _)| rows).collect();
    rows.retain(|row| until.is_none_or(|until| row.id.stamp() <= Some(until)));
    rows.sort_by_key(|row| row.id.stamp());
    rows.truncate(k.get());
    Ok(rows)
}

/// Rows of several partitions, those of each by themselves.
pub(crate) fn apart(rows: &[Row]) -> Vec<Vec<Row>> {
    let mut by_partition = BTreeMap::<u8, Vec<Row>>::new();
    for row in rows {
        by_partition.entry(row.id.partition()).or_default().push(row.clone());
    }
    by_partition.into_values().collect()
}

fn stamp_in(space: &Space, key: &[u8]) -> Result<Option<Stamp>, QueueError> {
    let id = ItemId::new(suffix(space, key)?.to_vec().into());
    Ok(id.stamp())
}
