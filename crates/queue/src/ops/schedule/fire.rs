//! Firing one schedule: the items that are due, and the record of what became of every occurrence.

use std::time::Duration;

use mutant::mutant;

use crate::keys::schedules::state::{Last, State, Waiting};
use crate::model::id::ItemId;
use crate::model::new_item::NewItem;
use crate::model::pushed::PushEffect;
use crate::model::schedule::plan::{Passed, Plan};
use crate::model::schedule::{OccurrenceRecord, Outcome, Overlap, Schedule, SkipReason};
use crate::model::time::{Millis, from_millis};
use crate::ops::schedule::write::Writing;

/// How soon a sweeper looks again whether the last item of a schedule has ended, in milliseconds: after a tenth of the time that the
/// occurrence has waited, within these bounds.
const LOOK_AGAIN: (Millis, Millis) = (1_000, 10_000);

/// A schedule that is being fired, in one transaction.
pub(crate) struct Firing<'a> {
    pub(crate) writing: Writing<'a>,
    pub(crate) schedule: &'a Schedule,
    /// The time in the key of its row before.
    pub(crate) old_row: Option<Millis>,
    pub(crate) state: State,
    /// What became of its occurrences.
    pub(crate) records: Vec<OccurrenceRecord>,
}

/// What a push does about an item, and the item's id.
pub(crate) type Pushed = (PushEffect, Option<ItemId>);

impl Firing<'_> {
    /// The items of these nominal times. They expire after `ttl`.
    pub(crate) fn items(&self, times: &[Millis], ttl: Option<Duration>) -> impl Iterator<Item = NewItem> {
        let numbers = self.state.occurrences + 1..;
        // If one is a duplicate, so are all behind it: they have the same unique key.
        times
            .iter()
            .zip(numbers)
            .map(move |(time, number)| self.schedule.item(*time, number, self.writing.now, ttl))
    }

    /// Stores what became of the schedule: its items have been pushed, with these effects. Nothing is read.
    pub(crate) fn finish(&mut self, plan: &Plan, pushed: impl Iterator<Item = (Millis, Pushed)>) {
        plan.passed.iter().for_each(|passed| self.pass(passed));
        self.note(pushed);
        if !mutant("schedule-fires-again") {
            self.state.mark = plan.mark;
        }
        self.state.next = self.schedule.calendar.next_after(self.state.mark);
        self.store();
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

    /// Stores the state in the place of the old one.
    pub(crate) fn store(&mut self) {
        self.writing.state(self.old_row, &mut self.state);
    }

    /// Records occurrences that are missed and do not fire.
    fn pass(&mut self, passed: &Passed) {
        let Passed { from, to, count, reason } = *passed;
        self.record((from, to), (count.times, count.is_exact), Outcome::Missed(reason));
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

    /// When to look again at an occurrence that waits.
    fn look_again(&self, nominal: Millis) -> Millis {
        let Writing { now, offset, .. } = self.writing;
        let waited = now.saturating_sub(nominal.saturating_add(offset));
        now.saturating_add((waited / 10).clamp(LOOK_AGAIN.0, LOOK_AGAIN.1))
    }

    /// Appends a record to the log.
    fn record(&mut self, (from, to): (Millis, Millis), (count, is_exact): (u64, bool), outcome: Outcome) {
        let (at, from, to) = (from_millis(self.writing.now), from_millis(from), from_millis(to));
        let mut record = OccurrenceRecord { number: 0, at, from, to, count, is_exact, outcome };
        self.writing.record(&mut self.state, &mut record);
        // The id is complete only after the commit.
        record.outcome = record.outcome.without_id();
        self.records.push(record);
    }
}
