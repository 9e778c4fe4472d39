//! Firing the schedules of a queue that are due, some of them in one transaction.

use std::sync::Arc;
use std::time::Duration;

use foundationdb::Transaction;
use futures::future::{join_all, try_join3};
use mutant::bound;

use crate::keys::Space;
use crate::keys::schedules::state::State;
use crate::keys::schedules::{ScheduleSpace, state};
use crate::model::error::QueueError;
use crate::model::new_item::NewItem;
use crate::model::pushed::PendingPush;
use crate::model::rng::Rng;
use crate::model::schedule::plan::{Plan, plan};
use crate::model::schedule::{OccurrenceRecord, Schedule};
use crate::model::time::Millis;
use crate::ops::push::{Entry, Pusher};
use crate::ops::schedule::fire::Firing;
use crate::ops::schedule::read::{Stored, stored};
use crate::ops::schedule::write::{Ids, PENDING, Writing, pusher};
use crate::ops::{kinds, went_back};
use crate::run::pause::check_unfrozen;
use crate::run::range_read::RangeRead;

/// The most schedules of one transaction.
fn page_schedules() -> usize {
    bound("due-schedules", 50)
}
/// The most rows that are read to find them. Some may be of another layout.
fn page_rows() -> usize {
    bound("due-schedule-rows", 1_000)
}
/// About how many items one transaction pushes.
fn page_items() -> usize {
    bound("due-schedule-items", 100)
}
/// About how many bytes of items one transaction writes.
fn page_bytes() -> usize {
    bound("due-schedule-bytes", 1 << 20)
}
/// When a schedule that this version cannot fire is looked at again, in milliseconds.
const AGAIN: Millis = 60_000;

/// What one transaction did.
#[derive(Debug, Clone, Default)]
pub(crate) struct FiredPage {
    /// What became of occurrences, with the names of their schedules. Ids of items are not known yet.
    pub(crate) occurrences: Vec<(String, OccurrenceRecord)>,
    /// Schedules that were due, and that this version cannot read, or whose items a queue of this kind cannot have.
    pub(crate) unusable: Vec<String>,
    /// Whether it has written something. Then more may be due.
    pub(crate) has_written: bool,
}

/// A schedule that is due and can be fired.
struct Due {
    name: String,
    schedule: Schedule,
    row: Millis,
    state: State,
    offset: Millis,
    plan: Plan,
    /// The nominal times of the items to push: of the occurrence that waits first.
    times: Vec<Millis>,
}

/// Fires what is due at `now`; the items expire after `ttl`. What a transaction before has fired is not due any more.
///
/// Everything is read before the first item is pushed: the database then refuses to read some keys, and to commit after such a read.
///
/// # Errors
/// The error of the first row that cannot be read, if there is nothing else to do.
pub(crate) async fn fire_due(
    space: &Arc<Space>,
    tr: &Transaction,
    (now, ttl): (Millis, Option<Duration>),
    rng: &mut Rng,
) -> Result<FiredPage, QueueError> {
    let keys = space.schedules();
    let (rows, trouble) = due_rows(&keys, tr, now).await?;
    if rows.is_empty() {
        return trouble.map_or(Ok(FiredPage::default()), Err);
    }
    let checks = (check_unfrozen(space, tr), went_back::check(space, tr), kinds::check_stamped(space, tr));
    try_join3(checks.0, checks.1, checks.2).await?;
    let mut page = FiredPage { has_written: true, ..FiredPage::default() };
    let due = due(space, &keys, tr, rows, (now, ttl), &mut page).await?;
    let mut pusher = pusher(space, tr, rng);
    let at = At { keys: &keys, tr, now, ttl, ids: Ids::of(space) };
    if fire(at, &mut pusher, &due, &mut page).await? {
        return Ok(page);
    }
    // One of them cannot be pushed, and must not stop the others: the first that can be pushed fires, and those before it are put off.
    for due in &due {
        if fire(at, &mut pusher, std::slice::from_ref(due), &mut page).await? {
            return Ok(page);
        }
        put_off(&keys, tr, (due.row, &due.name), Some(due.state.clone()), now);
        page.unusable.push(due.name.clone());
    }
    Ok(page)
}

/// A transaction that fires schedules.
#[derive(Clone, Copy)]
struct At<'a> {
    keys: &'a ScheduleSpace,
    tr: &'a Transaction,
    now: Millis,
    ttl: Option<Duration>,
    ids: Ids,
}

