//! Changing schedules: put, remove, pause, resume, and an item by hand.

use std::sync::Arc;

use foundationdb::{RangeOption, Transaction};
use futures::TryStreamExt;

use crate::error::QueueError;
use crate::keys::Space;
use crate::keys::schedules::ScheduleSpace;
use crate::keys::schedules::state::State;
use crate::meta::Millis;
use crate::ops::find::has_keys;
use crate::ops::pause::check_unfrozen;
use crate::ops::push::{Entry, Pusher};
use crate::ops::schedule::fire::Firing;
use crate::ops::schedule::read::{Stored, stored};
use crate::ops::schedule::write::{self, Ids, PENDING, Writing, wake_sweepers};
use crate::ops::{kinds, went_back};
use crate::pushed::PushEffect;
use crate::rng::Rng;
use crate::schedule::{
    MAX_SCHEDULES, OccurrenceRecord, Outcome, PutEffect, Schedule, ScheduleError, SkipReason,
};

/// A mark that is further ahead than this was set by a clock that was wrong: an hour, in milliseconds.
const WRONG_CLOCK: Millis = 3_600_000;

/// Stores a schedule that has been checked.
pub(crate) async fn put(
    space: &Space,
    tr: &Transaction,
    schedule: &Schedule,
    now: Millis,
) -> Result<PutEffect, ScheduleError> {
    let (keys, name) = (space.schedules(), schedule.name.as_str());
    let old = stored(&keys, tr, name).await?;
    let (effect, old_row, mut state) = match old {
        None => {
            if has_keys(tr, &crate::keys::range(&keys.definitions), MAX_SCHEDULES).await? {
                return Err(ScheduleError::TooMany);
            }
            (PutEffect::Created, None, State { mark: now, ..State::default() })
        }
        Some(old) => {
            let Some((current, state)) = old.schedule.zip(old.state) else {
                return Err(ScheduleError::Unreadable { name: name.to_owned() });
            };
            if current.owner != schedule.owner {
                return Err(ScheduleError::OtherOwner { name: name.to_owned(), owner: current.owner });
            }
            if current == *schedule {
                return Ok(PutEffect::Unchanged);
            }
            (PutEffect::Replaced { calendar: current.calendar != schedule.calendar }, state.row, state)
        }
    };
    check_unfrozen(space, tr).await?;
    let offset = schedule.offset(&space.name);
    let writing = Writing { keys: &keys, tr, name, offset, now, ids: Ids::Known };
    if effect == (PutEffect::Replaced { calendar: true }) {
        skip_due(&writing, &mut state);
    }
    if !matches!(effect, PutEffect::Replaced { calendar: false }) {
        state.next = schedule.calendar.next_after(state.mark);
    }
    tr.set(&keys.definition_key(name), &crate::keys::schedules::definition::encode(schedule));
    writing.state(old_row, &mut state);
    wake_sweepers(space, tr);
    Ok(effect)
}

/// What was due by the old calendar does not fire any more. The mark does not go back, so no nominal time that the two calendars have in
/// common fires twice.
fn skip_due(writing: &Writing<'_>, state: &mut State) {
    let now = writing.now;
    if let Some(from) = state.next.filter(|next| *next <= now) {
        let outcome = Outcome::Skipped(SkipReason::Redefined);
        let mut record =
            OccurrenceRecord { number: 0, at: now, from, to: now, count: 1, is_exact: false, outcome };
        writing.record(state, &mut record);
    }
    state.mark = state.mark.max(now);
}

/// Removes a schedule; returns whether it was there.
pub(crate) async fn remove(space: &Space, tr: &Transaction, name: &str) -> Result<bool, QueueError> {
    let keys = space.schedules();
    let Some(old) = stored(&keys, tr, name).await? else { return Ok(false) };
    check_unfrozen(space, tr).await?;
    match old.state.map(|state| state.row) {
        Some(row) => row.into_iter().for_each(|row| tr.clear(&keys.due_key(row, name))),
        None => clear_rows(&keys, tr, name).await?,
    }
    write::clear(&keys, tr, name);
    Ok(true)
}

/// Clears all rows by time of a schedule whose state cannot be read.
async fn clear_rows(keys: &ScheduleSpace, tr: &Transaction, name: &str) -> Result<(), QueueError> {
    let mut answers = tr.get_ranges(RangeOption::from(keys.all_due()), true);
    while let Some(rows) = answers.try_next().await? {
        let is_its = |key: &[u8]| keys.decode_due(key).is_some_and(|(_, of)| of == name);
        rows.iter().filter(|row| is_its(row.key())).for_each(|row| tr.clear(row.key()));
    }
    Ok(())
}

