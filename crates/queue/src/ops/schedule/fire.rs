//! Firing one schedule: what is due is pushed, and what became of every occurrence is recorded.

use foundationdb::Transaction;

use crate::id::ItemId;
use crate::keys::schedules::ScheduleSpace;
use crate::keys::schedules::state::{Gap, Last, State, Waiting};
use crate::meta::Millis;
use crate::new_item::NewItem;
use crate::ops::schedule::read::CLOCK_DIFFERENCE;
use crate::ops::schedule::write::{self, Ids};
use crate::pushed::PushEffect;
use crate::schedule::calendar::next_after;
use crate::schedule::plan::{Passed, Plan, plan};
use crate::schedule::{Calendar, OccurrenceRecord, Outcome, Overlap, Schedule, SkipReason};
use mutant::mutant;

/// The most gaps that are kept of a schedule: the widest.
pub(crate) const MAX_GAPS: usize = 4;

/// How soon a look asks again whether the last item of a schedule has ended, in milliseconds: after a tenth of the time that the
/// occurrence has waited, within these bounds.
const LOOK_AGAIN: (Millis, Millis) = (1_000, 10_000);

/// A schedule that is being fired, in one transaction.
pub(crate) struct Firing<'a> {
    pub(crate) keys: &'a ScheduleSpace,
    pub(crate) tr: &'a Transaction,
    pub(crate) name: &'a str,
    pub(crate) schedule: &'a Schedule,
    /// Its state before and after.
    pub(crate) old: &'a State,
    pub(crate) state: State,
    /// How far its times are moved.
    pub(crate) offset: Millis,
    /// The time by the clock of the look.
    pub(crate) now: Millis,
    pub(crate) ids: Ids,
    /// What became of its occurrences.
    pub(crate) records: Vec<OccurrenceRecord>,
}

/// What a push does about an item, and the item's id.
pub(crate) type Pushed = (PushEffect, Option<ItemId>);

/// What is due of a schedule.
#[derive(Debug, Default)]
pub(crate) struct DueNow {
    plan: Plan,
    /// The same for each gap that the clock of the look is in.
    gaps: Vec<(usize, Plan)>,
}

impl DueNow {
    /// The nominal times of the items to push: of the occurrence that waits first.
    pub(crate) fn times(&self, state: &State) -> Vec<Millis> {
        let waiting = state.waiting.map(|waiting| waiting.nominal);
        let in_gaps = self.gaps.iter().flat_map(|(_, plan)| &plan.fire);
        waiting.into_iter().chain(in_gaps.chain(&self.plan.fire).copied()).collect()
    }

    /// Whether more is due than is fired at once.
    pub(crate) fn more(&self) -> bool {
        self.plan.more || self.gaps.iter().any(|(_, plan)| plan.more)
    }
}

/// What is due of a schedule at `now`, from which its offset is taken off; of that, about `room` items at most.
pub(crate) fn due_now(
    state: &State,
    schedule: &Schedule,
    calendar: &dyn Calendar,
    now: Millis,
    room: usize,
) -> DueNow {
    let plan_from = |mark| plan(calendar, &schedule.missed, (mark, now), now, room);
    let is_in = |gap: &Gap| gap.to > now.saturating_add(CLOCK_DIFFERENCE);
    let gaps = state.gaps.iter().enumerate().filter(|(_, gap)| is_in(gap));
    DueNow { gaps: gaps.map(|(at, gap)| (at, plan_from(gap.from))).collect(), plan: plan_from(state.mark) }
}

