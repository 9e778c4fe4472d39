//! Holds: an ordered key is not served while one of its items is scheduled again, or is a dead letter that blocks the key.
//!
//! A hold is a row that names the item, so a key may have several. The transaction that puts the item away writes the row, and touches
//! nothing else of the key. The transaction that makes the item ready again, or deletes it, clears the row.
//!
//! A held key may still be active, parked, or without a place. The fetch that comes across it among the active keys puts it *on hold*: it
//! takes the key out of the index and keeps the position. The end of a hold makes such a key active again.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use crate::run::conflict::as_reader;
use foundationdb::Transaction;
use foundationdb::options::{ConflictRangeType, MutationType};
use futures::future::try_join_all;
use mutant::mutant;

use super::{activate, count_active};
use crate::keys::counters;
use crate::keys::keyed::KeyedSpace;
use crate::model::error::QueueError;
use crate::model::holds::{HeldBy, HeldKey, HoldCause};
use crate::model::id::ItemId;
use crate::run::range_read::RangeRead;

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
    Ok(RangeRead::of(keyed.all_holds()).first_row_key(tr).await?.is_some())
}

/// The first hold of a key. Read without a conflict: a fetch adds [`conflict`] for the keys that it moves.
pub(crate) async fn first(
    keyed: &KeyedSpace,
    tr: &Transaction,
    key: &[u8],
) -> Result<Option<Vec<u8>>, QueueError> {
    RangeRead::of(keyed.hold_range(key)).first_row_key(tr).await
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
        Some(hold) => as_reader(tr, hold)?,
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
    let mut pages = RangeRead::of(keyed.hold_range(key)).snapshot(false).pages(tr);
    let (mut all, mut dead) = (0, 0);
    while let Some(page) = pages.next_page().await? {
        all += page.len();
        dead += page.iter().filter(|row| HoldCause::decode(row.value()) == Some(HoldCause::Dead)).count();
        if mutant("holds-end-one-by-one") {
            page.iter().for_each(|row| tr.clear(row.key()));
        }
    }
    if all > 0 {
        // One range: a key of which a backlog expired has a hold for each of these items, more than a transaction could clear one by one.
        let (begin, end) = keyed.hold_range(key);
        tr.clear_range(&begin, &end);
        count_blocked(keyed, tr, -i64::try_from(dead).unwrap_or(i64::MAX));
        let is_active = go_on(keyed, tr, key).await?;
        count_active(keyed, tr, usize::from(is_active));
    }
    Ok(all > 0)
}

/// Holds, and their causes if this version knows them.
type Rows = Vec<(Vec<u8>, Option<HoldCause>)>;

/// Ends holds, by key, and makes keys active that are on hold. If such a key has another hold, the next fetch puts it on hold again.
async fn end_rows(
    keyed: &KeyedSpace,
    tr: &Transaction,
    holds: BTreeMap<Vec<u8>, Rows>,
) -> Result<(), QueueError> {
    let active = try_join_all(holds.keys().map(|key| go_on(keyed, tr, key))).await?;
    let rows = || holds.values().flatten();
    rows().for_each(|(row, _)| tr.clear(row));
    let dead = rows().filter(|(_, cause)| *cause == Some(HoldCause::Dead)).count();
    count_blocked(keyed, tr, -i64::try_from(dead).unwrap_or(i64::MAX));
    count_active(keyed, tr, active.into_iter().filter(|is_active| *is_active).count());
    Ok(())
}

/// Makes a key active, if it is on hold. Returns whether it was. Counting is the caller's: [`count_active`].
async fn go_on(keyed: &KeyedSpace, tr: &Transaction, key: &[u8]) -> Result<bool, QueueError> {
    let row = keyed.on_hold_key(key);
    // With a conflict: a fetch may put the key on hold meanwhile.
    let Some(position) = tr.get(&row, mutant("on-hold-without-conflict")).await? else { return Ok(false) };
    tr.clear(&row);
    activate(keyed, tr, counters::decode(Some(&position)), key);
    Ok(true)
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
    let page = RangeRead::of(range).limit(limit).page(tr).await?;
    let rows = page.iter().map(|row| (row.key().to_vec(), HoldCause::decode(row.value()))).collect();
    Ok((rows, page.next()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::queue::Queue;
    use crate::model::kind::Kind;
    use crate::testing::on_database;

    #[test]
    fn letting_a_key_go_on_costs_the_same_for_any_number_of_holds() {
        on_database(async |db| {
            let queue = Queue::of_kind(b"", b"q", Kind::Keyed).unwrap();
            let keyed = queue.space().keyed.as_ref().unwrap();
            let item = |at: u32| {
                let stamp = [&[0x33; 9][..], &at.to_be_bytes()].concat();
                ItemId::new([&b"\x01a\0"[..], &stamp].concat().into())
            };
            let mut sizes = BTreeSet::new();
            for n in [1, 3_000] {
                let tr = db.create_trx().unwrap();
                for at in 0..n {
                    let cause = if at % 2 == 0 { HoldCause::Dead } else { HoldCause::Scheduled };
                    begin(keyed, &tr, &item(at), cause);
                }
                put_key(keyed, &tr, 7, b"a");
                tr.commit().await.unwrap();
                let tr = db.create_trx().unwrap();
                assert!(end_all(keyed, &tr, b"a").await.unwrap());
                sizes.insert(tr.get_approximate_size().await.unwrap());
                tr.commit().await.unwrap();
                let tr = db.create_trx().unwrap();
                assert_eq!(blocked(keyed, &tr).await.unwrap(), 0);
                assert!(!exist(keyed, &tr).await.unwrap() && !end_all(keyed, &tr, b"a").await.unwrap());
                assert!(RangeRead::of(keyed.active_range()).first_row_key(&tr).await.unwrap().is_some());
            }
            assert!(sizes.last() < Some(&2_000), "{sizes:?}");
        });
    }
}
