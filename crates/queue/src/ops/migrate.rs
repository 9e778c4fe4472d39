//! The operations of a migration on a queue, next to copying its rows.

use foundationdb::options::{ConflictRangeType, MutationType};
use foundationdb::{KeySelector, Transaction};
use futures::future::try_join_all;

use crate::keys::leases::Header;
use crate::keys::migration::{COUNTERS, Record};
use crate::keys::{Space, counters as counter, range};
use crate::model::error::QueueError;
use crate::model::tally::Tally;
use crate::run::pause::FREEZE_KNOWN;
use crate::run::range_read::RangeRead;
use crate::run::version::now;
use mutant::mutant;

/// The record, if there is one. A conflict with a transaction that changes it.
pub(crate) async fn record(space: &Space, tr: &Transaction) -> Result<Option<Record>, QueueError> {
    let Some(value) = tr.get(&space.migrate, false).await? else { return Ok(None) };
    Record::decode(&value).map(Some).ok_or_else(|| QueueError::unreadable(&space.migrate))
}

pub(crate) fn put_record(space: &Space, tr: &Transaction, record: &Record) {
    tr.set(&space.migrate, &record.encode());
}

/// The counters in the order of their keys.
pub(crate) async fn counters(
    space: &Space,
    tr: &Transaction,
    snapshot: bool,
) -> Result<[u64; COUNTERS], QueueError> {
    let read = try_join_all(space.compared_counters().map(|key| tr.get(key, snapshot))).await?;
    let mut counters = [0; COUNTERS];
    for (number, value) in counters.iter_mut().zip(read) {
        *number = counter::decode(value.as_deref());
    }
    Ok(counters)
}

/// Adds to the counters, modulo 2^64; what is 0 is left as it is.
pub(crate) fn add_counters(space: &Space, tr: &Transaction, counters: &[u64; COUNTERS]) {
    for (key, number) in
        space.compared_counters().into_iter().zip(counters).filter(|(_, number)| **number != 0)
    {
        tr.atomic_op(key, &number.to_le_bytes(), MutationType::Add);
    }
}

/// Shows `visit` what changes with a queue, next to its counters: the headers of leases, and the first and last key of its line, for those
/// who take from it or add to it without counting.
pub(crate) async fn visit_marks(
    space: &Space,
    tr: &Transaction,
    snapshot: bool,
    visit: &mut (dyn FnMut(&[u8], &[u8]) + Send),
) -> Result<(), QueueError> {
    let mut pages = RangeRead::of(range(&space.leases)).snapshot(snapshot).pages(tr);
    while let Some(page) = pages.next_page().await? {
        page.iter().for_each(|row| visit(row.key(), row.value()));
    }
    let (begin, end) = space.item_range();
    for selector in
        [KeySelector::first_greater_or_equal(begin.as_slice()), KeySelector::last_less_than(end.as_slice())]
    {
        let key = tr.get_key(&selector, snapshot).await?;
        // With no items the key is another's.
        if (begin.as_slice()..end.as_slice()).contains(&&key[..]) {
            visit(&key, b"");
        }
    }
    Ok(())
}

/// How many leases have not run out. Those of a layout that this version does not know count.
pub(crate) async fn live_leases(space: &Space, tr: &Transaction) -> Result<usize, QueueError> {
    let version = now(tr).await?;
    let mut pages = RangeRead::of(range(&space.leases)).pages(tr);
    let mut live = 0;
    while let Some(page) = pages.next_page().await? {
        let is_live = |value| Header::decode(value).is_none_or(|header| !header.has_run_out(version));
        live += page.iter().filter(|row| is_live(row.value())).count();
    }
    Ok(live)
}

/// Takes all leases away, with their items, and makes all pushes of sessions fail that are under way. `false`: it is too early, and nothing was
/// written.
pub(crate) async fn fence(space: &Space, tr: &Transaction, frozen_by: u64) -> Result<bool, QueueError> {
    if now(tr).await? < frozen_by.saturating_add(FREEZE_KNOWN) && !mutant("fence-at-once") {
        return Ok(false);
    }
    // Each such push conflicts with its session's slot.
    let (begin, end) = space.token_range();
    if !mutant("fence-spares-pushes") {
        tr.add_conflict_range(&begin, &end, ConflictRangeType::Write)?;
    }
    for subspace in [&space.leases, &space.held, &space.progress] {
        let (begin, end) = range(subspace);
        tr.clear_range(&begin, &end);
    }
    Ok(true)
}

/// Counts a row among the items, if it is one or holds some.
pub(crate) fn tally(space: &Space, key: &[u8], value: &[u8], tally: &mut Tally) {
    tally.rows += 1;
    tally.bytes += (key.len() + value.len()) as u64;
    if key.starts_with(&space.ready) || key.starts_with(&space.parted) {
        tally.ready += 1;
    } else if key.starts_with(space.later.prefix()) {
        tally.waiting += 1;
    } else if key.starts_with(&space.dead) {
        tally.dead += 1;
    } else if key.starts_with(&space.leases) {
        tally.running += Header::decode(value).map_or(0, |header| header.acknowledged.open().count() as u64);
    }
}
