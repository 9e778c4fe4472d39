//! Changing schedules: put, remove, pause, resume, and an item by hand.

use std::sync::Arc;

use foundationdb::Transaction;

use crate::error::QueueError;
use crate::keys::Space;
use crate::keys::schedules::ScheduleSpace;
use crate::keys::schedules::state::State;
use crate::meta::Millis;
use crate::ops::find::has_keys;
use crate::ops::pause::check_unfrozen;
use crate::ops::push::{Entry, Pusher};
use crate::ops::schedule::fire::Firing;
use crate::ops::schedule::read::{CLOCK_DIFFERENCE, Stored, stored};
use crate::ops::schedule::write::{self, Ids, PENDING};
use crate::ops::{kinds, went_back};
use crate::pushed::PushEffect;
use crate::rng::Rng;
use crate::schedule::calendar::{last_at_or_before, next_after};
use crate::schedule::{
    Calendar, MAX_SCHEDULES, OccurrenceRecord, Outcome, PutEffect, Schedule, ScheduleError, SkipReason,
};

/// Stores a schedule that has been checked.
pub(crate) async fn put(
    space: &Space,
    tr: &Transaction,
    schedule: &Schedule,
    now: Millis,
    calendar: &dyn Calendar,
) -> Result<PutEffect, ScheduleError> {
    check_unfrozen(space, tr).await?;
    let (keys, name) = (space.schedules(), schedule.name.as_str());
    let Some(old) = stored(&keys, tr, name).await? else {
        if has_keys(tr, &crate::keys::range(&keys.definitions), MAX_SCHEDULES).await? {
            return Err(ScheduleError::TooMany);
        }
        let mut state = State { mark: now, next: next_after(calendar, now), ..State::default() };
        tr.set(&keys.definition_key(name), &schedule.encode());
        write::state(&keys, tr, name, None, (&mut state, schedule.offset(&space.name)), Ids::Known);
        write::count_change(&keys, tr);
        return Ok(PutEffect::Made);
    };
    if let Some(of) = old.schedule.as_ref().filter(|of| of.owner != schedule.owner) {
        return Err(ScheduleError::OtherOwner { name: name.to_owned(), owner: of.owner.clone() });
    }
    if old.schedule.as_ref() == Some(schedule) {
        return Ok(PutEffect::Unchanged);
    }
    let mut state = old.state.clone();
    if old.schedule.as_ref().is_none_or(|of| of.expression != schedule.expression) {
        redefine(&keys, tr, name, &mut state, now);
        state.next = next_after(calendar, state.mark);
    }
    tr.set(&keys.definition_key(name), &schedule.encode());
    write::state(&keys, tr, name, Some(&old.state), (&mut state, schedule.offset(&space.name)), Ids::Known);
    write::count_change(&keys, tr);
    Ok(PutEffect::Replaced)
}

/// Times of the old expression that are due fire no more. The mark does not go back by less than clocks may differ, so no nominal
/// time fires a second time that the two expressions have in common.
fn redefine(keys: &ScheduleSpace, tr: &Transaction, name: &str, state: &mut State, now: Millis) {
    if let Some(next) = state.next.filter(|next| *next <= now && state.paused.is_none()) {
        let outcome = Outcome::Skipped(SkipReason::Redefined);
        let mut record =
            OccurrenceRecord { number: 0, at: now, from: next, to: now, count: 1, is_exact: false, outcome };
        write::record(keys, tr, name, state, &mut record, Ids::Known);
    }
    let is_near = state.mark <= now.saturating_add(CLOCK_DIFFERENCE);
    state.mark = if is_near { state.mark.max(now) } else { now };
    state.gaps.clear();
}

/// Removes a schedule; returns whether it was there.
pub(crate) async fn remove(space: &Space, tr: &Transaction, name: &str) -> Result<bool, QueueError> {
    check_unfrozen(space, tr).await?;
    let keys = space.schedules();
    let Some(old) = stored(&keys, tr, name).await? else { return Ok(false) };
    write::clear(&keys, tr, name, &old.state);
    write::count_change(&keys, tr);
    Ok(true)
}

