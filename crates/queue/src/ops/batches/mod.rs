//! Batches: making and changing them, letting items join, counting their members, and closing what is complete or due.
//!
//! The record of a batch is written when the batch is made, committed and closed. Pushes to it and ends of its members read the record with a
//! conflict, and otherwise only add to counters and set the mark. So a member that is counted belongs to a batch that is there, and
//! pushes and ends do not conflict with each other.

pub(crate) mod change;
pub(crate) mod due;
pub(crate) mod ends;
pub(crate) mod join;
pub(crate) mod members;
pub(crate) mod read;

use foundationdb::Transaction;
use foundationdb::options::MutationType;
use mutant::mutant;

use crate::keys::batches::{BatchSpace, PENDING_MARK, Unique};
use crate::keys::counters;

/// Marks a batch, so that the sweeper looks whether it is complete, and wakes the sweepers of its home.
fn mark(keys: &BatchSpace, tr: &Transaction, id: Unique) {
    if mutant("batch-end-unmarked") {
        return;
    }
    tr.atomic_op(&keys.mark_key(id), &PENDING_MARK, MutationType::SetVersionstampedValue);
    wake_sweepers(keys, tr);
}

/// Wakes the sweepers of a home, which watch `nlater`: adds one to it and to `ndue`, so that their difference stays the number of scheduled
/// items.
fn wake_sweepers(keys: &BatchSpace, tr: &Transaction) {
    for counter in [&keys.nlater, &keys.ndue] {
        tr.atomic_op(counter, &counters::increment(1), MutationType::Add);
    }
}

/// Adds to a counter of a batch.
fn add(keys: &BatchSpace, tr: &Transaction, (id, what): (Unique, u8), n: u64) {
    tr.atomic_op(&keys.count_key(id, what), &n.to_le_bytes(), MutationType::Add);
}

/// Removes all that there is of a batch; `row` is the time of its row by time.
fn clear(keys: &BatchSpace, tr: &Transaction, id: Unique, row: Option<u64>) {
    let (begin, end) = keys.counts_of(id);
    tr.clear_range(&begin, &end);
    tr.clear(&keys.record_key(id));
    tr.clear(&keys.item_key(id));
    tr.clear(&keys.mark_key(id));
    if let Some(row) = row {
        tr.clear(&keys.due_key(row, id));
    }
}
