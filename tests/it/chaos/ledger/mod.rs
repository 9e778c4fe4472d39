//! The books: what was pushed, handled and left, and whether that adds up. Pure.
//!
//! As Jepsen's total-queue has it: *attempted* are all pushes that were begun, *acknowledged* those of which it is known that they
//! happened. *Lost* is what was acknowledged and never came out; *unexpected*, what came out and was never attempted; *recovered*, what came
//! out though its push was not acknowledged; *duplicate*, what came out again.

mod account;
mod called;
mod checks;
mod ended;
#[cfg(test)]
mod tests;
mod unique;

use std::collections::{BTreeMap, BTreeSet};

pub(super) use self::{account::Account, called::check_batches, ended::Ended};
use super::{
    errand::{Errand, Way},
    payload::Name,
    plan::Queue,
    producers::Pushed,
    records::{Act, Record},
    storm::Cancellation,
};

/// The rest of a queue at the end, as the database has it.
#[derive(Clone, Debug, Default)]
pub(super) struct Rest {
    /// `kvqueue len`.
    pub(super) ready: u64,
    pub(super) running: u64,
    pub(super) waiting: u64,
    pub(super) dead: u64,
    pub(super) done: u64,
    /// The dead letters' payloads.
    pub(super) letters: Vec<Result<Name, String>>,
    /// And their ids.
    pub(super) letter_ids: BTreeMap<Name, String>,
    /// The effects of handlers in their items' transactions.
    pub(super) effects: BTreeMap<Name, u64>,
    /// Keys, by their kind.
    pub(super) keys: BTreeMap<String, u64>,
}

/// One queue's books.
pub(super) struct Books {
    pub(super) queue: Queue,
    pub(super) pushed: Vec<Pushed>,
    /// By its schedule, and callbacks of batches.
    pub(super) fired: BTreeSet<Name>,
    /// Callbacks of batches that may have been made.
    pub(super) perhaps: BTreeSet<Name>,
    /// Whether its dead letters were retried.
    pub(super) retried: bool,
    /// By helpers.
    pub(super) records: Vec<Record>,
    /// By the program.
    pub(super) printed: Vec<Result<Name, String>>,
    pub(super) cancellations: Vec<Cancellation>,
    /// If the queue keeps one: the oldest first.
    pub(super) history: Option<Vec<Ended>>,
    pub(super) rest: Rest,
    /// Daemons that were killed, or killed themselves.
    pub(super) killed: u64,
}

/// How an item was handled once.
#[derive(Clone, Copy, Debug)]
enum Run {
    /// By a helper.
    Known { attempt: u32, failures: usize, act: Act, at: u64 },
    /// By the program, which tells no more.
    Printed,
}

/// The books, sorted.
struct Sorted {
    attempted: BTreeSet<Name>,
    acknowledged: BTreeSet<Name>,
    runs: BTreeMap<Name, Vec<Run>>,
    /// Dead letters.
    letters: BTreeSet<Name>,
    /// Those of which it is known that they are cancelled, and since when, in ms.
    cancelled: BTreeMap<Name, u64>,
    /// Others that may be.
    unclear: BTreeSet<Name>,
    /// Handled items that were released, and then expired.
    expired: BTreeSet<Name>,
    /// Items that were handled without an end, and then replaced.
    replaced: BTreeSet<Name>,
    /// Items that may expire or be replaced.
    passing: BTreeSet<Name>,
    /// All that came out: that was handled, is dead, or was there to be cancelled.
    out: BTreeSet<Name>,
}

impl Sorted {
    /// Whether a handler was done with it.
    fn is_done(&self, name: &Name) -> bool {
        self.runs.get(name).is_some_and(|runs| runs.iter().any(Run::is_done))
    }

    /// What was acknowledged, and neither came out nor may have expired or been replaced.
    fn lost(&self) -> impl Iterator<Item = &Name> {
        self.acknowledged.difference(&self.out).filter(|name| !self.passing.contains(name))
    }
}

impl Books {
    /// Adds everything up.
    pub(super) fn close(&self) -> Account {
        let sorted = self.sort();
        let Sorted { attempted, acknowledged, runs, out, .. } = &sorted;
        let handled = runs.values().map(Vec::len).sum();
        let mut account = Account {
            attempted: attempted.len(),
            acknowledged: acknowledged.len(),
            handled,
            lost: sorted.lost().count(),
            unexpected: out.difference(attempted).count(),
            duplicates: handled - runs.len(),
            recovered: out.intersection(attempted).filter(|name| !acknowledged.contains(name)).count(),
            done: self.rest.done,
            dead: self.rest.dead,
            cancelled: sorted.cancelled.len(),
            expired: sorted.expired.len(),
            late: 0,
            replaced: 0,
            wrong: Vec::new(),
        };
        self.check(&sorted, &mut account);
        account.wrong.iter_mut().for_each(|wrong| *wrong = format!("{}: {wrong}", self.queue.name));
        account
    }

    fn sort(&self) -> Sorted {
        let mut runs: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for record in &self.records {
            if let Record::Handled { name, attempt, failures, act, at, .. } = *record {
                runs.entry(name).or_default().push(Run::Known { attempt, failures, act, at });
            }
        }
        for name in self.printed.iter().flatten() {
            runs.entry(*name).or_default().push(Run::Printed);
        }
        let letters: BTreeSet<Name> = self.rest.letters.iter().flatten().copied().collect();
        let mut cancelled = BTreeMap::new();
        for Cancellation { name, acknowledged, .. } in &self.cancellations {
            cancelled.extend(acknowledged.map(|at| (*name, at)));
        }
        let seen = self.cancellations.iter().map(|cancellation| cancellation.name);
        let passing = self.pushed.iter().map(|pushed| &pushed.errand);
        let passing = passing.filter(|errand| errand.expires || errand.way == Way::Replace);
        let mut sorted = Sorted {
            attempted: self
                .names(|pushed| pushed.attempted)
                .chain(self.fired.iter().chain(&self.perhaps).copied())
                .collect(),
            acknowledged: self
                .names(|pushed| pushed.acknowledged)
                .chain(self.fired.iter().copied())
                .collect(),
            unclear: seen.clone().filter(|name| !cancelled.contains_key(name)).collect(),
            out: runs.keys().chain(&letters).copied().chain(seen).collect(),
            runs,
            letters,
            cancelled,
            expired: self.expired(),
            replaced: BTreeSet::new(),
            passing: passing.flat_map(Errand::names).collect(),
        };
        sorted.replaced = self.replaced(&sorted);
        sorted
    }

    fn names(&self, first: impl Fn(&Pushed) -> u64) -> impl Iterator<Item = Name> {
        self.pushed.iter().flat_map(move |pushed| pushed.errand.names().take(first(pushed) as usize))
    }
}
