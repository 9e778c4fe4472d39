//! Writing the state of a schedule, its row by time, and its log.

use std::sync::Arc;

use foundationdb::Transaction;
use foundationdb::options::MutationType;
use mutant::mutant;

use crate::keys::schedules::state::State;
use crate::keys::schedules::{ScheduleSpace, log, state};
use crate::keys::{Counter, Space, counters};
use crate::model::rng::Rng;
use crate::model::schedule::OccurrenceRecord;
use crate::model::stamp::Stamp;
use crate::model::time::Millis;
use crate::ops::push::Pusher;

/// The stamp of a transaction in the id of an item that it pushes: the database fills it in.
pub(crate) const PENDING: [u8; 10] = [0xff; 10];

/// A schedule is looked at after this time at the latest, even if nothing is due then: an upgrade of kvqueue may bring new rules of a time
/// zone, and with them another next time. A day, in milliseconds.
const LOOK_EVERY: Millis = 24 * 3_600_000;

/// Whether the id of a new item has the stamp of its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ids {
    /// The database fills in the stamp.
    Pending,
    /// The id is known.
    Known,
}

impl Ids {
    /// Of new items of a queue.
    pub(crate) fn of(space: &Space) -> Ids {
        if space.kind.is_stamped() { Ids::Pending } else { Ids::Known }
    }
}

/// A schedule whose state is written, in a transaction at `now`.
#[derive(Clone, Copy)]
pub(crate) struct Writing<'a> {
    pub(crate) keys: &'a ScheduleSpace,
    pub(crate) tr: &'a Transaction,
    pub(crate) name: &'a str,
    /// How much later than its nominal times it fires.
    pub(crate) offset: Millis,
    pub(crate) now: Millis,
    pub(crate) ids: Ids,
}

impl Writing<'_> {
    /// Stores a state, and moves the schedule's row from `old_row` to where it belongs.
    pub(crate) fn state(&self, old_row: Option<Millis>, new: &mut State) {
        let Writing { keys, tr, name, .. } = *self;
        let next = new.next.map(|next| next.saturating_add(self.offset));
        let look_again = new.waiting.map(|waiting| waiting.look_again);
        let first = next.into_iter().chain(look_again).min();
        let latest = self.now.saturating_add(LOOK_EVERY);
        new.row = first.map(|first| first.min(latest)).filter(|_| new.paused.is_none());
        if let Some(row) = old_row {
            tr.clear(&keys.due_key(row, name));
        }
        if let Some(row) = new.row {
            tr.set(&keys.due_key(row, name), &[]);
        }
        let ids = if new.last.is_some() { self.ids } else { Ids::Known };
        set(tr, &keys.state_key(name), state::encode(new), ids);
    }

    /// Appends a record to the log, gives it its number, and drops the oldest of too many.
    pub(crate) fn record(&self, state: &mut State, record: &mut OccurrenceRecord) {
        let Writing { keys, tr, name, .. } = *self;
        record.number = state.records;
        state.records += 1;
        let ids = if record.outcome.id().is_some() { self.ids } else { Ids::Known };
        set(tr, &keys.log_key(name, record.number), log::encode(record), ids);
        if let Some(first) = state.records.checked_sub(log::KEPT)
            && !mutant("schedule-log-grows")
        {
            let (begin, end) = keys.log_before(name, Some(first));
            tr.clear_range(&begin, &end);
        }
    }
}

/// Clears all that there is of a schedule but its row by time.
pub(crate) fn clear(keys: &ScheduleSpace, tr: &Transaction, name: &str) {
    let (begin, end) = keys.log_before(name, None);
    tr.clear_range(&begin, &end);
    tr.clear(&keys.definition_key(name));
    tr.clear(&keys.state_key(name));
}

/// Wakes the sweepers, which watch `nlater`: adds one to it and to `ndue`, so that their difference stays the number of scheduled items.
pub(crate) fn wake_sweepers(space: &Space, tr: &Transaction) {
    for counter in [space.counter(Counter::Later), space.counter(Counter::Due)] {
        tr.atomic_op(counter, &counters::increment(1), MutationType::Add);
    }
}

/// The pusher of a transaction that fires. Random numbers decide at which partition it begins, so that a simulation can be repeated.
pub(crate) fn pusher<'t>(space: &Arc<Space>, tr: &'t Transaction, rng: &mut Rng) -> Pusher<'t> {
    let turn = rng.next();
    Pusher::alone(Arc::clone(space), tr).with_rng(rng.split()).with_turn(turn, false)
}

/// Sets a value that ends with an item's id.
fn set(tr: &Transaction, key: &[u8], mut value: Vec<u8>, ids: Ids) {
    // A state whose last item is of an earlier transaction has no placeholder.
    let stamp = value.len().saturating_sub(Stamp::LEN);
    if ids == Ids::Known || value[stamp..].first_chunk() != Some(&PENDING) {
        tr.set(key, &value);
        return;
    }
    let position = u32::try_from(stamp).expect("records are bounded far below 2^32 bytes");
    value.extend_from_slice(&position.to_le_bytes());
    tr.atomic_op(key, &value, MutationType::SetVersionstampedValue);
}
