//! What operations on schedules, and sweeps, have told their workers of them.

use kvqueue_queue::millis;
use std::collections::{BTreeMap, BTreeSet};

use kvqueue_queue::schedule::{ByHand, MissReason, OccurrenceRecord, Outcome, PutEffect, SkipReason};

use super::key;
use crate::image::schedules::{Definition, Fate, Overlap, Record};
use crate::intent::{Intent, Operation, Plan};
use crate::model::schedules::Change;
use crate::model::{Event, Model, Verdict, promise};

/// The result of an operation on schedules.
#[derive(Debug)]
pub(crate) enum ScheduleClaim {
    Put(PutEffect),
    /// It was refused, because the schedule is another's.
    OtherOwner,
    /// Whether it was there.
    Removed(bool),
    /// It was paused or resumed; whether that was a change, if it was there.
    Turned(Option<bool>),
    /// It was restarted; whether it was there.
    Restarted(bool),
    ByHand(ByHand),
    /// These were removed.
    RemovedOthers(BTreeSet<String>),
}

/// What can be seen of a schedule at a version.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Glimpse {
    definition: Definition,
    is_paused: bool,
    /// An item that must not overlap has not ended.
    is_busy: bool,
}

/// What operations did to schedules, and how these have been.
#[derive(Debug, Default)]
pub(super) struct Schedules {
    /// What an operation did, and the names.
    done: BTreeMap<(String, u64), Vec<(String, Change)>>,
    /// What a sweep recorded.
    swept: BTreeMap<(String, u64), Vec<(String, Record)>>,
    /// How each schedule was from a version on; `None`: it was not there.
    past: BTreeMap<String, Vec<(u64, Option<Glimpse>)>>,
}

impl Schedules {
    /// An operation committed, and led to this model.
    pub(super) fn committed(&mut self, operation: &Operation, events: &[Event], model: &Model, version: u64) {
        for event in events {
            match event {
                Event::Schedule { name, change, .. } => {
                    self.done.entry(key(operation)).or_default().push((name.clone(), change.clone()));
                }
                Event::Fired(sweep) => {
                    let records = sweep.records().map(|(name, record)| (name.to_owned(), record.clone()));
                    self.swept.entry(key(operation)).or_default().extend(records);
                }
                _ => {}
            }
        }
        for name in model.schedules().keys() {
            self.past.entry(name.clone()).or_default();
        }
        for (name, past) in &mut self.past {
            let now = model.schedules().get(name).map(|schedule| Glimpse {
                definition: schedule.definition.clone(),
                is_paused: schedule.state.paused.is_some(),
                is_busy: model.is_busy(name),
            });
            if past.last().map(|(_, last)| last) != Some(&now) {
                past.push((version, now));
            }
        }
    }

    /// A worker got a result.
    pub(super) fn check(&self, operation: &Operation, claim: &ScheduleClaim) -> Verdict {
        let done = self.done.get(&key(operation)).map(Vec::as_slice).unwrap_or_default();
        if let (Intent::RemoveOthers { owner, keep }, ScheduleClaim::RemovedOthers(names)) =
            (&operation.intent, claim)
        {
            return self.check_others(operation, (owner, keep), names, done);
        }
        let Intent::Schedule { name, plan, .. } = &operation.intent else {
            return Err(format!("{operation}: told {claim:?}"));
        };
        let last = done.last().map(|(_, change)| change);
        // After an unknown outcome a change may be found that the operation has made itself.
        let may_be_own = operation.unknown.get() > 0;
        let was = |is: &dyn Fn(Option<&Glimpse>) -> bool| {
            (last.is_none() || may_be_own) && self.moments(name, operation.begun).any(is)
        };
        let is_right = match (plan, claim) {
            (Plan::Put(definition), ScheduleClaim::Put(PutEffect::Unchanged)) => {
                was(&|seen| seen.is_some_and(|seen| seen.definition == **definition))
            }
            (Plan::Put(definition), ScheduleClaim::Put(effect)) => {
                last == Some(&Change::Put(definition.clone(), *effect))
            }
            (Plan::Put(definition), ScheduleClaim::OtherOwner) => {
                was(&|seen| seen.is_some_and(|seen| seen.definition.owner != definition.owner))
            }
            (Plan::Remove, ScheduleClaim::Removed(true)) => last == Some(&Change::Removed),
            (Plan::Pause, ScheduleClaim::Turned(Some(true))) => last == Some(&Change::Paused),
            (Plan::Resume, ScheduleClaim::Turned(Some(true))) => last == Some(&Change::Resumed),
            (Plan::Restart, ScheduleClaim::Restarted(true)) => last == Some(&Change::Restarted),
            (Plan::Remove, ScheduleClaim::Removed(false))
            | (Plan::Restart, ScheduleClaim::Restarted(false))
            | (Plan::Pause | Plan::Resume, ScheduleClaim::Turned(None)) => was(&|seen| seen.is_none()),
            (Plan::Pause, ScheduleClaim::Turned(Some(false))) => {
                was(&|seen| seen.is_some_and(|seen| seen.is_paused))
            }
            (Plan::Resume, ScheduleClaim::Turned(Some(false))) => {
                was(&|seen| seen.is_some_and(|seen| !seen.is_paused))
            }
            (Plan::Fire, ScheduleClaim::ByHand(ByHand::Fired { id })) => match last {
                Some(Change::ByHand(pushed)) => id.as_ref().is_none_or(|id| id == pushed),
                _ => false,
            },
            // What was pushed by hand is known, whatever the outcome was.
            (Plan::Fire, ScheduleClaim::ByHand(ByHand::Gone)) => {
                last.is_none() && was(&|seen| seen.is_none())
            }
            (Plan::Fire, ScheduleClaim::ByHand(ByHand::Overlaps)) => {
                let overlaps = |seen: &Glimpse| seen.is_busy && seen.definition.overlap != Overlap::Allow;
                last.is_none() && was(&|seen| seen.is_some_and(overlaps))
            }
            _ => false,
        };
        promise!(is_right, "{operation}: told {claim:?}, and did {done:?}");
        Ok(())
    }