/// Pauses a schedule; `None` if it is not there, otherwise whether that is a change.
pub(crate) async fn pause(
    space: &Space,
    tr: &Transaction,
    name: &str,
    now: Millis,
) -> Result<Option<bool>, QueueError> {
    check_unfrozen(space, tr).await?;
    let keys = space.schedules();
    let Some(old) = stored(&keys, tr, name).await? else { return Ok(None) };
    if old.state.paused.is_some() {
        return Ok(Some(false));
    }
    let mut state = State { paused: Some(now), ..old.state.clone() };
    write::state(&keys, tr, name, Some(&old.state), (&mut state, offset(space, &old)), Ids::Known);
    write::count_change(&keys, tr);
    Ok(Some(true))
}

/// Ends a pause, as [`pause`] begins it. What was due meanwhile is skipped.
pub(crate) async fn resume(
    space: &Space,
    tr: &Transaction,
    name: &str,
    now: Millis,
    calendar: &dyn Calendar,
) -> Result<Option<bool>, QueueError> {
    check_unfrozen(space, tr).await?;
    let keys = space.schedules();
    let Some(old) = stored(&keys, tr, name).await? else { return Ok(None) };
    if old.state.paused.is_none() {
        return Ok(Some(false));
    }
    let offset = offset(space, &old);
    let mut state = State { paused: None, ..old.state.clone() };
    let newest = last_at_or_before(calendar, now.saturating_sub(offset));
    let first = next_after(calendar, state.mark);
    if let Some((from, to)) = first.zip(newest).filter(|(first, newest)| first <= newest) {
        let count = calendar.count(from, to);
        let (count, is_exact) = (count.times, count.is_exact);
        let outcome = Outcome::Skipped(SkipReason::Paused);
        let mut record = OccurrenceRecord { number: 0, at: now, from, to, count, is_exact, outcome };
        write::record(&keys, tr, name, &mut state, &mut record, Ids::Known);
        state.mark = to;
    }
    state.next = next_after(calendar, state.mark);
    write::state(&keys, tr, name, Some(&old.state), (&mut state, offset), Ids::Known);
    write::count_change(&keys, tr);
    Ok(Some(true))
}

/// How far a schedule's times are moved. One that cannot be read does not fire.
fn offset(space: &Space, stored: &Stored) -> Millis {
    stored.schedule.as_ref().map_or(0, |schedule| schedule.offset(&space.name))
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
///
/// # Errors
/// [`QueueError::Unreadable`] if a later version has defined it.
pub(crate) async fn fire_by_hand(
    space: &Arc<Space>,
    tr: &Transaction,
    name: &str,
    now: Millis,
    rng: &mut Rng,
) -> Result<ByHandEffect, QueueError> {
    let keys = space.schedules();
    let Some(Stored { schedule, state }) = stored(&keys, tr, name).await? else {
        return Ok(ByHandEffect::Gone);
    };
    let schedule = schedule.ok_or_else(|| QueueError::unreadable(&keys.definition_key(name)))?;
    futures::future::try_join(went_back::check(space, tr), kinds::check_stamped(space, tr)).await?;
    let mut pusher = Pusher::alone(Arc::clone(space), tr).with_rng(rng.split());
    let item = schedule.item(now, state.occurrences + 1, now);
    let placed = pusher.place(&[Entry::from(&item)], None).await?;
    let id = placed.items(Some(PENDING)).next().filter(|item| item.effect == PushEffect::Added);
    let Some(id) = id.map(|item| item.id) else { return Ok(ByHandEffect::Overlaps) };
    let (number, offset, ids) = (state.records, schedule.offset(&space.name), Ids::of(space));
    let (old, schedule) = (&state, &schedule);
    let state = old.clone();
    let mut firing =
        Firing { keys: &keys, tr, name, schedule, old, state, offset, now, ids, records: Vec::new() };
    firing.fired(now, id, |id, occurrence| Outcome::FiredByHand { id, occurrence });
    firing.store();
    Ok(ByHandEffect::Fired(number))
}
