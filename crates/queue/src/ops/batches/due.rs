//! Closing the batches of a queue that are complete or due, some of them in one transaction.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use foundationdb::Transaction;
use foundationdb::future::FdbKeyValue;
use foundationdb::options::MutationType;
use futures::future::{try_join, try_join_all, try_join3};
use mutant::{bound, mutant};

use super::{clear, read};
use crate::keys::Space;
use crate::keys::batches::{BatchSpace, Record, Unique, mark_version};
use crate::model::error::QueueError;
use crate::model::item_batch::{BatchCounts, BatchId, CloseReason, ClosedBatch, NewBatch};
use crate::model::new_item::NewItem;
use crate::model::rng::Rng;
use crate::model::time::{Millis, from_millis};
use crate::ops::push::Entry;
use crate::ops::schedule::write::pusher;
use crate::ops::{kinds, went_back};
use crate::run::pause::check_unfrozen;
use crate::run::range_read::RangeRead;

/// The most rows of one transaction. A batch has two at most.
fn page_rows() -> usize {
    bound("due-batch-rows", 100)
}
/// How many callbacks are read at once.
fn together() -> usize {
    bound("due-batches-together", 16)
}
/// Among the marks of so many pages the oldest are found.
const MARKS: usize = 8;
/// About how many bytes of callbacks one transaction pushes.
fn page_bytes() -> usize {
    bound("due-batch-bytes", 1 << 20)
}
/// When a batch that this version cannot close is looked at again, in milliseconds.
const AGAIN: Millis = 60_000;

/// What one transaction did.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClosedPage {
    /// Batches that have called back.
    pub(crate) closed: Vec<ClosedBatch>,
    /// Batches that were due, and that this version cannot read, or whose callbacks a queue of this kind cannot have.
    pub(crate) unusable: Vec<BatchId>,
    /// Whether it has written something.
    pub(crate) has_written: bool,
    /// Whether there were more than one transaction closes.
    pub(crate) is_full: bool,
}

/// A batch of one row or two.
#[derive(Debug, Default)]
struct Rows {
    /// The value of its mark.
    mark: Option<Vec<u8>>,
    /// The time of its deadline's row.
    deadline: Option<Millis>,
}

/// A batch that is to be closed.
struct Closing {
    closed: ClosedBatch,
    rows: Rows,
    record: Record,
}

/// Closes what is complete or due at `now`, and clears the marks of other batches. The callbacks expire after `ttl`.
///
/// A mark is cleared if it still has the value that was read: an end that is committed meanwhile sets another one. So a sweeper does not
/// conflict with the ends of members. Two sweepers conflict on the record.
///
/// # Errors
/// The error of the first row, if that cannot be read and there is nothing else to do.
pub(crate) async fn close_due(
    space: &Arc<Space>,
    tr: &Transaction,
    (now, ttl): (Millis, Option<Duration>),
    rng: &mut Rng,
) -> Result<ClosedPage, QueueError> {
    let keys = space.batches();
    let (due, is_full) = due_rows(&keys, tr, now).await?;
    if due.is_empty() {
        return Ok(ClosedPage::default());
    }
    let checks = (check_unfrozen(space, tr), went_back::check(space, tr), kinds::check_stamped(space, tr));
    try_join3(checks.0, checks.1, checks.2).await?;
    let found = try_join_all(due.keys().map(async |id| {
        let record = async { QueueError::if_readable(read::record(&keys, tr, *id).await) };
        try_join(record, read::counts(&keys, tr, *id)).await
    }));
    let found = found.await?;
    let mut page = ClosedPage { has_written: true, is_full, ..ClosedPage::default() };
    let mut closing = Vec::new();
    for ((unique, rows), (record, counts)) in due.into_iter().zip(found) {
        let id = BatchId::with_unique(&space.name, unique);
        let record = match record {
            Ok(Some(record)) => record,
            // Nobody leaves rows of a batch that is gone.
            Ok(None) => {
                rows.clear(&keys, tr, unique);
                continue;
            }
            Err(_) => {
                rows.put_off(&keys, tr, (unique, None), now);
                page.unusable.push(id);
                continue;
            }
        };
        let Some(reason) = reason(&record, &counts, now) else {
            rows.clear(&keys, tr, unique);
            // The row of a deadline that has not come belongs at another time.
            if let Some(row) = record.row.filter(|row| *row > now) {
                tr.set(&keys.due_key(row, unique), &[]);
            }
            continue;
        };
        let (created, is_committed) = (from_millis(record.created), record.committed.is_some());
        let closed = ClosedBatch { id, reason, created, is_committed, counts };
        closing.push(Closing { closed, rows, record });
    }
    let closing = with_callbacks(&keys, tr, closing, (now, ttl), &mut page).await?;
    call_back(space, &keys, tr, closing, (now, rng), &mut page).await?;
    Ok(page)
}

