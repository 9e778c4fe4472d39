//! One look at the schedules of a queue that are due: a page of them, in one transaction.

use std::collections::BTreeSet;
use std::sync::Arc;

use foundationdb::options::StreamingMode;
use foundationdb::{RangeOption, Transaction};
use futures::future::{join_all, try_join};

use crate::error::QueueError;
use crate::keys::Space;
use crate::keys::schedules::ScheduleSpace;
use crate::keys::schedules::state::State;
use crate::meta::Millis;
use crate::new_item::NewItem;
use crate::ops::push::{Entry, Pusher};
use crate::ops::schedule::fire::{DueNow, Firing, due_now};
use crate::ops::schedule::read::{Stored, gaps, next_look, rows, stored};
use crate::ops::schedule::write::{Ids, PENDING};
use crate::ops::{kinds, went_back};
use crate::pushed::PendingPush;
use crate::rng::Rng;
use crate::schedule::{Calendar, Calendars, Looked, Schedule};

/// The most schedules of one transaction.
const SCHEDULES: usize = 50;
/// About how many items one transaction pushes.
const ITEMS: usize = 100;
/// About how many bytes of items one transaction writes.
const ITEM_BYTES: usize = 1 << 20;

/// One transaction of a look.
#[derive(Debug, Clone, Default)]
pub(crate) struct Page {
    /// What became of the schedules in it.
    pub(crate) looked: Vec<Looked>,
    /// Schedules that cannot be read, or whose items a queue of this kind cannot have.
    pub(crate) unreadable: Vec<String>,
    /// Whether there is more to do.
    pub(crate) more: bool,
    /// Whether it has written something.
    pub(crate) has_written: bool,
    /// When something is due next, after this page.
    pub(crate) next_look: Option<Millis>,
}

/// What a look needs.
#[derive(Clone, Copy)]
pub(crate) struct LookAt<'a> {
    pub(crate) now: Millis,
    pub(crate) calendars: &'a dyn Calendars,
    /// Schedules that the look could not read.
    pub(crate) passed_over: &'a BTreeSet<String>,
}

/// A schedule that is due and can be fired.
struct Ready {
    name: String,
    schedule: Schedule,
    calendar: Arc<dyn Calendar>,
    state: State,
    offset: Millis,
    due: DueNow,
    times: Vec<Millis>,
}

/// Fires what is due. The page is the first one that is left: what a page before it has fired is due no more.
///
/// Everything is read before the first item is pushed: the database then refuses to read some keys, and to commit after such a read.
pub(crate) async fn page(
    space: &Arc<Space>,
    tr: &Transaction,
    look: LookAt<'_>,
    rng: &mut Rng,
) -> Result<Page, QueueError> {
    let (keys, now) = (space.schedules(), look.now);
    let ((names, is_full), next) = try_join(due(&keys, tr, look), next_look(&keys, tr, now)).await?;
    let mut page = Page { more: is_full, next_look: next, ..Page::default() };
    let ready = ready(space, tr, &names, look, &mut page).await?;
    if ready.is_empty() {
        return Ok(page);
    }
    try_join(went_back::check(space, tr), kinds::check_stamped(space, tr)).await?;
    let ids = Ids::of(space);
    let mut firings: Vec<Firing<'_>> = ready
        .iter()
        .map(|of| Firing {
            keys: &keys,
            tr,
            name: &of.name,
            schedule: &of.schedule,
            old: &of.state,
            state: of.state.clone(),
            offset: of.offset,
            now,
            ids,
            records: Vec::new(),
        })
        .collect();
    let items: Vec<NewItem> =
        firings.iter().zip(&ready).flat_map(|(firing, of)| firing.items(&of.times)).collect();
    let mut pusher = Pusher::alone(Arc::clone(space), tr).with_rng(rng.split());
    let entries: Vec<Entry<'_>> = items.iter().map(Entry::from).collect();
    let placed =
        if entries.is_empty() { PendingPush::default() } else { pusher.place(&entries, None).await? };
    let mut pushed = placed.items(Some(PENDING)).map(|item| (item.effect, item.id));
    for (firing, of) in firings.iter_mut().zip(&ready) {
        firing.finish(&*of.calendar, &of.due, of.times.iter().copied().zip(pushed.by_ref()));
        page.next_look =
            firing.next_looks().chain(page.next_look).filter(|time| *time > now).min().or(page.next_look);
        page.looked.push(Looked { schedule: of.name.clone(), records: std::mem::take(&mut firing.records) });
    }
    page.has_written = true;
    Ok(page)
}

