//! Removing ready items, for a lease or for good, with as few conflicts as possible.
//!
//! The Erlang program's pop conflicts with every push that commits meanwhile when it finds fewer than it asked for, because
//! the range it read ends where pushes land. Nothing is gained by that: a push can only add items behind those found. So takes
//! and pops read at snapshot isolation and add read conflicts only on what they remove.

use std::num::NonZeroUsize;

use foundationdb::Transaction;
use foundationdb::options::ConflictRangeType;

use crate::keys::{Space, after};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::kind::Kind;
use crate::model::meta::Meta;
use crate::model::sizes::MAX_TAKE_BYTES;
use crate::model::suspicion::{Picked, Suspicion};
use crate::ops::counting::{Becomes, Was, count};
use crate::ops::scan::{Row, decode_meta, decode_record, ends};
use crate::ops::{cost, item_times, partitions, parts, unique};
use crate::run::conflict;
use mutant::mutant;

/// Removes rows that [`find`](crate::ops::ready::find) has read one after the other, with their side records, and counts them as taken; fails at commit if
/// another has taken one.
///
/// Between items of a FIFO queue's partition, and between those of one key, only items come that are given back, so there it is one range. Between items of a recipe's queue
/// pushes may come, so there every item is for itself. Each side record is for itself too: between them may be those of items that
/// foreign programs took, and a sweep needs such a record to find that item's unique key and the rest of its payload.
pub(crate) fn take(space: &Space, tr: &Transaction, rows: &[Row]) -> Result<(), QueueError> {
    remove(space, tr, rows)?;
    count(space, tr, Was::Ready, Becomes::Leased, rows.len());
    Ok(())
}

/// As [`take`], but without counting: that is the caller's.
pub(crate) fn remove(space: &Space, tr: &Transaction, rows: &[Row]) -> Result<(), QueueError> {
    let Some((low, high)) = ends(space, rows) else { return Ok(()) };
    if space.kind == Kind::Fifo && rows.iter().any(|row| row.id.partition() != low.partition()) {
        return partitions::apart(rows).iter().try_for_each(|rows| remove(space, tr, rows));
    }
    let (begin, end) = (space.ready_key(low), after(&space.ready_key(high)));
    let conflicts = !mutant("take-without-conflict");
    // Before the clear: a transaction does not conflict on what it has itself overwritten.
    if space.kind.is_stamped() {
        if conflicts {
            tr.add_conflict_range(&begin, &end, ConflictRangeType::Read)?;
        }
        tr.clear_range(&begin, &end);
    } else {
        for key in rows.iter().map(|row| space.ready_key(&row.id)) {
            if conflicts {
                conflict::as_reader(tr, &key)?;
            }
            tr.clear(&key);
        }
    }
    for row in rows.iter().filter(|row| !row.meta.is_empty()) {
        tr.clear(&space.meta_key(&row.id));
    }
    Ok(())
}

/// Clears what goes with an item until it has been done or taken for good: the rest of its payload, the rows of its times, and its unique key, unless that is
/// taken for a time.
pub(crate) fn forget(space: &Space, tr: &Transaction, id: &ItemId, record: &[u8]) -> Result<(), QueueError> {
    forget_then(space, tr, id, record, |meta| unique::of_ended(space, tr, id, meta))
}

/// The same of an item that ends without being done, or goes elsewhere: its unique key is free at once.
pub(crate) fn forget_undone(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
    record: &[u8],
) -> Result<(), QueueError> {
    forget_then(space, tr, id, record, |meta| unique::of_undone(space, tr, id, meta))
}

fn forget_then(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
    record: &[u8],
    free_key: impl FnOnce(&Meta),
) -> Result<(), QueueError> {
    if record.is_empty() {
        return Ok(());
    }
    let meta = decode_record(space, id, record)?;
    parts::clear(space, tr, id, meta.payload_len);
    item_times::clear(space, tr, id, &meta);
    free_key(&meta);
    Ok(())
}

/// Which of these rows, at most `k`, one take gets: together no more than [`MAX_TAKE_BYTES`].
///
/// Rows that are more suspect than `allows` are passed over. The first of the others decides: the take gets rows that are as suspect as
/// that one, and of suspects only a small group. `is_free` says which rows are still to be had.
pub(crate) fn pick(
    space: &Space,
    rows: &[Row],
    k: NonZeroUsize,
    is_free: impl Fn(usize) -> bool,
    allows: impl Fn() -> Suspicion,
) -> Result<(Picked, Suspicion), QueueError> {
    let (mut picked, mut bytes, mut group) = (Picked::default(), 0, k.get());
    let mut first: Option<Suspicion> = None;
    for (at, row) in rows.iter().enumerate().filter(|(at, _)| is_free(*at)) {
        if picked.len >= group {
            break;
        }
        let (size, suspicion) = match row.meta.is_empty() {
            true => (cost::take_plain(space, row.id.as_bytes().len(), row.value.len()), Suspicion::None),
            false => {
                let meta = decode_meta(space, row)?;
                (size(space, row, &meta), Suspicion::of(meta.crashes))
            }
        };
        match first {
            None if suspicion > Suspicion::None && suspicion > allows() => continue,
            None => {
                first = Some(suspicion);
                group = suspicion.group(group);
            }
            Some(first) if first != suspicion => continue,
            Some(_) => {}
        }
        bytes = size.saturating_add(bytes);
        if picked.len > 0 && bytes > MAX_TAKE_BYTES {
            break;
        }
        picked.add(at);
    }
    Ok((picked, first.unwrap_or(Suspicion::None)))
}

/// How many of the first rows no take may get that is allowed only what `allows` says.
pub(crate) fn passed_over(
    space: &Space,
    rows: &[Row],
    allows: impl Fn() -> Suspicion,
) -> Result<usize, QueueError> {
    for (at, row) in rows.iter().enumerate() {
        let crashes = if row.meta.is_empty() { 0 } else { decode_meta(space, row)?.crashes };
        if crashes == 0 || Suspicion::of(crashes) <= allows() {
            return Ok(at);
        }
    }
    Ok(rows.len())
}

/// Removes the rows that were picked, and counts them as taken; fails at commit if another has taken one. Returns them.
pub(crate) fn take_picked(
    space: &Space,
    tr: &Transaction,
    mut rows: Vec<Row>,
    picked: &Picked,
) -> Result<Vec<Row>, QueueError> {
    for run in &picked.runs {
        take(space, tr, &rows[run.clone()])?;
    }
    let mut picked = picked.places().peekable();
    let mut at = 0;
    rows.retain(|_| {
        at += 1;
        picked.next_if(|place| *place == at - 1).is_some()
    });
    Ok(rows)
}

/// The bytes that an item adds to a fetch: those of the transaction, and those of its payload that are stored elsewhere.
pub(crate) fn size(space: &Space, row: &Row, meta: &Meta) -> usize {
    let payload = meta.payload_len.and_then(|len| usize::try_from(len).ok()).unwrap_or(0);
    cost::take(space, row, meta).saturating_add(payload.saturating_sub(row.value.len()))
}

/// The bytes of fetching these rows, as the database counts them.
pub(crate) fn cost_of(space: &Space, rows: &[Row]) -> Result<usize, QueueError> {
    rows.iter().try_fold(0, |bytes, row| Ok(bytes + cost::take(space, row, &decode_meta(space, row)?)))
}