/// Reads what batches push in the end, of as many as fit into the transaction.
async fn with_callbacks(
    keys: &BatchSpace,
    tr: &Transaction,
    batches: Vec<Closing>,
    (now, ttl): (Millis, Option<Duration>),
    page: &mut ClosedPage,
) -> Result<Vec<(Closing, NewItem)>, QueueError> {
    let (mut closing, mut bytes) = (Vec::new(), 0);
    let mut batches = batches.into_iter();
    loop {
        let group: Vec<_> = batches.by_ref().take(together()).collect();
        if group.is_empty() {
            return Ok(closing);
        }
        let callbacks = group.iter().map(async |Closing { closed, record, .. }| {
            QueueError::if_readable(read::callback(keys, tr, closed.id.unique(), record).await)
        });
        let callbacks = try_join_all(callbacks).await?;
        for (of, callback) in group.into_iter().zip(callbacks) {
            let Ok(callback) = callback else {
                of.rows.put_off(keys, tr, (of.closed.id.unique(), Some(of.record)), now);
                page.unusable.push(of.closed.id);
                continue;
            };
            let ClosedBatch { id, reason, counts, .. } = &of.closed;
            let mut item = NewBatch::new(callback).item(id, *reason, counts, now);
            item.expires = ttl.and_then(|ttl| from_millis(now).checked_add(ttl));
            bytes += item.weight();
            if bytes > page_bytes() && !closing.is_empty() {
                page.is_full = true;
                return Ok(closing);
            }
            closing.push((of, item));
        }
    }
}

/// The rows that are due, by batch, and whether there may be more. Read without a conflict: the records have one.
async fn due_rows(
    keys: &BatchSpace,
    tr: &Transaction,
    now: Millis,
) -> Result<(BTreeMap<Unique, Rows>, bool), QueueError> {
    // Deadlines have a part of the page of their own, since marks may come faster than a sweeper closes batches.
    let (marks, deadlines) = try_join(
        RangeRead::of(keys.marks()).limit(MARKS * page_rows()).page(tr),
        RangeRead::of(keys.deadlines_by(now)).limit(page_rows().div_ceil(2)).page(tr),
    )
    .await?;
    let mut due: BTreeMap<Unique, Rows> = BTreeMap::new();
    for (time, id) in deadlines.iter().filter_map(|row| keys.decode_due(row.key())) {
        due.entry(id).or_default().deadline = Some(time);
    }
    // The oldest marks: their rows are in the order of ids, and those in front may be set again and again.
    let mark = |row: &FdbKeyValue| {
        Some((mark_version(row.value()), keys.decode_due(row.key())?.1, row.value().to_vec()))
    };
    let mut oldest: Vec<_> = marks.iter().filter_map(mark).collect();
    oldest.sort_unstable();
    let room = page_rows().saturating_sub(due.len()).max(1);
    let is_full = oldest.len() > room || marks.next().is_some() || deadlines.next().is_some();
    for (_, id, value) in oldest.into_iter().take(room) {
        due.entry(id).or_default().mark = Some(value);
    }
    Ok((due, is_full))
}