/// Fires schedules. Returns whether it did: if the items cannot be pushed, nothing was written.
async fn fire(
    At { keys, tr, now, ttl, ids }: At<'_>,
    pusher: &mut Pusher<'_>,
    all: &[Due],
    page: &mut FiredPage,
) -> Result<bool, QueueError> {
    let mut firings: Vec<Firing<'_>> = all
        .iter()
        .map(|due| {
            let Due { name, schedule, row, state, offset, .. } = due;
            let writing = Writing { keys, tr, name, offset: *offset, now, ids };
            Firing { writing, schedule, old_row: Some(*row), state: state.clone(), records: Vec::new() }
        })
        .collect();
    let items = firings.iter().zip(all).flat_map(|(firing, due)| firing.items(&due.times, ttl));
    let items: Vec<NewItem> = items.collect();
    let entries: Vec<Entry<'_>> = items.iter().map(Entry::from).collect();
    let placed = match entries.as_slice() {
        [] => PendingPush::default(),
        entries => match pusher.place(entries, None).await {
            Err(error) if error.database().is_none() => return Ok(false),
            placed => placed?,
        },
    };
    let mut pushed = placed.items(Some(PENDING)).map(|item| (item.effect, item.id));
    for (firing, due) in firings.iter_mut().zip(all) {
        firing.finish(&due.plan, due.times.iter().copied().zip(pushed.by_ref()));
        let records = std::mem::take(&mut firing.records);
        page.occurrences.extend(records.into_iter().map(|record| (due.name.clone(), record)));
    }
    Ok(true)
}

/// Times and names of the first rows that are due, and what is wrong with the first row among them that is none of ours. Read without a
/// conflict: the states have one.
async fn due_rows(
    keys: &ScheduleSpace,
    tr: &Transaction,
    now: Millis,
) -> Result<(Vec<(Millis, String)>, Option<QueueError>), QueueError> {
    let (mut due, mut trouble) = (Vec::new(), None);
    let mut pages = RangeRead::of(keys.due.by(now)).limit(page_rows()).pages(tr);
    while let Some(page) = pages.next_page().await? {
        for row in page.iter() {
            match keys.decode_due(row.key()) {
                Some(found) => due.push(found),
                None => drop(trouble.get_or_insert_with(|| QueueError::unreadable(row.key()))),
            }
            if due.len() == page_schedules() {
                return Ok((due, trouble));
            }
        }
    }
    Ok((due, trouble))
}

/// The schedules of these rows that can be fired, as far as a transaction has room for them. The other rows are removed or put off.
async fn due(
    space: &Space,
    keys: &ScheduleSpace,
    tr: &Transaction,
    rows: Vec<(Millis, String)>,
    (now, ttl): (Millis, Option<Duration>),
    page: &mut FiredPage,
) -> Result<Vec<Due>, QueueError> {
    let (mut room, mut room_bytes) = (page_items(), page_bytes());
    let mut all: Vec<Due> = Vec::new();
    let read = join_all(rows.iter().map(|(_, name)| stored(keys, tr, name))).await;
    for ((row, name), found) in rows.into_iter().zip(read) {
        let (schedule, state) = match found? {
            Some(Stored { schedule, state }) if state.as_ref().is_none_or(|of| of.row == Some(row)) => {
                (schedule.filter(|schedule| schedule.check(space.kind).is_ok()), state)
            }
            // The schedule is gone, or its row belongs at another time. A program that could not read the state has put it off.
            other => {
                tr.clear(&keys.due_key(row, &name));
                if let Some(row) = other.and_then(|found| found.state).and_then(|state| state.row) {
                    tr.set(&keys.due_key(row, &name), &[]);
                }
                continue;
            }
        };
        let Some((schedule, state)) = schedule.zip(state.clone()) else {
            put_off(keys, tr, (row, &name), state, now);
            page.unusable.push(name);
            continue;
        };
        let weight = schedule.item(now, u64::MAX, now, ttl).weight();
        let fitting = room.min(room_bytes / weight);
        if fitting == 0 && !all.is_empty() {
            break;
        }
        let offset = schedule.offset_millis(&space.name);
        let plan =
            plan(&schedule.calendar, &schedule.missed, state.mark, now.saturating_sub(offset), fitting);
        let waiting = state.waiting.map(|waiting| waiting.nominal);
        let times: Vec<Millis> = waiting.into_iter().chain(plan.fire.iter().copied()).collect();
        room = room.saturating_sub(times.len());
        room_bytes = room_bytes.saturating_sub(weight.saturating_mul(times.len()));
        all.push(Due { name, schedule, row, state, offset, plan, times });
    }
    Ok(all)
}

/// Moves the row of a schedule that cannot be fired, so that it does not stand before the others.
fn put_off(
    keys: &ScheduleSpace,
    tr: &Transaction,
    (row, name): (Millis, &str),
    state: Option<State>,
    now: Millis,
) {
    let again = now.saturating_add(AGAIN);
    tr.clear(&keys.due_key(row, name));
    tr.set(&keys.due_key(again, name), &[]);
    if let Some(state) = state {
        tr.set(&keys.state_key(name), &state::encode(&State { row: Some(again), ..state }));
    }
}