/// Reads a schedule whose definition and state have to be readable.
async fn readable(
    keys: &ScheduleSpace,
    tr: &Transaction,
    name: &str,
) -> Result<Option<(Schedule, State)>, QueueError> {
    let Some(Stored { schedule, state }) = stored(keys, tr, name).await? else { return Ok(None) };
    let schedule = schedule.ok_or_else(|| QueueError::unreadable(&keys.definition_key(name)))?;
    let state = state.ok_or_else(|| QueueError::unreadable(&keys.state_key(name)))?;
    Ok(Some((schedule, state)))
}

/// Pauses a schedule; `None` if it is not there, otherwise whether that is a change.
pub(crate) async fn pause(
    space: &Space,
    tr: &Transaction,
    name: &str,
    now: Millis,
) -> Result<Option<bool>, QueueError> {
    let keys = space.schedules();
    let Some((schedule, state)) = readable(&keys, tr, name).await? else { return Ok(None) };
    if state.paused.is_some() {
        return Ok(Some(false));
    }
    check_unfrozen(space, tr).await?;
    let offset = schedule.offset(&space.name);
    let old_row = state.row;
    let mut state = State { paused: Some(now), ..state };
    Writing { keys: &keys, tr, name, offset, now, ids: Ids::Known }.state(old_row, &mut state);
    Ok(Some(true))
}

/// Ends a pause, as [`pause`] begins it. What was due is skipped.
///
/// If the mark is far ahead, a clock was wrong, and the schedule would not fire until then. An operator who pauses and resumes it takes the
/// mark back to now.
pub(crate) async fn resume(
    space: &Space,
    tr: &Transaction,
    name: &str,
    now: Millis,
) -> Result<Option<bool>, QueueError> {
    let keys = space.schedules();
    let Some((schedule, state)) = readable(&keys, tr, name).await? else { return Ok(None) };
    if state.paused.is_none() {
        return Ok(Some(false));
    }
    check_unfrozen(space, tr).await?;
    let offset = schedule.offset(&space.name);
    let writing = Writing { keys: &keys, tr, name, offset, now, ids: Ids::Known };
    let old_row = state.row;
    let mut state = State { paused: None, ..state };
    if state.mark > now.saturating_add(WRONG_CLOCK) {
        state.mark = now;
    } else {
        skip_paused(&writing, &schedule, &mut state);
    }
    state.next = schedule.calendar.next_after(state.mark);
    writing.state(old_row, &mut state);
    wake_sweepers(space, tr);
    Ok(Some(true))
}

/// How many times that were due in a pause are counted, if each has to be computed.
const COUNTED: u64 = 1_000;

fn skip_paused(writing: &Writing<'_>, schedule: &Schedule, state: &mut State) {
    let (calendar, now) = (&schedule.calendar, writing.now);
    let newest = calendar.last_at_or_before(now.saturating_sub(writing.offset));
    let due = calendar.next_after(state.mark).zip(newest).filter(|(first, newest)| first <= newest);
    let Some((from, to)) = due else { return };
    let count = calendar.count(from, to, COUNTED);
    let outcome = Outcome::Skipped(SkipReason::Paused);
    let (count, is_exact) = (count.times, count.is_exact);
    let mut record = OccurrenceRecord { number: 0, at: now, from, to, count, is_exact, outcome };
    writing.record(state, &mut record);
    state.mark = to;
}

/// What came of an item by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByHandEffect {
    /// It is pushed; this is the number of its record.
    Fired(u64),
    /// The last item has not ended.
    Overlaps,
    /// There is no schedule of this name.
    Gone,
}

/// Pushes an item of a schedule out of turn.
pub(crate) async fn fire_by_hand(
    space: &Arc<Space>,
    tr: &Transaction,
    name: &str,
    now: Millis,
    rng: &mut Rng,
) -> Result<ByHandEffect, QueueError> {
    let keys = space.schedules();
    let Some((schedule, state)) = readable(&keys, tr, name).await? else { return Ok(ByHandEffect::Gone) };
    if schedule.check(space.kind).is_err() {
        return Err(QueueError::unreadable(&keys.definition_key(name)));
    }
    futures::future::try_join(went_back::check(space, tr), kinds::check_stamped(space, tr)).await?;
    let item = schedule.item(now, state.occurrences + 1, now);
    let mut pusher = Pusher::alone(Arc::clone(space), tr).with_rng(rng.split());
    let placed = pusher.place(&[Entry::from(&item)], None).await?;
    let added = placed.items(Some(PENDING)).next().filter(|item| item.effect == PushEffect::Added);
    let Some(id) = added.map(|item| item.id) else { return Ok(ByHandEffect::Overlaps) };
    let (number, offset, ids) = (state.records, schedule.offset(&space.name), Ids::of(space));
    let writing = Writing { keys: &keys, tr, name, offset, now, ids };
    let old_row = state.row;
    let mut firing = Firing { writing, schedule: &schedule, old_row, state, records: Vec::new() };
    firing.fired(now, id, |id, occurrence| Outcome::FiredByHand { id, occurrence });
    firing.store();
    Ok(ByHandEffect::Fired(number))
}
