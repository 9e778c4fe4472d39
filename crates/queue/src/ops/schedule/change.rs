//! Changing schedules: put, remove, pause, resume, and an item by hand.

use std::sync::Arc;
use std::time::Duration;

use foundationdb::Transaction;
use kvqueue_calendar::TimeCount;

use crate::keys::Space;
use crate::keys::schedules::state::{State, Waiting};
use crate::keys::schedules::{ScheduleSpace, definition};
use crate::model::error::QueueError;
use crate::model::pushed::PushEffect;
use crate::model::rng::Rng;
use crate::model::schedule::{
    Calendar, OccurrenceRecord, Outcome, PutEffect, Schedule, ScheduleError, SkipReason,
};
use crate::model::time::{Millis, from_millis};
use crate::ops::push::Entry;
use crate::ops::schedule::fire::Firing;
use crate::ops::schedule::read::{Stored, is_full, stored};
use crate::ops::schedule::write;
use crate::ops::schedule::write::{Ids, PENDING, Writing, pusher, wake_sweepers};
use crate::ops::{kinds, went_back};
use crate::run::pause::check_unfrozen;
use crate::run::range_read::RangeRead;

/// How many times that are skipped are counted, if each has to be computed.
const COUNTED: u64 = 1_000;

/// Stores a schedule that has been checked.
pub(crate) async fn put(
    space: &Space,
    tr: &Transaction,
    schedule: &Schedule,
    now: Millis,
) -> Result<PutEffect, ScheduleError> {
    let (keys, name) = (space.schedules(), schedule.name.as_str());
    let offset = schedule.offset_millis(&space.name);
    let writing = Writing { keys: &keys, tr, name, offset, now, ids: Ids::Known };
    let Some(old) = stored(&keys, tr, name).await? else {
        if is_full(&keys, tr).await? {
            return Err(ScheduleError::TooMany);
        }
        check_unfrozen(space, tr).await?;
        let next = schedule.calendar.next_after(now);
        store(space, &writing, schedule, None, State { mark: now, next, ..State::default() });
        return Ok(PutEffect::Created);
    };
    let Some((current, mut state)) = old.schedule.zip(old.state) else {
        return Err(ScheduleError::Unreadable { name: name.to_owned() });
    };
    if !current.belongs_to(schedule.owner.as_deref()) {
        return Err(ScheduleError::OtherOwner { name: name.to_owned(), owner: current.owner });
    }
    if current == *schedule {
        return Ok(PutEffect::Unchanged);
    }
    check_unfrozen(space, tr).await?;
    let (old_row, calendar) = (state.row, !current.calendar.has_times_of(&schedule.calendar));
    if calendar {
        skip_due(&writing, &current.calendar, &mut state, SkipReason::Redefined);
        state.next = schedule.calendar.next_after(state.mark);
    }
    store(space, &writing, schedule, old_row, state);
    Ok(PutEffect::Replaced { calendar })
}

fn store(
    space: &Space,
    writing: &Writing<'_>,
    schedule: &Schedule,
    old_row: Option<Millis>,
    mut state: State,
) {
    writing.tr.set(&writing.keys.definition_key(writing.name), &definition::encode(schedule));
    writing.state(old_row, &mut state);
    wake_sweepers(space, writing.tr);
}

/// Records that what is due by a calendar does not fire, and neither does an occurrence that waits. The mark does not go back, so no nominal
/// time fires twice, whatever calendar comes next.
fn skip_due(writing: &Writing<'_>, calendar: &Calendar, state: &mut State, reason: SkipReason) {
    if let Some(Waiting { nominal, .. }) = state.waiting.take() {
        skip(writing, state, (nominal, nominal), TimeCount { times: 1, is_exact: true }, reason);
    }
    let until = writing.now.saturating_sub(writing.offset);
    let newest = calendar.last_at_or_before(until);
    let due = calendar.next_after(state.mark).zip(newest).filter(|(first, newest)| first <= newest);
    if let Some((from, to)) = due {
        skip(writing, state, (from, to), calendar.count(from, to, COUNTED), reason);
    }
    state.mark = state.mark.max(until);
}

