//! Writing the state of a schedule, its rows by time, and its log.

use foundationdb::Transaction;
use foundationdb::options::MutationType;

use crate::item::Stamp;
use crate::keys::schedules::state::State;
use crate::keys::schedules::{ScheduleSpace, log, state};
use crate::keys::{Space, counters};
use crate::meta::Millis;
use crate::schedule::OccurrenceRecord;
use mutant::mutant;

/// The stamp of a transaction in the id of an item that it pushes: the database fills it in.
pub(crate) const PENDING: [u8; 10] = [0xff; 10];

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

/// Stores a state in the place of `old`, with its rows by time. `offset` is how far the schedule's times are moved.
pub(crate) fn state(
    keys: &ScheduleSpace,
    tr: &Transaction,
    name: &str,
    old: Option<&State>,
    (new, offset): (&mut State, Millis),
    ids: Ids,
) {
    if let Some(old) = old {
        rows(keys, name, old).iter().for_each(|(key, _)| tr.clear(key));
    }
    let next = new.next.map(|next| next.saturating_add(offset));
    let look_again = new.waiting.map(|waiting| waiting.look_again);
    new.row = next.into_iter().chain(look_again).min().filter(|_| new.paused.is_none());
    rows(keys, name, new).iter().for_each(|(key, value)| tr.set(key, value));
    let ids = if new.last.is_some() { ids } else { Ids::Known };
    set(tr, &keys.state_key(name), state::encode(new), ids);
}

/// The rows by time of a schedule: when it is due, and its gaps. One that is paused has none.
fn rows(keys: &ScheduleSpace, name: &str, state: &State) -> Vec<(Vec<u8>, Vec<u8>)> {
    if state.paused.is_some() {
        return Vec::new();
    }
    let due = state.row.map(|time| (keys.due_key(time, name), Vec::new()));
    let gaps = state.gaps.iter().map(|gap| (keys.gap_key(gap.to, name), gap.row.to_le_bytes().to_vec()));
    due.into_iter().chain(gaps).collect()
}

/// Clears all that there is of a schedule.
pub(crate) fn clear(keys: &ScheduleSpace, tr: &Transaction, name: &str, state: &State) {
    rows(keys, name, state).iter().for_each(|(key, _)| tr.clear(key));
    let (begin, end) = keys.log_before(name, None);
    tr.clear_range(&begin, &end);
    tr.clear(&keys.definition_key(name));
    tr.clear(&keys.state_key(name));
}

/// Appends a record to the log, gives it its number, and drops the oldest of too many.
pub(crate) fn record(
    keys: &ScheduleSpace,
    tr: &Transaction,
    name: &str,
    state: &mut State,
    record: &mut OccurrenceRecord,
    ids: Ids,
) {
    record.number = state.records;
    state.records += 1;
    let ids = if record.outcome.id().is_some() { ids } else { Ids::Known };
    set(tr, &keys.log_key(name, record.number), log::encode(record), ids);
    if let Some(first) = state.records.checked_sub(log::KEPT)
        && !mutant("schedule-log-grows")
    {
        let (begin, end) = keys.log_before(name, Some(first));
        tr.clear_range(&begin, &end);
    }
}

/// Wakes everybody who waits for the next time of a schedule.
pub(crate) fn count_change(keys: &ScheduleSpace, tr: &Transaction) {
    tr.atomic_op(&keys.changes, &counters::increment(1), MutationType::Add);
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
