//! What sweepers may do about schedules that are due.

use std::collections::VecDeque;

use kvqueue_queue::{ItemId, NewItem};

use super::plan::plan;
use super::{At, Model, Verdict, promise, unique_key};
use crate::image::schedules::{Fate, Overlap, Record, Schedule};
use crate::model::Sweeping;
use crate::world::Millis;

/// How soon a sweeper looks again at an occurrence that waits, in milliseconds: after a tenth of the time that it has waited, within this.
const LOOK_AGAIN: std::ops::RangeInclusive<Millis> = 1_000..=10_000;

/// A transaction of a sweeper that fired schedules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sweep {
    /// What the sweeper's clock said, if a record says it.
    pub(crate) now: Option<Millis>,
    pub(crate) by: Sweeping,
    /// In the order of their rows.
    pub(crate) firings: Vec<Firing>,
}

/// What a sweeper did about a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Firing {
    pub(crate) name: String,
    /// The items that it pushed, in their order.
    pub(crate) ids: Vec<ItemId>,
    /// What it recorded.
    pub(crate) records: Vec<Record>,
    /// The occurrence that waited before, and the one that waits now, with the time of the next look.
    pub(crate) waited: Option<(Millis, Millis)>,
    pub(crate) waits: Option<(Millis, Millis)>,
}

impl Sweep {
    /// All records, with the names of their schedules.
    pub(crate) fn records(&self) -> impl Iterator<Item = (&str, &Record)> {
        self.firings.iter().flat_map(|of| of.records.iter().map(|record| (of.name.as_str(), record)))
    }
}

impl Model {
    pub(in crate::model) fn fired(&mut self, sweep: &Sweep, at: At) -> Verdict {
        promise!(self.frozen.is_none(), "schedules fired, and the queue is frozen");
        let now = self.time_of(sweep)?;
        let mut pushed = Vec::new();
        for firing in &sweep.firings {
            let name = &firing.name;
            let found = self.schedules.get(name);
            let mut schedule = found.cloned().ok_or_else(|| format!("{name} fired, and is gone"))?;
            let row = schedule.state.row;
            promise!(
                row.is_some_and(|row| row <= now),
                "{name} was to be looked at at {row:?}, not at {now}"
            );
            let mark = schedule.state.mark;
            let is_free = !self.unique.contains_key(&unique_key(name));
            schedule.swept(firing, is_free, now, &mut pushed).map_err(|how| format!("{name}: {how}"))?;
            check_account(&schedule, firing, mark).map_err(|how| format!("{name}: {how}"))?;
            for record in firing.records.iter().filter(|record| record.fate == Fate::Fired) {
                let is_first = self.fired.entry(name.clone()).or_default().insert(record.from);
                promise!(is_first, "{name} fired {} twice", record.from);
            }
            if schedule.state.mark > mark {
                self.accounted.insert(name.clone());
            }
            self.schedules.insert(name.clone(), schedule.timed().rowed(name, now));
        }
        self.pushed(&pushed, None, at)
    }

    /// The time of the transaction: the sweeper's clock, which stands still in a sweep.
    fn time_of(&self, sweep: &Sweep) -> Result<Millis, String> {
        let Sweep { now, by, firings } = sweep;
        let now = now.or_else(|| firings.iter().find_map(|firing| self.time_of_look(firing)));
        let now = now.ok_or_else(|| format!("nothing came of {firings:?}"))?;
        promise!(now == by.now, "schedules fired at {now}, and the clock said {}", by.now);
        Ok(now)
    }

    /// The time at which it was found that an occurrence has to wait on.
    fn time_of_look(&self, firing: &Firing) -> Option<Millis> {
        let ((nominal, look_again), schedule) = (firing.waits?, self.schedules.get(&firing.name)?);
        let since = nominal + schedule.definition.offset(&firing.name);
        let mut times = LOOK_AGAIN.map(|pause| look_again - pause);
        times.find(|now| self::look_again(since, *now) == look_again)
    }
}

impl Schedule {
    /// A sweeper has looked at it: `is_free` says whether its last item has ended. Adds the items that it pushes.
    fn swept(
        &mut self,
        firing: &Firing,
        mut is_free: bool,
        now: Millis,
        pushed: &mut Vec<(ItemId, NewItem)>,
    ) -> Verdict {
        let (name, offset) = (&firing.name, self.definition.offset(&firing.name));
        let due = self.due(name, now);
        let planned = plan(&self.definition, &due, now.saturating_sub(offset));
        let missed: Vec<(Millis, Fate)> =
            planned.iter().filter_map(|(time, missed)| Some((*time, (*missed)?))).collect();
        for stretch in missed.chunk_by(|one, next| one.1 == next.1) {
            let (from, to) = (stretch[0], stretch[stretch.len() - 1]);
            self.record(now, (from.0, to.0), self.count(stretch.len()), from.1);
        }
        self.state.mark = due.last().copied().unwrap_or(self.state.mark);
        let waited = self.state.waiting.take().map(|(nominal, _)| nominal);
        let fires = planned.into_iter().filter(|(_, missed)| missed.is_none()).map(|(time, _)| time);
        let (mut ids, mut skipped) = (VecDeque::from(firing.ids.clone()), Vec::new());
        for nominal in waited.into_iter().chain(fires) {
            if is_free || self.definition.overlap == Overlap::Allow {
                let id = ids.pop_front().ok_or_else(|| format!("{nominal} is due, and was not pushed"))?;
                pushed.push((id.clone(), self.item(name, nominal, now)));
                self.pushed(nominal, now, Fate::Fired, &id);
                is_free = false;
            } else if self.definition.overlap == Overlap::Queue && self.state.waiting.is_none() {
                self.state.waiting = Some((nominal, look_again(nominal + offset, now)));
            } else {
                skipped.push(nominal);
            }
        }
        if let [first, .., last] | [first @ last] = skipped[..] {
            self.record(now, (first, last), (skipped.len() as u64, true), Fate::Overlap);
        }
        promise!(ids.is_empty(), "{ids:?} were pushed and are of no occurrence");
        Ok(())
    }
}

fn look_again(since: Millis, now: Millis) -> Millis {
    now + (now.saturating_sub(since) / 10).clamp(*LOOK_AGAIN.start(), *LOOK_AGAIN.end())
}

/// Each occurrence between the old mark and the new one is accounted for once: by what was recorded, whatever the plan is, or as the one that
/// waits. What waited before is accounted for then, or waits on.
fn check_account(schedule: &Schedule, firing: &Firing, mark: Millis) -> Verdict {
    let period = schedule.definition.calendar.period();
    let passed = schedule.state.mark / period - mark / period;
    promise!(schedule.state.mark >= mark, "its mark went back from {mark} to {}", schedule.state.mark);
    let recorded: u64 = firing.records.iter().map(|record| record.count).sum();
    let [waited, waits] = [firing.waited, firing.waits].map(|waiting| u64::from(waiting.is_some()));
    let is_exact = firing.records.iter().all(|record| record.is_exact);
    let is_right = if is_exact { recorded + waits == passed + waited } else { recorded < passed + waited };
    promise!(is_right, "{passed} occurrences have passed, and {:?} are recorded", firing.records);
    let times =
        firing.records.iter().flat_map(|record| [record.from, record.to]).chain(firing.waits.map(|of| of.0));
    for time in times {
        let is_known =
            time > mark && time <= schedule.state.mark || firing.waited.is_some_and(|of| of.0 == time);
        promise!(is_known, "{time} is recorded, and was not due");
    }
    Ok(())
}