/// What is due of these schedules, as far as a transaction has room for it.
async fn ready(
    space: &Space,
    tr: &Transaction,
    names: &[String],
    look: LookAt<'_>,
    page: &mut Page,
) -> Result<Vec<Ready>, QueueError> {
    let keys = space.schedules();
    let (mut room, mut room_bytes) = (ITEMS, ITEM_BYTES);
    let mut ready: Vec<Ready> = Vec::new();
    let read = join_all(names.iter().map(|name| stored(&keys, tr, name))).await;
    for (name, stored) in names.iter().zip(read) {
        let Some((schedule, calendar, state)) = fireable(space, stored, look.calendars)? else {
            page.unreadable.push(name.clone());
            continue;
        };
        let weight = schedule.item(0, 0, look.now).weight();
        let fitting = room.min(room_bytes / weight);
        if fitting == 0 && !ready.is_empty() {
            page.more = true;
            break;
        }
        let offset = schedule.offset(&space.name);
        let at = look.now.saturating_sub(offset);
        let due = due_now(&state, &schedule, &*calendar, at, fitting.max(1));
        let times = due.times(&state);
        room = room.saturating_sub(times.len());
        room_bytes = room_bytes.saturating_sub(weight.saturating_mul(times.len()));
        page.more |= due.more();
        ready.push(Ready { name: name.clone(), schedule, calendar, state, offset, due, times });
    }
    Ok(ready)
}

/// A schedule, the calendar of its expression, and its state.
type Fireable = (Schedule, Arc<dyn Calendar>, State);

/// A schedule that can be read, and whose items a queue of this kind can have.
fn fireable(
    space: &Space,
    stored: Result<Option<Stored>, QueueError>,
    calendars: &dyn Calendars,
) -> Result<Option<Fireable>, QueueError> {
    let stored = match stored {
        Err(error) if error.database().is_some() => return Err(error),
        // A row without a definition is damaged, too.
        Err(_) | Ok(None) => return Ok(None),
        Ok(Some(stored)) => stored,
    };
    let schedule = stored.schedule.filter(|schedule| schedule.check(space.kind).is_ok());
    Ok(schedule.and_then(|schedule| {
        let calendar = calendars.calendar(&schedule.expression)?;
        Some((schedule, calendar, stored.state))
    }))
}

/// The names of schedules that are due, each once, and whether there may be more. Read without a conflict: their states have one.
async fn due(
    keys: &ScheduleSpace,
    tr: &Transaction,
    look: LookAt<'_>,
) -> Result<(Vec<String>, bool), QueueError> {
    let LookAt { now, passed_over, .. } = look;
    let limit = SCHEDULES + passed_over.len();
    let option = RangeOption {
        limit: Some(limit),
        mode: StreamingMode::WantAll,
        ..RangeOption::from(keys.due_by(now))
    };
    let (rows, gaps) = try_join(rows(tr, option), gaps(keys, tr, now)).await?;
    let due = rows.iter().filter_map(|(key, _)| Some(keys.decode_due(key)?.1));
    let gaps = gaps.into_iter().filter(|(row, _)| *row <= now).map(|(_, name)| name);
    let mut seen = BTreeSet::new();
    let names = due.chain(gaps).filter(|name| !passed_over.contains(name) && seen.insert(name.clone()));
    Ok((names.collect(), rows.len() == limit))
}
