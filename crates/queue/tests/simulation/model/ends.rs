//! The history: items that have ended, each once, as long as they are kept.

use std::collections::{BTreeMap, BTreeSet};

use kvqueue_queue::{Ending, ItemId, Recording, millis};

use super::{At, HistoryRule, Model, Sweeping, Verdict, promise};
use crate::image::ended::{Ended, Kept, Key, MAX_RESULT, minute};
use crate::intent::{Intent, Operation};

/// For how many versions a program may use the index that it has read.
const SEEN_FOR: u64 = 60_000_000;
/// An index has all items that end so many minutes after it is declared.
const COMPLETE_AFTER: u64 = 10;
/// What clocks may be set ahead meanwhile, in milliseconds.
const MAX_TURN: u64 = 180_000;

/// What is known of items that have ended.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// The setting, from which version on.
    settings: Vec<(u64, Option<Kept>)>,
    /// For each attribute that is indexed: how much clocks had been set when its rule was made.
    declared: BTreeMap<String, u64>,
    pub(super) ended: BTreeMap<Key, Ended>,
    /// What was cleared, and in which version.
    cleared: Vec<(u64, BTreeMap<Key, Ended>)>,
    /// The items that end in the transaction whose events are coming.
    new: BTreeMap<ItemId, End>,
    /// How many ends were recorded, by their codes; and how many were not.
    pub(super) recorded: BTreeMap<u8, u64>,
    pub(super) unrecorded: u64,
    /// How many are found by an attribute.
    pub(super) found: u64,
}

/// How an item ends.
#[derive(Debug)]
struct End {
    code: u8,
    is_deleted: bool,
    result: Option<usize>,
}

impl Ends {
    pub(super) fn note(&mut self, id: &ItemId, code: u8, is_deleted: bool) {
        self.new.insert(id.clone(), End { code, is_deleted, result: None });
    }

    /// The item that has just ended has a result of this length.
    pub(super) fn with_result(&mut self, id: &ItemId, len: usize) {
        if let Some(end) = self.new.get_mut(id) {
            end.result = Some(len);
        }
    }

    pub(super) fn kept(&self) -> Option<&Kept> {
        self.settings.last().and_then(|(_, kept)| kept.as_ref())
    }

    /// The last ending of an item, as far as the history had it at a version. The order is that of the workers' clocks, to a minute.
    pub(super) fn last_of(&self, id: &ItemId, version: u64) -> Option<Ending> {
        let cleared = self.cleared.iter().filter(|(commit, _)| *commit > version);
        let all = cleared.flat_map(|(_, ended)| ended).chain(&self.ended);
        let of_item = all.filter(|((_, stamp, _, ended), _)| ended == id && stamp.version() <= version);
        let (_, last) = of_item.max_by_key(|(key, _)| *key)?;
        Ending::ALL.get(usize::from(last.code) - 1).copied()
    }

    fn kept_at(&self, version: u64) -> Option<&Kept> {
        let last = self.settings.partition_point(|(commit, _)| *commit <= version);
        self.settings[..last].last().and_then(|(_, kept)| kept.as_ref())
    }
}

impl Model {
    /// An index is complete some time after its rule is made.
    pub(super) fn history_set(
        &mut self,
        rule: &HistoryRule,
        indexed: &BTreeMap<String, u64>,
        at: At,
    ) -> Verdict {
        promise!(self.frozen.is_none(), "a history was set while the queue was frozen");
        let before = self.ends.kept().cloned().unwrap_or_default();
        let names: BTreeSet<&String> = rule.names.iter().filter(|_| rule.kept > 0).collect();
        promise!(indexed.keys().eq(names), "the rule is {rule:?}, and {indexed:?} is stored");
        // Its clock may have been set back since.
        let earliest = rule.now.saturating_sub(at.turns - rule.turns);
        for (name, from) in indexed {
            let complete = minute(earliest) + COMPLETE_AFTER;
            match before.indexed.get(name) {
                Some(earlier) => {
                    promise!(from == earlier, "{name} was indexed from {earlier} on, now {from}");
                }
                None => promise!(*from >= complete, "the rule is {rule:?}, and {indexed:?} is stored"),
            }
            if !before.indexed.contains_key(name) {
                self.ends.declared.insert(name.clone(), rule.turns);
            }
        }
        let (retention, cleared, indexed) = (rule.kept, before.cleared, indexed.clone());
        self.ends.settings.push((at.commit, Some(Kept { retention, cleared, indexed })));
        self.ends.ended.iter().try_for_each(|(key, ended)| self.check_complete(key, ended, at))
    }

    /// An item that an index ought to have is in it.
    fn check_complete(&self, (minute, .., id): &Key, ended: &Ended, at: At) -> Verdict {
        let indexed = self.ends.kept().map(|kept| &kept.indexed);
        for (name, from) in indexed.into_iter().flatten() {
            let is_found = ended.found_by.contains(name) || !ended.attributes.contains_key(name);
            let is_turned = at.turns - self.ends.declared[name] > MAX_TURN;
            promise!(
                is_found || minute < from || is_turned,
                "{id} ended in minute {minute} and is not found by {name}, whose index has all items from {from} on"
            );
        }
        Ok(())
    }

