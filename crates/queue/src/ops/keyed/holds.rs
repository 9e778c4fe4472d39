//! Holds: an ordered key is not served while one of its items is scheduled again, or is a dead letter that blocks the key.
//!
//! A hold is a row that names the item, so a key may have several. The transaction that puts the item away writes the row, and touches
//! nothing else of the key. The transaction that makes the item ready again, or deletes it, clears the row.
//!
//! A held key may still be active, parked, or without a place. The fetch that comes across it among the active keys puts it *on hold*: it
//! takes the key out of the index and keeps the position. The end of a hold makes such a key active again.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use foundationdb::options::{ConflictRangeType, MutationType, StreamingMode};
use foundationdb::{RangeOption, Transaction};
use futures::TryStreamExt;
use futures::future::try_join_all;
use mutant::mutant;

use super::{activate, count_active};
use crate::error::QueueError;
use crate::holds::{HeldBy, HeldKey};
use crate::id::ItemId;
use crate::keys::keyed::{HoldCause, KeyedSpace};
use crate::keys::{after, counters};
use crate::ops;

/// Holds the key of an item until the item is back.
pub(crate) fn begin(keyed: &KeyedSpace, tr: &Transaction, id: &ItemId, cause: HoldCause) {
    if mutant("retry-without-hold") {
        return;
    }
    tr.set(&keyed.hold_key(id), &cause.encode());
    if cause == HoldCause::Dead {
        count_blocked(keyed, tr, 1);
    }
}

/// Whether any key is held. Read without a conflict: a queue without holds pays no more than this.
pub(crate) async fn exist(keyed: &KeyedSpace, tr: &Transaction) -> Result<bool, QueueError> {
    Ok(first_row(tr, keyed.all_holds(), true).await?.is_some())
}

/// The first hold of a key. Read without a conflict: a fetch adds [`conflict`] for the keys that it moves.
pub(crate) async fn first(
    keyed: &KeyedSpace,
    tr: &Transaction,
    key: &[u8],
) -> Result<Option<Vec<u8>>, QueueError> {
    first_row(tr, keyed.hold_range(key), true).await
}

/// What a held key waits for. Read without a conflict.
pub(crate) async fn by(
    keyed: &KeyedSpace,
    tr: &Transaction,
    key: &[u8],
) -> Result<Option<HeldBy>, QueueError> {
    let (begin, end) = keyed.hold_range(key);
    let (rows, _) = page(tr, (&begin, &end), 1).await?;
    let Some((row, cause)) = rows.into_iter().next() else { return Ok(None) };
    let (item, cause) = decode(keyed, &row, cause)?;
    Ok(Some(cause.with(item)))
}

/// Makes a fetch that moves a key fail after the end of the hold that it has found; if it has found none, after the beginning of one.
pub(crate) fn conflict(
    keyed: &KeyedSpace,
    tr: &Transaction,
    key: &[u8],
    found: Option<&[u8]>,
) -> Result<(), QueueError> {
    match found {
        Some(_) if mutant("hold-without-conflict") => {}
        Some(hold) => ops::conflict::as_reader(tr, hold)?,
        None if mutant("no-hold-without-conflict") => {}
        None => {
            let (begin, end) = keyed.hold_range(key);
            tr.add_conflict_range(&begin, &end, ConflictRangeType::Read)?;
        }
    }
    Ok(())
}

/// Makes a fetch that has found no hold of any key fail after the beginning of one.
pub(crate) fn conflict_with_all(keyed: &KeyedSpace, tr: &Transaction) -> Result<(), QueueError> {
    if !mutant("no-hold-without-conflict") {
        let (begin, end) = keyed.all_holds();
        tr.add_conflict_range(&begin, &end, ConflictRangeType::Read)?;
    }
    Ok(())
}

/// Keeps the place of a key that has left the index.
pub(crate) fn put_key(keyed: &KeyedSpace, tr: &Transaction, position: u64, key: &[u8]) {
    tr.set(&keyed.on_hold_key(key), &position.to_le_bytes());
}

/// Ends the holds for these items, where there are any.
pub(crate) async fn end(
    keyed: &KeyedSpace,
    tr: &Transaction,
    items: &BTreeSet<ItemId>,
) -> Result<(), QueueError> {
    // An item and its hold are written by one transaction, so an item that this one finds scheduled or dead has its hold by now.
    if items.is_empty() || !exist(keyed, tr).await? {
        return Ok(());
    }
    // With a conflict: an unblock may end the same hold, and each is counted once.
    let read = items.iter().map(async |item| {
        let row = keyed.hold_key(item);
        let cause = tr.get(&row, mutant("ended-hold-without-conflict")).await?;
        Ok::<_, QueueError>(cause.map(|cause| (row, HoldCause::decode(&cause))))
    });
    let mut holds: BTreeMap<Vec<u8>, Rows> = BTreeMap::new();
    for (item, hold) in items.iter().zip(try_join_all(read).await?) {
        if let Some((key, hold)) = item.key().zip(hold) {
            holds.entry(key).or_default().push(hold);
        }
    }
    end_rows(keyed, tr, holds).await
}

