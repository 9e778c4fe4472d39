//! What operators may do to schedules, and what becomes of one by that.

mod plan;
mod sweep;

use std::collections::BTreeMap;

use kvqueue_queue::schedule::PutEffect;
use kvqueue_queue::{ItemId, NewItem, from_millis};

use super::{At, Model, Place, Verdict, promise};
use crate::image::schedules::{Calendar, Definition, Fate, KEPT, Overlap, Record, Schedule, State};
use crate::world::Millis;

pub(crate) use sweep::{Firing, Sweep};

const DAY: Millis = 24 * 3_600_000;
/// How many times of a cron expression are counted.
const COUNTED: usize = 1_000;

/// What an operator does to a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Put(Box<Definition>, PutEffect),
    Removed,
    Paused,
    Resumed,
    Restarted,
    /// An item was pushed by hand.
    ByHand(ItemId),
}

impl Change {
    /// What it is called where events are counted.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Change::Put(_, PutEffect::Created) => "a schedule is made",
            Change::Put(_, PutEffect::Replaced { calendar: true }) => "a schedule gets another calendar",
            Change::Put(..) => "a schedule is replaced",
            Change::Removed => "a schedule is removed",
            Change::Paused => "a schedule is paused",
            Change::Resumed => "a schedule is resumed",
            Change::Restarted => "a schedule is restarted",
            Change::ByHand(_) => "a schedule is fired by hand",
        }
    }
}

impl Model {
    /// The schedules.
    pub(crate) fn schedules(&self) -> &BTreeMap<String, Schedule> {
        &self.schedules
    }

    /// Forgets which schedules sweepers have accounted for.
    pub(crate) fn forget_sweeps(&mut self) {
        self.accounted.clear();
    }

    /// Whether a sweeper has accounted for occurrences of a schedule since that was forgotten.
    pub(crate) fn is_accounted(&self, name: &str) -> bool {
        self.accounted.contains(name)
    }

    /// Whether an item of a schedule that must not overlap has not ended.
    pub(crate) fn is_busy(&self, name: &str) -> bool {
        self.unique.contains_key(&unique_key(name))
    }

    /// Whether an item of a schedule is on a lease.
    pub(crate) fn has_leased(&self, name: &str) -> bool {
        let is_of = |item: &super::Item| item.meta.attributes.get("schedule").is_some_and(|of| of == name);
        self.items.values().any(|item| matches!(item.place, Place::Leased(_)) && is_of(item))
    }

    /// An operator has changed a schedule, by a clock that says `now`.
    pub(super) fn changed(&mut self, name: &str, now: Millis, change: &Change, at: At) -> Verdict {
        promise!(self.frozen.is_none(), "{name}: {change:?}, and the queue is frozen");
        let old = self.schedules.remove(name);
        let there = || old.clone().ok_or_else(|| format!("{name} is not there: {change:?}"));
        let wakes = matches!(change, Change::Put(..) | Change::Resumed | Change::Restarted);
        self.counters.nlater += u64::from(wakes);
        self.counters.ndue += u64::from(wakes);
        let new = match change {
            Change::Removed => {
                there()?;
                self.fired.remove(name);
                return Ok(());
            }
            Change::Put(definition, effect) => put(name, old, definition, *effect, now)?,
            Change::Paused => {
                let mut schedule = there()?;
                promise!(schedule.state.paused.is_none(), "{name} was paused twice");
                schedule.state.paused = Some(now);
                schedule
            }
            Change::Resumed => {
                let mut schedule = there()?;
                promise!(schedule.state.paused.take().is_some(), "{name} was resumed twice");
                let due = schedule.definition.clone();
                schedule.skip(name, &due, now, Fate::Paused).timed()
            }
            Change::Restarted => {
                let mut schedule = there()?;
                schedule.state.paused = None;
                let due = schedule.definition.clone();
                let until = now.saturating_sub(due.offset(name));
                self.taken_back += u64::from(schedule.state.mark > until);
                // What has fired by the wrong clock fires again.
                self.fired.entry(name.to_owned()).or_default().split_off(&(until + 1));
                schedule = schedule.skip(name, &due, now, Fate::Restarted);
                schedule.state.mark = until;
                schedule.timed()
            }
            Change::ByHand(id) => {
                let mut schedule = there()?;
                let item = schedule.item(name, now, now);
                schedule.pushed(now, now, Fate::ByHand, id);
                self.pushed(&[(id.clone(), item)], None, at)?;
                schedule
            }
        };
        self.schedules.insert(name.to_owned(), new.rowed(name, now));
        Ok(())
    }
}

