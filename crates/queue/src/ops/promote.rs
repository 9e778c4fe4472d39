//! Making items ready whose time has come.

use bytes::Bytes;
use foundationdb::options::{ConflictRangeType, MutationType, StreamingMode};
use foundationdb::{RangeOption, Transaction};
use futures::future::try_join_all;

use crate::error::QueueError;
use crate::id::ItemId;
use crate::keys::{Space, counters, later, range};
use crate::meta::Millis;
use crate::ops::place;

/// The most items of one transaction.
const PAGE: usize = 500;
/// What one transaction writes at most, in bytes, or a little more.
const PAGE_BYTES: usize = 1 << 20;
/// So many values are read at once.
const TOGETHER: usize = 32;

/// An item whose time has come.
struct Due {
    key: Vec<u8>,
    id: ItemId,
    meta: Bytes,
}

/// Makes the first items ready that are due at `now`, at their own places; returns how many. There may be more.
pub(crate) async fn promote(space: &Space, tr: &Transaction, now: Millis) -> Result<usize, QueueError> {
    let page = page(space, tr, now).await?;
    let (mut n, mut bytes) = (0_usize, 0);
    for group in page.chunks(TOGETHER) {
        for (due, value) in group.iter().zip(values(space, tr, group).await?) {
            if bytes >= PAGE_BYTES {
                break;
            }
            bytes += place::cost(space, &due.id, &value, &due.meta);
            place::ready(space, tr, &due.id, &value, &due.meta);
            tr.clear(&space.body_key(&due.id));
            n += 1;
        }
        if bytes >= PAGE_BYTES {
            break;
        }
    }
    let (Some(first), Some(last)) = (page.first(), n.checked_sub(1).and_then(|last| page.get(last))) else {
        return Ok(0);
    };
    let end = [last.key.as_slice(), &[0x00]].concat();
    // Before the clear: a transaction does not conflict on what it has itself overwritten.
    tr.add_conflict_range(&first.key, &end, ConflictRangeType::Read)?;
    tr.clear_range(&first.key, &end);
    place::count_ready(space, tr, n);
    tr.atomic_op(&space.ndue, &counters::increment(n), MutationType::Add);
    Ok(n)
}

/// The first items that are due, read without a conflict: an item put aside meanwhile is none of ours.
async fn page(space: &Space, tr: &Transaction, now: Millis) -> Result<Vec<Due>, QueueError> {
    let (begin, end) = range(&space.later);
    let end = now.checked_add(1).map_or(end, |next| later::at(&space.later, next));
    let option =
        RangeOption { limit: Some(PAGE), mode: StreamingMode::WantAll, ..RangeOption::from((begin, end)) };
    let rows = tr.get_range(&option, 1, true).await?;
    let due = rows.iter().map(|row| {
        let (_, id) =
            later::decode(&space.later, row.key()).ok_or_else(|| QueueError::unreadable(row.key()))?;
        place::check_kind(space, &id)?;
        Ok(Due { key: row.key().to_vec(), id, meta: Bytes::copy_from_slice(row.value()) })
    });
    due.collect()
}

async fn values(space: &Space, tr: &Transaction, group: &[Due]) -> Result<Vec<Bytes>, QueueError> {
    try_join_all(group.iter().map(|due| place::body(space, tr, &due.id))).await
}