    /// An operation failed: it may have done something only if the error names an unknown outcome.
    pub(super) fn check_failed(&self, operation: &Operation) -> Verdict {
        let done = self.done.get(&key(operation)).map(Vec::as_slice).unwrap_or_default();
        // The schedules of a configuration are removed in several transactions.
        let may_be_done = matches!(operation.intent, Intent::RemoveOthers { .. });
        promise!(may_be_done || done.is_empty(), "{operation} failed, and did {done:?}");
        Ok(())
    }

    /// A sweep reports what became of occurrences: all that it recorded, or, `may_miss`, some of it.
    pub(super) fn check_swept(
        &self,
        operation: &Operation,
        told: &[(String, OccurrenceRecord)],
        may_miss: bool,
    ) -> Verdict {
        let did = self.swept.get(&key(operation)).map(Vec::as_slice).unwrap_or_default();
        let mut rest = did.iter();
        let is_part =
            told.iter().all(|(name, told)| rest.any(|(of, did)| of == name && is_report(told, did)));
        let is_right = is_part && (may_miss || told.len() == did.len());
        promise!(is_right, "{operation}: told of {told:?}, and recorded {did:?}");
        Ok(())
    }

    /// All schedules of the configuration are removed that were there all the time, but for those to keep.
    fn check_others(
        &self,
        operation: &Operation,
        (owner, keep): (&String, &BTreeSet<String>),
        names: &BTreeSet<String>,
        done: &[(String, Change)],
    ) -> Verdict {
        let removed: BTreeSet<String> = done.iter().map(|(name, _)| name.clone()).collect();
        // After an unknown outcome another's removal may be taken for its own.
        let is_right = if operation.unknown.get() > 0 { removed.is_subset(names) } else { *names == removed };
        promise!(is_right, "{operation}: told that {names:?} are removed, and removed {removed:?}");
        promise!(removed.is_disjoint(keep), "{operation}: removed {removed:?}, and was to keep {keep:?}");
        let is_of =
            |seen: Option<&Glimpse>| seen.is_some_and(|seen| seen.definition.owner.as_ref() == Some(owner));
        let left = self.past.keys().filter(|name| !keep.contains(*name));
        let mut left = left.filter(|name| self.moments(name, operation.begun).all(is_of));
        let left = left.next();
        promise!(left.is_none(), "{operation}: told that it is done, and {left:?} of {owner} is there");
        Ok(())
    }

    /// How a schedule has been since a version.
    fn moments(&self, name: &str, since: u64) -> impl Iterator<Item = Option<&Glimpse>> {
        let past = self.past.get(name).map(Vec::as_slice).unwrap_or_default();
        let first = past.partition_point(|(version, _)| *version <= since);
        let before = first.checked_sub(1).and_then(|at| past[at].1.as_ref());
        std::iter::once(before).chain(past[first..].iter().map(|(_, seen)| seen.as_ref()))
    }
}

/// Whether a sweep reports this record. It does not know the id.
fn is_report(told: &OccurrenceRecord, did: &Record) -> bool {
    told.outcome.id().is_none() && is_record(told, did)
}

/// Whether a report is this record, but for its number and the item's id.
pub(crate) fn is_record(told: &OccurrenceRecord, record: &Record) -> bool {
    let (fate, occurrence) = match &told.outcome {
        Outcome::Fired { occurrence, .. } => (Fate::Fired, Some(*occurrence)),
        Outcome::FiredByHand { occurrence, .. } => (Fate::ByHand, Some(*occurrence)),
        Outcome::Skipped(SkipReason::Overlap) => (Fate::Overlap, None),
        Outcome::Skipped(SkipReason::Paused) => (Fate::Paused, None),
        Outcome::Skipped(SkipReason::Redefined) => (Fate::Redefined, None),
        Outcome::Skipped(SkipReason::Restarted) => (Fate::Restarted, None),
        Outcome::Missed(MissReason::Policy) => (Fate::Policy, None),
        Outcome::Missed(MissReason::Window) => (Fate::Window, None),
        Outcome::Missed(MissReason::Maximum) => (Fate::Maximum, None),
        Outcome::Unknown(_) => return false,
    };
    let OccurrenceRecord { at, from, to, count, is_exact, .. } = *told;
    Record {
        at: millis(at),
        from: millis(from),
        to: millis(to),
        count,
        is_exact,
        fate,
        occurrence,
        id: record.id.clone(),
    } == *record
}

/// How what became of occurrences is counted.
pub(crate) fn fate_name(fate: Fate) -> &'static str {
    match fate {
        Fate::Fired => "an occurrence fires",
        Fate::ByHand => "an item of a schedule is pushed by hand",
        Fate::Overlap => "an occurrence is skipped: the last item has not ended",
        Fate::Paused => "an occurrence is skipped: paused",
        Fate::Redefined => "an occurrence is skipped: another calendar",
        Fate::Restarted => "an occurrence is skipped: restarted",
        Fate::Policy => "an occurrence is missed: policy",
        Fate::Window => "an occurrence is missed: window",
        Fate::Maximum => "an occurrence is missed: maximum",
    }
}