/// A new schedule begins now. One that is replaced goes on, unless its calendar is another: then what was due is skipped.
fn put(
    name: &str,
    old: Option<Schedule>,
    definition: &Definition,
    effect: PutEffect,
    now: Millis,
) -> Result<Schedule, String> {
    let Some(mut schedule) = old else {
        promise!(effect == PutEffect::Created, "{name} was replaced, and was not there");
        let state = State { mark: now, ..State::default() };
        return Ok(Schedule { definition: definition.clone(), state, log: BTreeMap::new() }.timed());
    };
    let of = std::mem::replace(&mut schedule.definition, definition.clone());
    promise!(of != *definition, "{name} was replaced by the same");
    promise!(of.owner == definition.owner, "{name} of {:?} was taken over", of.owner);
    let calendar = of.calendar != definition.calendar;
    promise!(effect == PutEffect::Replaced { calendar }, "{name}: {effect:?}, and calendar: {calendar}");
    if calendar {
        schedule = schedule.skip(name, &of, now, Fate::Redefined).timed();
    }
    Ok(schedule)
}

impl Schedule {
    /// What is due by a definition's calendar is skipped, and so is an occurrence that waits. The mark does not go back.
    fn skip(mut self, name: &str, of: &Definition, now: Millis, fate: Fate) -> Schedule {
        if let Some((nominal, _)) = self.state.waiting.take() {
            self.record(now, (nominal, nominal), (1, true), fate);
        }
        let until = now.saturating_sub(self.definition.offset(name));
        let due = times(&of.calendar, self.state.mark, until);
        if let [first, .., last] | [first @ last] = due[..] {
            self.record(now, (first, last), count(&of.calendar, due.len()), fate);
        }
        self.state.mark = self.state.mark.max(until);
        self
    }
}

/// The times of a calendar after one time and up to another, one by one.
fn times(calendar: &Calendar, after: Millis, until: Millis) -> Vec<Millis> {
    let period = calendar.period();
    (after / period + 1..).map(|n| n * period).take_while(|time| *time <= until).collect()
}

/// How many there are, as records say it.
fn count(calendar: &Calendar, times: usize) -> (u64, bool) {
    match calendar {
        Calendar::Every(_) => (times as u64, true),
        Calendar::Cron(..) => (times.min(COUNTED) as u64, times <= COUNTED),
    }
}

impl Schedule {
    /// The nominal times that are not accounted for, by a clock that says `now`, one by one.
    fn due(&self, name: &str, now: Millis) -> Vec<Millis> {
        let until = now.saturating_sub(self.definition.offset(name));
        times(&self.definition.calendar, self.state.mark, until)
    }

    /// How many there are, as records say it.
    fn count(&self, times: usize) -> (u64, bool) {
        count(&self.definition.calendar, times)
    }

    /// With the time that follows the mark.
    fn timed(mut self) -> Schedule {
        let period = self.definition.calendar.period();
        self.state.next = Some((self.state.mark / period + 1) * period);
        self
    }

    /// With the row that belongs to it.
    fn rowed(mut self, name: &str, now: Millis) -> Schedule {
        let next = self.state.next.map(|next| next + self.definition.offset(name));
        let look_again = self.state.waiting.map(|(_, look_again)| look_again);
        let first = next.into_iter().chain(look_again).chain([now + DAY]).min();
        self.state.row = first.filter(|_| self.state.paused.is_none());
        self
    }

    /// The next item.
    fn item(&self, name: &str, nominal: Millis, now: Millis) -> NewItem {
        let Definition { payload, attributes, content_type, key, priority, overlap, .. } = &self.definition;
        let mut item = NewItem::new(payload.clone());
        item.attributes.clone_from(attributes);
        let own = [
            ("schedule", name.to_owned()),
            ("schedule-time", nominal.to_string()),
            ("schedule-occurrence", (self.state.occurrences + 1).to_string()),
        ];
        item.attributes.extend(own.map(|(name, value)| (name.to_owned(), value)));
        item.content_type.clone_from(content_type);
        item.key.clone_from(key);
        item.priority = *priority;
        item.enqueued_at = Some(from_millis(now));
        item.unique = (*overlap != Overlap::Allow).then(|| unique_key(name));
        item
    }

    /// An item was pushed for a nominal time.
    fn pushed(&mut self, nominal: Millis, now: Millis, fate: Fate, id: &ItemId) {
        self.state.occurrences += 1;
        self.state.last = Some((nominal, id.clone()));
        let occurrence = Some(self.state.occurrences);
        let (from, to, id) = (nominal, nominal, Some(id.clone()));
        self.log(Record { at: now, from, to, count: 1, is_exact: true, fate, occurrence, id });
    }

    fn record(&mut self, at: Millis, (from, to): (Millis, Millis), count: (u64, bool), fate: Fate) {
        let (count, is_exact) = count;
        self.log(Record { at, from, to, count, is_exact, fate, occurrence: None, id: None });
    }

    fn log(&mut self, record: Record) {
        self.log.insert(self.state.records, record);
        self.state.records += 1;
        while self.log.len() > KEPT {
            self.log.pop_first();
        }
    }
}

/// The unique key of the items of a schedule that must not overlap.
pub(crate) fn unique_key(name: &str) -> Vec<u8> {
    [b"\xff\0schedule\0", name.as_bytes()].concat()
}