/// Why a batch is to be closed now, if it is.
fn reason(record: &Record, counts: &BatchCounts, now: Millis) -> Option<CloseReason> {
    if record.committed.is_some() && counts.ended() >= counts.members {
        return Some(CloseReason::Complete);
    }
    record.deadline.filter(|deadline| *deadline <= now).map(|_| CloseReason::Deadline)
}

/// Pushes callbacks, and removes their batches. A callback that cannot be pushed must not stop the others.
async fn call_back(
    space: &Arc<Space>,
    keys: &BatchSpace,
    tr: &Transaction,
    closing: Vec<(Closing, NewItem)>,
    (now, rng): (Millis, &mut Rng),
    page: &mut ClosedPage,
) -> Result<(), QueueError> {
    let (possible, impossible): (Vec<_>, Vec<_>) =
        closing.into_iter().partition(|(_, item)| item.check(space.kind, usize::MAX).is_ok());
    for (Closing { closed, rows, record }, _) in impossible {
        rows.put_off(keys, tr, (closed.id.unique(), Some(record)), now);
        page.unusable.push(closed.id);
    }
    let entries: Vec<Entry<'_>> = possible.iter().map(|(_, item)| Entry::from(item)).collect();
    if !entries.is_empty() {
        pusher(space, tr, rng).place(&entries, None).await?;
    }
    for (Closing { closed, rows, record }, _) in possible {
        if !mutant("batch-calls-back-again") {
            rows.clear(keys, tr, closed.id.unique());
            clear(keys, tr, closed.id.unique(), record.row);
        }
        page.closed.push(closed);
    }
    Ok(())
}

impl Rows {
    /// Clears the mark, unless members have ended since it was read, and the row of the deadline.
    fn clear(&self, keys: &BatchSpace, tr: &Transaction, id: Unique) {
        if let Some(value) = &self.mark {
            let key = keys.mark_key(id);
            if mutant("batch-mark-cleared-blindly") {
                tr.clear(&key);
            } else {
                tr.atomic_op(&key, value, MutationType::CompareAndClear);
            }
        }
        if let Some(time) = self.deadline {
            tr.clear(&keys.due_key(time, id));
        }
    }

    /// Moves the rows of a batch that cannot be closed, so that they do not stand before the others.
    fn put_off(
        &self,
        keys: &BatchSpace,
        tr: &Transaction,
        (id, record): (Unique, Option<Record>),
        now: Millis,
    ) {
        self.clear(keys, tr, id);
        let again = now.saturating_add(AGAIN);
        match record {
            Some(record) => {
                if let Some(row) = record.row {
                    tr.clear(&keys.due_key(row, id));
                }
                tr.set(&keys.record_key(id), &Record { row: Some(again), ..record }.encode());
                tr.set(&keys.due_key(again, id), &[]);
            }
            // The record cannot be read, so it keeps its row, if it has one.
            None => tr.set(&keys.due_key(again, id), &[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use mutant::Bounds;

    use super::*;
    use crate::client::queue::Queue;
    use crate::testing::on_database;

    #[test]
    fn a_page_has_deadlines_and_the_oldest_marks() {
        on_database(async |db| {
            let _bounds = Bounds::default().with("due-batch-rows", 4).enter();
            let keys = Queue::new(b"", b"q").unwrap().space().batches();
            let tr = db.create_trx().unwrap();
            for n in 0..10_u8 {
                // The last ones have the oldest marks.
                let version = u64::from(100 - n).to_be_bytes();
                tr.set(&keys.mark_key([n; 16]), &[&version[..], &[0; 4]].concat());
            }
            tr.set(&keys.due_key(5, [20; 16]), &[]);
            tr.set(&keys.due_key(500, [21; 16]), &[]);
            let (due, is_full) = due_rows(&keys, &tr, 10).await.unwrap();
            let ids: Vec<u8> = due.keys().map(|id| id[0]).collect();
            assert_eq!((ids, is_full), (vec![7, 8, 9, 20], true));
            for n in 0..9 {
                tr.clear(&keys.mark_key([n; 16]));
            }
            let (due, is_full) = due_rows(&keys, &tr, 10).await.unwrap();
            assert_eq!((due.len(), is_full), (2, false));
        });
    }
}