    /// An item that ended is found by the attributes that its program knew as indexed.
    fn check_found_by(&self, operation: &Operation, ended: &Ended, at: At) -> Verdict {
        let declared =
            |kept: Option<&Kept>, name: &String| kept.is_some_and(|kept| kept.indexed.contains_key(name));
        for name in ended.attributes.keys() {
            let is_found = ended.found_by.contains(name);
            let now = declared(self.ends.kept_at(at.read), name);
            // What holds at a version, holds until the next one.
            let seen = at.read.saturating_sub(SEEN_FOR)..=at.read.saturating_add(SEEN_FOR);
            let begin = declared(self.ends.kept_at(*seen.start()), name);
            let within = self.ends.settings.iter().filter(|(commit, _)| seen.contains(commit));
            let mut known = within.map(|(_, kept)| declared(kept.as_ref(), name)).chain([begin]);
            let may_be = match operation.recording {
                Recording::On => known.any(|known| known == is_found),
                _ => now == is_found,
            };
            promise!(may_be, "{operation}: found by {:?}, with {:?}", ended.found_by, self.ends.kept());
        }
        Ok(())
    }

    /// By the clock of the sweeper, what is cleared is older than the time for which it is kept.
    pub(super) fn history_cleared(&mut self, to: Option<u64>, by: Sweeping, at: At) -> Verdict {
        let kept = self.ends.kept().cloned().ok_or("there was no history to be cleared")?;
        let old_before = minute(by.now.saturating_sub(kept.retention));
        let may_be = kept.retention == 0 || to.is_some_and(|to| to <= old_before);
        promise!(may_be, "what ended before {to:?} was cleared at {}, with {kept:?}", by.now);
        let ended = std::mem::take(&mut self.ends.ended);
        let (left, gone) =
            ended.into_iter().partition(|((minute, ..), _)| to.is_some_and(|to| *minute >= to));
        self.ends.ended = left;
        self.ends.cleared.push((at.commit, gone));
        // Unless a clock that was far ahead has cleared what is still to come.
        let is_ahead = kept.cleared > minute(by.now) + 60;
        promise!(
            is_ahead || to.is_none_or(|to| to >= kept.cleared),
            "{kept:?} was cleared, and now it is {to:?}"
        );
        self.ends.settings.push((at.commit, to.map(|cleared| Kept { cleared, ..kept })));
        Ok(())
    }

    /// Each item that the transaction has ended is recorded, if a history is kept, and nothing else is. By the clock of the process that ended it.
    pub(crate) fn check_ends(
        &mut self,
        operation: &Operation,
        recorded: Vec<(Key, Ended)>,
        at: At,
    ) -> Verdict {
        let mut new = std::mem::take(&mut self.ends.new);
        let is_kept = self.ends.kept_at(at.read).is_some_and(|kept| kept.retention > 0);
        let is_recorded = match operation.recording {
            Recording::On => true,
            Recording::AsStored => is_kept,
            Recording::Off => false,
        };
        if !is_recorded {
            self.ends.unrecorded += new.len() as u64;
            new.clear();
        }
        for (key, ended) in recorded {
            let (_, stamp, _, id) = &key;
            let end = new.remove(id).ok_or_else(|| format!("the end of {id} is recorded: {ended:?}"))?;
            promise!(
                stamp.version() == at.commit && ended.version == at.read,
                "{id} ended at {}, and that is recorded at {stamp}: {ended:?}",
                at.commit
            );
            self.check_end(operation, id, &end, &ended)?;
            self.check_found_by(operation, &ended, at)?;
            self.check_complete(&key, &ended, at)?;
            self.ends.found += u64::from(!ended.found_by.is_empty());
            let now = at.clock.saturating_add_signed(operation.skew);
            let may_differ = (at.time - operation.begun_at) / 1_000 + at.turns - operation.begun_turns + 1;
            promise!(
                ended.at.abs_diff(now) <= may_differ,
                "{id} ended at {now} by the clock of {operation}, and that is recorded: {ended:?}"
            );
            *self.ends.recorded.entry(end.code).or_default() += 1;
            self.ends.ended.insert(key, ended);
        }
        promise!(new.is_empty(), "{new:?} ended, which is not recorded");
        Ok(())
    }

    fn check_end(&self, operation: &Operation, id: &ItemId, end: &End, ended: &Ended) -> Verdict {
        let meta = &self.items.get(id).ok_or_else(|| format!("{id} was invented"))?.meta;
        // To be finished, and to be taken for good, is an attempt.
        let attempts = meta.attempts + u32::from(matches!(end.code, 1 | 5));
        let reason = match (end.is_deleted, &meta.death) {
            (true, _) => Some("deleted"),
            (false, Some(death)) if end.code == 2 => Some(death.reason.as_str()),
            _ => None,
        };
        // The words of the layer are for people.
        let is_reason = match reason {
            Some("") => ended.reason.is_some(),
            reason => ended.reason.as_deref() == reason,
        };
        let is_held = matches!(operation.intent, Intent::Settle { .. });
        let result = end.result.map(|len| u32::try_from(len).unwrap_or(u32::MAX).min(MAX_RESULT + 1));
        let is_right = (ended.code, ended.attempts, ended.pushed)
            == (end.code, attempts, meta.enqueued_at.map(millis))
            && is_reason
            && ended.attributes == meta.attributes
            && ended.result == result
            && ended.worker.as_deref() == Some(operation.worker.as_str())
            && (ended.started.is_some() == is_held);
        promise!(is_right, "{id} ended with {end:?} and {meta:?}, and that is recorded: {ended:?}");
        Ok(())
    }

    /// The ended items that are kept, and what the setting of the history is.
    pub(crate) fn ended_items(&self) -> &BTreeMap<Key, Ended> {
        &self.ends.ended
    }

    pub(crate) fn history(&self) -> Option<&Kept> {
        self.ends.kept()
    }

    /// How many ends were recorded, by their codes; how many were not, and how many are found by an attribute.
    pub(crate) fn recorded_ends(&self) -> (&BTreeMap<u8, u64>, [u64; 2]) {
        (&self.ends.recorded, [self.ends.unrecorded, self.ends.found])
    }
}