fn skip(
    writing: &Writing<'_>,
    state: &mut State,
    (from, to): (Millis, Millis),
    count: TimeCount,
    reason: SkipReason,
) {
    let TimeCount { times: count, is_exact } = count;
    let (at, outcome) = (from_millis(writing.now), Outcome::Skipped(reason));
    let (from, to) = (from_millis(from), from_millis(to));
    let mut record = OccurrenceRecord { number: 0, at, from, to, count, is_exact, outcome };
    writing.record(state, &mut record);
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
    let mut pages = RangeRead::of(keys.due.all()).growing().pages(tr);
    while let Some(rows) = pages.next_page().await? {
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
    let offset = schedule.offset_millis(&space.name);
    let old_row = state.row;
    let mut state = State { paused: Some(now), ..state };
    Writing { keys: &keys, tr, name, offset, now, ids: Ids::Known }.state(old_row, &mut state);
    Ok(Some(true))
}

/// Ends a pause, as [`pause`] begins it. What is due is skipped.
pub(crate) async fn resume(
    space: &Space,
    tr: &Transaction,
    name: &str,
    now: Millis,
) -> Result<Option<bool>, QueueError> {
    let keys = space.schedules();
    let Some((schedule, mut state)) = readable(&keys, tr, name).await? else { return Ok(None) };
    if state.paused.take().is_none() {
        return Ok(Some(false));
    }
    check_unfrozen(space, tr).await?;
    let offset = schedule.offset_millis(&space.name);
    let writing = Writing { keys: &keys, tr, name, offset, now, ids: Ids::Known };
    let old_row = state.row;
    skip_due(&writing, &schedule.calendar, &mut state, SkipReason::Paused);
    state.next = schedule.calendar.next_after(state.mark);
    writing.state(old_row, &mut state);
    wake_sweepers(space, tr);
    Ok(Some(true))
}

/// Lets a schedule begin at `now`, wherever its mark is; returns whether it is there. What is due is skipped, and a pause ends.
pub(crate) async fn restart(
    space: &Space,
    tr: &Transaction,
    name: &str,
    now: Millis,
) -> Result<bool, QueueError> {
    let keys = space.schedules();
    let Some((schedule, mut state)) = readable(&keys, tr, name).await? else { return Ok(false) };
    check_unfrozen(space, tr).await?;
    let offset = schedule.offset_millis(&space.name);
    let writing = Writing { keys: &keys, tr, name, offset, now, ids: Ids::Known };
    let old_row = state.row;
    state.paused = None;
    skip_due(&writing, &schedule.calendar, &mut state, SkipReason::Restarted);
    state.mark = now.saturating_sub(offset);
    state.next = schedule.calendar.next_after(state.mark);
    writing.state(old_row, &mut state);
    wake_sweepers(space, tr);
    Ok(true)
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

/// Pushes an item of a schedule out of turn, which expires after `ttl`.
pub(crate) async fn fire_by_hand(
    space: &Arc<Space>,
    tr: &Transaction,
    name: &str,
    (now, ttl): (Millis, Option<Duration>),
    rng: &mut Rng,
) -> Result<ByHandEffect, QueueError> {
    let keys = space.schedules();
    let Some((schedule, state)) = readable(&keys, tr, name).await? else { return Ok(ByHandEffect::Gone) };
    if schedule.check(space.kind).is_err() {
        return Err(QueueError::unreadable(&keys.definition_key(name)));
    }
    futures::future::try_join(went_back::check(space, tr), kinds::check_stamped(space, tr)).await?;
    let item = schedule.item(now, state.occurrences + 1, now, ttl);
    let placed = pusher(space, tr, rng).place(&[Entry::from(&item)], None).await?;
    let added = placed.items(Some(PENDING)).next().filter(|item| item.effect == PushEffect::Added);
    let Some(id) = added.map(|item| item.id) else { return Ok(ByHandEffect::Overlaps) };
    let (number, offset, ids) = (state.records, schedule.offset_millis(&space.name), Ids::of(space));
    let writing = Writing { keys: &keys, tr, name, offset, now, ids };
    let old_row = state.row;
    let mut firing = Firing { writing, schedule: &schedule, old_row, state, records: Vec::new() };
    firing.fired(now, id, |id, occurrence| Outcome::FiredByHand { id, occurrence });
    firing.store();
    Ok(ByHandEffect::Fired(number))
}