/// Ends all holds of a key. Returns whether there were any.
pub(crate) async fn end_all(keyed: &KeyedSpace, tr: &Transaction, key: &[u8]) -> Result<bool, QueueError> {
    let option = RangeOption { mode: StreamingMode::WantAll, ..RangeOption::from(keyed.hold_range(key)) };
    let mut pages = tr.get_ranges(option, false);
    let mut rows = Rows::new();
    while let Some(page) = pages.try_next().await? {
        rows.extend(page.iter().map(|row| (row.key().to_vec(), HoldCause::decode(row.value()))));
    }
    let was_held = !rows.is_empty();
    if was_held {
        end_rows(keyed, tr, BTreeMap::from([(key.to_vec(), rows)])).await?;
    }
    Ok(was_held)
}

/// Holds, and their causes if this version knows them.
type Rows = Vec<(Vec<u8>, Option<HoldCause>)>;

/// Ends holds, by key, and makes keys active that are on hold. If such a key has another hold, the next fetch puts it on hold again.
async fn end_rows(
    keyed: &KeyedSpace,
    tr: &Transaction,
    holds: BTreeMap<Vec<u8>, Rows>,
) -> Result<(), QueueError> {
    // With a conflict: a fetch may put the key on hold meanwhile.
    let places = holds.keys().map(|key| tr.get(&keyed.on_hold_key(key), mutant("on-hold-without-conflict")));
    let places = try_join_all(places).await?;
    let (mut dead, mut active) = (0, 0);
    for ((key, rows), place) in holds.iter().zip(places) {
        rows.iter().for_each(|(row, _)| tr.clear(row));
        dead += rows.iter().filter(|(_, cause)| *cause == Some(HoldCause::Dead)).count();
        if let Some(position) = place {
            tr.clear(&keyed.on_hold_key(key));
            activate(keyed, tr, counters::decode(Some(&position)), key);
            active += 1;
        }
    }
    count_blocked(keyed, tr, -i64::try_from(dead).unwrap_or(i64::MAX));
    count_active(keyed, tr, active);
    Ok(())
}

/// The held keys behind a key, or the first: up to `k` holds, and each key once. Read without a conflict.
pub(crate) async fn list(
    keyed: &KeyedSpace,
    tr: &Transaction,
    behind: Option<&[u8]>,
    k: NonZeroUsize,
) -> Result<Vec<HeldKey>, QueueError> {
    let (first, end) = keyed.all_holds();
    let begin = behind.map_or(first, |key| keyed.hold_range(key).1);
    let (rows, _) = page(tr, (&begin, &end), k.get()).await?;
    let mut held: Vec<HeldKey> = Vec::new();
    for (row, cause) in rows {
        let (item, cause) = decode(keyed, &row, cause)?;
        let Some(key) = item.key() else { continue };
        if held.last().is_none_or(|last| last.key != key) {
            held.push(HeldKey { key, by: cause.with(item) });
        }
    }
    Ok(held)
}

/// Ends the holds of a page that begins at a row, where `holds_for` says that the rules do not hold the key any more. Returns the row at which the next page
/// begins; `None` after the last.
pub(crate) async fn end_page(
    keyed: &KeyedSpace,
    tr: &Transaction,
    begin: &[u8],
    limit: usize,
    holds_for: impl Fn(&[u8], HoldCause) -> bool,
) -> Result<Option<Vec<u8>>, QueueError> {
    let (_, end_of_all) = keyed.all_holds();
    let (rows, next) = page(tr, (begin, &end_of_all), limit).await?;
    // What a later version wrote stays.
    let known = rows.into_iter().filter_map(|(row, cause)| decode(keyed, &row, cause).ok());
    let is_over = |item: &ItemId, cause| item.key().is_some_and(|key| !holds_for(&key, cause));
    let over = known.filter(|(item, cause)| is_over(item, *cause)).map(|(item, _)| item);
    end(keyed, tr, &over.collect()).await?;
    Ok(next)
}

/// A page of holds, and the row at which the next one begins.
async fn page(
    tr: &Transaction,
    range: (&[u8], &[u8]),
    limit: usize,
) -> Result<(Rows, Option<Vec<u8>>), QueueError> {
    let option = RangeOption { limit: Some(limit), mode: StreamingMode::WantAll, ..RangeOption::from(range) };
    let rows = tr.get_range(&option, 1, true).await?;
    let next = rows.last().filter(|_| rows.more() || rows.len() == limit).map(|row| after(row.key()));
    let rows = rows.iter().map(|row| (row.key().to_vec(), HoldCause::decode(row.value()))).collect();
    Ok((rows, next))
}

fn decode(
    keyed: &KeyedSpace,
    row: &[u8],
    cause: Option<HoldCause>,
) -> Result<(ItemId, HoldCause), QueueError> {
    keyed.decode_hold(row).zip(cause).ok_or_else(|| QueueError::unreadable(row))
}

/// How many holds there are for dead letters. Read without a conflict.
pub(crate) async fn blocked(keyed: &KeyedSpace, tr: &Transaction) -> Result<u64, QueueError> {
    Ok(counters::decode(tr.get(&keyed.nblocked, true).await?.as_deref()))
}

fn count_blocked(keyed: &KeyedSpace, tr: &Transaction, by: i64) {
    if by != 0 {
        tr.atomic_op(&keyed.nblocked, &by.to_le_bytes(), MutationType::Add);
    }
}

/// The first row of a range.
pub(super) async fn first_row(
    tr: &Transaction,
    range: (Vec<u8>, Vec<u8>),
    snapshot: bool,
) -> Result<Option<Vec<u8>>, QueueError> {
    let option = RangeOption { limit: Some(1), ..RangeOption::from(range) };
    let rows = tr.get_range(&option, 1, snapshot).await?;
    Ok(rows.first().map(|row| row.key().to_vec()))
}