impl Firing<'_> {
    /// The items of these times.
    pub(crate) fn items(&self, times: &[Millis]) -> impl Iterator<Item = NewItem> {
        let numbers = self.state.occurrences + 1..;
        // If one is a duplicate, so are all behind it: they have the same unique key.
        times.iter().zip(numbers).map(|(time, number)| self.schedule.item(*time, number, self.now))
    }

    /// Stores what became of the schedule: its items have been pushed, with these effects. Nothing is read.
    pub(crate) fn finish(
        &mut self,
        calendar: &dyn Calendar,
        due: &DueNow,
        pushed: impl Iterator<Item = (Millis, Pushed)>,
    ) {
        for (at, plan) in &due.gaps {
            self.state.gaps[*at].from = plan.mark;
        }
        due.plan.passed.iter().for_each(|passed| self.pass(passed));
        self.note(pushed);
        self.state.mark = due.plan.mark;
        self.state.next = next_after(calendar, self.state.mark);
        self.set_gaps(calendar);
        self.store();
    }

    /// When to look at it again.
    pub(crate) fn next_looks(&self) -> impl Iterator<Item = Millis> {
        self.state.row.into_iter().chain(self.state.gaps.iter().map(|gap| gap.row))
    }

    /// Records what came of each push: an item, a wait for the end of the last one, or nothing.
    fn note(&mut self, pushed: impl Iterator<Item = (Millis, Pushed)>) {
        self.state.waiting = None;
        let mut skipped = Vec::new();
        for (nominal, (effect, id)) in pushed {
            if effect == PushEffect::Added {
                self.fired(nominal, id, |id, occurrence| Outcome::Fired { id, occurrence });
            } else if self.schedule.overlap == Overlap::Queue && self.state.waiting.is_none() {
                self.state.waiting = Some(Waiting { nominal, look_again: self.look_again(nominal) });
            } else {
                skipped.push(nominal);
            }
        }
        if let Some((from, to)) = skipped.first().zip(skipped.last()) {
            let outcome = Outcome::Skipped(SkipReason::Overlap);
            self.record((*from, *to), (skipped.len() as u64, true), outcome);
        }
    }

    /// Records an item.
    pub(crate) fn fired(
        &mut self,
        nominal: Millis,
        id: Option<ItemId>,
        outcome: impl FnOnce(Option<ItemId>, u64) -> Outcome,
    ) {
        self.state.occurrences += 1;
        self.state.last = id.clone().map(|id| Last { nominal, id });
        let outcome = outcome(id, self.state.occurrences);
        self.record((nominal, nominal), (1, true), outcome);
    }

    /// Records occurrences that are passed over. A stretch that is longer than clocks may differ is kept as a gap.
    fn pass(&mut self, passed: &Passed) {
        let Passed { from, to, count, reason } = *passed;
        self.record((from, to), (count.times, count.is_exact), Outcome::Missed(reason));
        if to.saturating_sub(from) <= CLOCK_DIFFERENCE || mutant("schedule-gaps-forgotten") {
            return;
        }
        self.state.gaps.push(Gap { from: from.saturating_sub(1), to, row: 0 });
        if self.state.gaps.len() > MAX_GAPS {
            let width = |gap: &Gap| gap.to.saturating_sub(gap.from);
            let narrowest = (0..self.state.gaps.len()).min_by_key(|at| width(&self.state.gaps[*at]));
            narrowest.map(|at| self.state.gaps.remove(at));
        }
    }

    /// Drops gaps that are used up, and says when to look at the others.
    fn set_gaps(&mut self, calendar: &dyn Calendar) {
        let offset = self.offset;
        self.state.gaps.retain_mut(|gap| {
            let next = next_after(calendar, gap.from).filter(|next| *next <= gap.to);
            gap.row = next.map_or(0, |next| next.saturating_add(offset));
            next.is_some()
        });
    }

    /// When to look again at an occurrence that waits.
    fn look_again(&self, nominal: Millis) -> Millis {
        let waited = self.now.saturating_sub(nominal.saturating_add(self.offset));
        self.now.saturating_add((waited / 10).clamp(LOOK_AGAIN.0, LOOK_AGAIN.1))
    }

    /// Appends a record to the log.
    pub(crate) fn record(
        &mut self,
        (from, to): (Millis, Millis),
        (count, is_exact): (u64, bool),
        outcome: Outcome,
    ) {
        let mut record = OccurrenceRecord { number: 0, at: self.now, from, to, count, is_exact, outcome };
        write::record(self.keys, self.tr, self.name, &mut self.state, &mut record, self.ids);
        // The id is complete only after the commit.
        record.outcome = record.outcome.without_id();
        self.records.push(record);
    }

    /// Stores the state in the place of the old one.
    pub(crate) fn store(&mut self) {
        let state = (&mut self.state, self.offset);
        write::state(self.keys, self.tr, self.name, Some(self.old), state, self.ids);
    }
}
