//! The books: what was pushed, handled and left, and whether that adds up. Pure.
//!
//! As Jepsen's total-queue has it: *attempted* are all pushes that were begun, *acknowledged* those of which it is known that they
//! happened. *Lost* is what was acknowledged and never came out; *unexpected*, what came out and was never attempted; *recovered*, what came
//! out though its push was not acknowledged; *duplicate*, what came out again.

mod account;
mod checks;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub(super) use self::account::Account;
use super::{
    payload::Name,
    plan::Queue,
    producers::Pushed,
    records::{Act, Record},
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
    /// The effects of handlers in their items' transactions.
    pub(super) effects: BTreeMap<Name, u64>,
    /// Keys, by their kind.
    pub(super) keys: BTreeMap<String, u64>,
}

/// One queue's books.
pub(super) struct Books {
    pub(super) queue: Queue,
    pub(super) pushed: Vec<Pushed>,
    /// By its schedule.
    pub(super) fired: BTreeSet<Name>,
    /// By helpers.
    pub(super) records: Vec<Record>,
    /// By the program.
    pub(super) printed: Vec<Result<Name, String>>,
    pub(super) rest: Rest,
    /// Daemons that were killed, or killed themselves.
    pub(super) killed: u64,
}

/// How an item was handled once.
#[derive(Clone, Copy, Debug)]
enum Run {
    /// By a helper.
    Known { attempt: u32, failures: usize, act: Act },
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
    /// All that came out.
    out: BTreeSet<Name>,
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
            lost: acknowledged.difference(out).count(),
            unexpected: out.difference(attempted).count(),
            duplicates: handled - runs.len(),
            recovered: out.intersection(attempted).filter(|name| !acknowledged.contains(name)).count(),
            done: self.rest.done,
            dead: self.rest.dead,
            wrong: Vec::new(),
        };
        self.check(&sorted, &mut account);
        account.wrong.iter_mut().for_each(|wrong| *wrong = format!("{}: {wrong}", self.queue.name));
        account
    }

    fn sort(&self) -> Sorted {
        let mut runs: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for record in &self.records {
            if let Record::Handled { name, attempt, failures, act } = *record {
                runs.entry(name).or_default().push(Run::Known { attempt, failures, act });
            }
        }
        for name in self.printed.iter().flatten() {
            runs.entry(*name).or_default().push(Run::Printed);
        }
        let letters: BTreeSet<Name> = self.rest.letters.iter().flatten().copied().collect();
        Sorted {
            attempted: self.names(|pushed| pushed.attempted).chain(self.fired.iter().copied()).collect(),
            acknowledged: self
                .names(|pushed| pushed.acknowledged)
                .chain(self.fired.iter().copied())
                .collect(),
            out: runs.keys().chain(&letters).copied().collect(),
            runs,
            letters,
        }
    }

    fn names(&self, first: impl Fn(&Pushed) -> u64) -> impl Iterator<Item = Name> {
        self.pushed.iter().flat_map(move |pushed| pushed.errand.names().take(first(pushed) as usize))
    }
}
