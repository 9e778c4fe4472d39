//! The history of a queue: each item that ended is in it once, and ended as the books say. Where items have effects, the books know how
//! each one ended.

use std::collections::{BTreeMap, BTreeSet};

use super::{Account, Books, Run, Sorted};
use crate::chaos::{
    payload::Name,
    producers::Pushed,
    records::{Act, Record},
};

/// How an item ended whose time was over before an attempt had begun.
const EXPIRED: &str = "expired";

/// An item that has ended, as `kvqueue history` prints it.
#[derive(Clone, Debug)]
pub(in crate::chaos) struct Ended {
    pub(in crate::chaos) id: String,
    pub(in crate::chaos) outcome: String,
    /// The number of the producer, if it has given it.
    pub(in crate::chaos) errand: Option<u64>,
}

/// How each item ended at last, by a history with the oldest first; and the ids of items that ended in a way that is not possible. If dead
/// letters were retried, each of them ends once more.
fn last(history: &[Ended], retried: bool) -> (BTreeMap<&str, &Ended>, Vec<&str>) {
    let (mut last, mut again) = (BTreeMap::new(), Vec::new());
    for ended in history {
        let before: Option<&Ended> = last.insert(ended.id.as_str(), ended);
        if before.is_some_and(|before| before.outcome != "dead" || !retried) {
            again.push(ended.id.as_str());
        }
    }
    (last, again)
}

impl Books {
    /// The items that were handed to handlers, but expired before an attempt had begun: they were given back.
    pub(super) fn expired(&self) -> BTreeSet<Name> {
        let Some(history) = &self.history else { return BTreeSet::new() };
        let (last, _) = last(history, self.retried);
        let has_expired = |id: &str| last.get(id).is_some_and(|ended| ended.outcome == EXPIRED);
        self.ids().0.into_iter().filter(|(_, id)| has_expired(id)).map(|(name, _)| name).collect()
    }

    pub(super) fn check_history(&self, sorted: &Sorted, account: &mut Account) {
        let Some(history) = &self.history else { return };
        let (last, again) = last(history, self.retried);
        account.complain("ended again, by the history", &again);
        let (ids, double) = self.ids();
        account.complain("are several items", &double);
        let missing: Vec<_> = sorted.out.iter().filter(|name| !ids.contains_key(*name)).collect();
        account.complain("came out without an id", &missing);
        let found = |id: &str| last.get(id).map(|ended| ended.outcome.as_str());
        // What was replaced ended as another item.
        let wrong: Vec<_> = ids
            .iter()
            .filter(|(name, _)| !sorted.replaced.contains(name))
            .map(|(name, id)| (name, self.expected(sorted, name), found(id)))
            .filter(|(_, expected, found)| !found.is_some_and(|found| expected.contains(&found)))
            .collect();
        account.complain("ended otherwise than the history has it", &wrong);
        let known: BTreeSet<&str> = ids.values().map(String::as_str).collect();
        let (expired, unknown): (Vec<_>, Vec<_>) = last
            .values()
            .filter(|ended| !known.contains(ended.id.as_str()))
            .partition(|ended| ended.outcome == EXPIRED);
        account.complain("are in the history and never came out", &unknown);
        self.check_expired(&expired, sorted, account);
    }

    /// Each item that may expire was handled or expired. `expired`: the items that were never handed to a handler.
    fn check_expired(&self, expired: &[&Ended], Sorted { out, .. }: &Sorted, account: &mut Account) {
        account.expired += expired.len();
        let mut rest = expired.len();
        for Pushed { errand, attempted, acknowledged, .. } in
            self.pushed.iter().filter(|it| it.errand.expires)
        {
            let expired = expired.iter().filter(|ended| ended.errand == Some(errand.number)).count();
            rest -= expired;
            let ended = (expired + errand.names().filter(|name| out.contains(name)).count()) as u64;
            account.check((*acknowledged..=*attempted).contains(&ended), || {
                format!("{ended} expired or came out, {expired} of them expired, where {acknowledged} to {attempted} were pushed: {errand:?}")
            });
        }
        account.check(rest == 0, || format!("{rest} expired that nobody has pushed so"));
    }

    /// How an item may have ended.
    fn expected(&self, sorted: &Sorted, name: &Name) -> Vec<&'static str> {
        if sorted.letters.contains(name) {
            return vec!["dead"];
        }
        if self.rest.effects.contains_key(name) {
            return vec!["done"];
        }
        if sorted.cancelled.contains_key(name) {
            return vec!["cancelled"];
        }
        let mut expected = Vec::new();
        expected.extend(sorted.unclear.contains(name).then_some("cancelled"));
        let is_begun = |run: &Run| !matches!(run, Run::Known { act: Act::Release, .. });
        let was_begun = sorted.runs.get(name).is_some_and(|runs| runs.iter().any(is_begun));
        let expires = self.pushed.iter().any(|it| it.errand.expires && it.errand.number == name.producer);
        expected.extend((expires && !was_begun).then_some(EXPIRED));
        expected
    }

    /// The ids of all items that were handled, are dead, or were there to be cancelled; and the items that have several.
    fn ids(&self) -> (BTreeMap<Name, String>, Vec<Name>) {
        let handled = self.records.iter().filter_map(|record| match record {
            Record::Handled { name, id, .. } => Some((*name, id)),
            Record::Called { .. } | Record::Nonsense(_) => None,
        });
        let cancelled = self.cancellations.iter().map(|of| (of.name, &of.id));
        let dead = self.rest.letter_ids.iter().map(|(name, id)| (*name, id));
        let (mut ids, mut double) = (BTreeMap::new(), Vec::new());
        for (name, id) in handled.chain(cancelled).chain(dead) {
            if ids.insert(name, id.clone()).is_some_and(|before| before != *id) {
                double.push(name);
            }
        }
        (ids, double)
    }
}
