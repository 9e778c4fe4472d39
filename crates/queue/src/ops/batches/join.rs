//! Items that are in a queue and join a batch.

use std::collections::{BTreeMap, BTreeSet};

use foundationdb::Transaction;
use futures::future::try_join_all;
use mutant::{bound, mutant};

use super::add;
use super::members::Members;
use crate::keys::leases::MAX_JOINED_HEADER;
use crate::keys::{Space, meta};
use crate::model::error::QueueError;
use crate::model::history::Ending;
use crate::model::id::ItemId;
use crate::model::item_batch::{BatchId, Join, MAX_ITEM_BATCHES};
use crate::model::view::ItemState;
use crate::ops::ended::read::{FirstHours, one_of};
use crate::ops::locate::{Located, locate_unleased};
use crate::ops::running::RunningRecord;
use crate::ops::scan::decode_record;
use crate::ops::{kinds, lease, place, running};
use crate::run::conflict;
use crate::run::pause::check_unfrozen;

/// How many items are looked for in the history at once.
fn together() -> usize {
    bound("joins-together", 10)
}

/// Makes items members of an open batch; fails at commit if another has moved one of them.
///
/// Their records are written, and whatever moves or ends an item conflicts on that. An item that has ended is counted at once.
pub(crate) async fn join(
    space: &Space,
    tr: &Transaction,
    batch: &BatchId,
    ids: &[ItemId],
) -> Result<Vec<Join>, QueueError> {
    let mut members = Members::check(space, tr, std::iter::once(batch)).await?;
    check_unfrozen(space, tr).await?;
    let different: BTreeSet<&ItemId> = ids.iter().collect();
    different.iter().try_for_each(|id| place::check_kind(space, id))?;
    let located = locate_each(space, tr, &different).await?;
    let mut endings = endings(space, tr, &located).await?;
    let mut ends: BTreeMap<u8, u64> = BTreeMap::new();
    let mut done = BTreeMap::new();
    for (id, located) in located {
        let join = match located {
            Some(Located::Running(found)) => running(space, tr, batch, *found).await?,
            Some(Located::Dead) => Join::Ended(Ending::Dead),
            Some(found) => waiting(space, tr, batch, id, &found)?,
            None => endings.remove(id).map_or(Join::Gone, Join::Ended),
        };
        match join {
            Join::Joined(_) => members.add(batch),
            Join::Ended(ending) => {
                members.add(batch);
                *ends.entry(ending.code()).or_default() += 1;
            }
            Join::WasMember | Join::Gone => {}
        }
        done.insert(id, join);
    }
    members.write(tr);
    let keys = space.batches_of(batch.home());
    ends.into_iter().for_each(|(code, n)| add(&keys, tr, (batch.unique(), code), n));
    Ok(ids.iter().filter_map(|id| done.get(id).copied()).collect())
}

/// How those items ended that are not in the queue, as far as its history has them.
async fn endings<'a>(
    space: &Space,
    tr: &Transaction,
    located: &[(&'a ItemId, Option<Located>)],
) -> Result<BTreeMap<&'a ItemId, Ending>, QueueError> {
    let missing: Vec<_> = located.iter().filter(|(_, found)| found.is_none()).map(|(id, _)| *id).collect();
    let mut endings = BTreeMap::new();
    if missing.is_empty() {
        return Ok(endings);
    }
    // Of another kind it would look empty.
    kinds::check_elsewhere(space, tr).await?;
    let first_hours = FirstHours::read(space, tr).await?;
    for ids in missing.chunks(together()) {
        let found = try_join_all(ids.iter().map(|id| one_of(space, tr, id, &first_hours))).await?;
        endings.extend(ids.iter().copied().zip(found).filter_map(|(id, item)| Some((id, item?.ending))));
    }
    Ok(endings)
}

/// Where each item is. All leases are read at most once.
async fn locate_each<'a>(
    space: &Space,
    tr: &Transaction,
    ids: &BTreeSet<&'a ItemId>,
) -> Result<Vec<(&'a ItemId, Option<Located>)>, QueueError> {
    let found = try_join_all(ids.iter().map(|id| locate_unleased(space, tr, id))).await?;
    let mut found: Vec<_> = ids.iter().copied().zip(found).collect();
    let missing = found.iter().filter(|(_, located)| located.is_none()).map(|(id, _)| *id).collect();
    let mut running = running::find_each(space, tr, missing).await?;
    for (id, located) in found.iter_mut().filter(|(_, located)| located.is_none()) {
        *located = running.items.remove(*id).map(|record| Located::Running(Box::new(record)));
        if let (None, Some(key)) = (&located, &running.unreadable) {
            // It may be on that lease, and must not count as ended.
            return Err(QueueError::unreadable(key));
        }
    }
    Ok(found)
}

/// The side record of an item with the batch; `None` if it has that already.
fn with_batch(
    space: &Space,
    batch: &BatchId,
    id: &ItemId,
    record: &[u8],
) -> Result<Option<Vec<u8>>, QueueError> {
    let known = decode_record(space, id, record)?.batches;
    if known.contains(batch) {
        return Ok(None);
    }
    if known.len() >= MAX_ITEM_BATCHES {
        return Err(QueueError::TooManyBatches { id: id.clone() });
    }
    let mut record = record.to_vec();
    meta::add_batch(&mut record, batch);
    Ok(Some(record))
}

fn waiting(
    space: &Space,
    tr: &Transaction,
    batch: &BatchId,
    id: &ItemId,
    found: &Located,
) -> Result<Join, QueueError> {
    let (Some(key), Some((_, record))) = (found.key(space, id), found.before()) else {
        unreachable!("neither a running item nor a dead letter waits");
    };
    let Some(record) = with_batch(space, batch, id, record)? else { return Ok(Join::WasMember) };
    conflict::as_reader(tr, &key)?;
    if let Located::Ready(_) = found {
        // The value stays as it is. Who takes it reads its key with a conflict.
        if !mutant("join-of-a-ready-item-without-conflict") {
            conflict::as_writer(tr, &key)?;
        }
        tr.set(&space.meta_key(id), &record);
    } else {
        tr.set(&key, &record);
    }
    Ok(Join::Joined(found.state()))
}

/// The holder of a lease has the item as it was. So the batch goes into the header, which the holder reads with whatever it does.
async fn running(
    space: &Space,
    tr: &Transaction,
    batch: &BatchId,
    found: RunningRecord,
) -> Result<Join, QueueError> {
    let RunningRecord { lease, index, row, .. } = found;
    if with_batch(space, batch, &row.id, &row.meta)?.is_none() {
        return Ok(Join::WasMember);
    }
    // Once more, with a conflict, and with what other items of it have joined in this transaction.
    let header = lease::header(space, tr, lease).await?;
    let Some(mut header) = header.filter(|header| header.acknowledged.is_open(index)) else {
        return Ok(Join::Gone);
    };
    header.joined.insert(u32::try_from(index).unwrap_or(u32::MAX), batch);
    if header.encode().len() > MAX_JOINED_HEADER {
        return Err(QueueError::TooManyBatches { id: row.id });
    }
    lease::update(space, tr, lease, &header);
    Ok(Join::Joined(ItemState::Running))
}
