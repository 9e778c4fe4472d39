//! What FoundationDB's client does, stated as plainly as we can, with no regard to speed: a list of database states,
//! transactions that keep a list of their writes, and conflicts found by comparing every range with every other.
//! Shares no code with the engine.

mod atomic;
mod calls;
mod conflict;
mod ends;
mod own;
mod ranges;
mod read;
mod store;
mod transaction;
mod writes;

use std::collections::BTreeMap;

use fdb_embedded::testing::Reply;

use crate::program::{Bytes, Call, Program, Step, TRANSACTIONS, Version};
use store::Store;
use transaction::{Chosen, Held, Transaction};

/// A key range, end exclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    pub begin: Bytes,
    pub end: Bytes,
}

impl Range {
    pub fn new(begin: &[u8], end: &[u8]) -> Range {
        Range { begin: begin.to_vec(), end: end.to_vec() }
    }

    pub fn key(key: &[u8]) -> Range {
        Range { begin: key.to_vec(), end: [key, &[0]].concat() }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        self.begin.as_slice() <= key && key < self.end.as_slice()
    }

    pub fn is_empty(&self) -> bool {
        self.begin >= self.end
    }

    /// Is it one key's alone?
    pub fn is_single(&self) -> bool {
        self.end.strip_prefix(&self.begin[..]) == Some(&[0])
    }

    pub fn meets(&self, other: &Range) -> bool {
        !self.is_empty() && !other.is_empty() && self.begin < other.end && other.begin < self.end
    }

    /// Bytes of both ends.
    fn size(&self) -> i64 {
        i64::try_from(self.begin.len() + self.end.len()).unwrap()
    }
}

/// What a call did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// It answers nothing, or its future is held.
    Nothing,
    /// The number that it returned, 0 if all is well.
    Status(i32),
    /// What its future came to.
    Reply(Reply),
    /// It was left out, because something that it needs is not there.
    LeftOut,
}

/// What the runner found out next to the call: real versions and versionstamps, which no model can foretell.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The read version of the transaction that the call asks about.
    pub read_version: Option<i64>,
    /// The committed version, after a commit.
    pub committed: i64,
    /// The versionstamp of a commit that needs one.
    pub stamp: Option<Bytes>,
}

/// Something seen that should not have been: what was expected.
pub type Verdict = Result<(), String>;

/// How a future that was held until the end came to be then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    Pending,
    Reply(Reply),
}

pub struct Model {
    store: Store,
    /// The real versions of the states, as far as they are known.
    versions: Vec<i64>,
    transactions: Vec<Transaction>,
    /// The real database may do one thing or the other: nothing after it can be foretold.
    pub stopped: bool,
    /// It is the engine: what FoundationDB leaves open, the engine does in one way.
    strict: bool,
}

fn expect<T: PartialEq + std::fmt::Debug>(seen: &T, expected: &T) -> Verdict {
    if seen == expected { Ok(()) } else { Err(format!("{expected:?}")) }
}

impl Model {
    pub fn new(program: &Program, strict: bool) -> Model {
        let rows: BTreeMap<Bytes, Bytes> = program.rows.iter().cloned().collect();
        let transactions = (0..TRANSACTIONS)
            .map(|_| Transaction { conflicting: Some(Vec::new()), ..Transaction::default() })
            .collect();
        Model { store: Store::new(rows), versions: vec![0], transactions, stopped: false, strict }
    }

    /// Whose read version the runner has to find out before the step.
    pub fn wants_read_version(&self, step: &Step) -> Option<usize> {
        let whose = match step.call {
            Call::Atomic { code: own::STAMPED_KEY, .. } => step.transaction,
            Call::SetReadVersion(Version::Of(other)) => other,
            _ => return None,
        };
        let transaction = &self.transactions[whose];
        let readable = matches!(transaction.version, Some(Chosen::At(_)))
            && transaction.dead.is_none()
            && transaction.deferred.is_none();
        readable.then_some(whose)
    }

    /// Does the commit need to know its versionstamp?
    pub fn wants_stamp(&self, step: &Step) -> bool {
        let transaction = &self.transactions[step.transaction];
        step.call == Call::Commit && transaction.is_usable() && transaction.has_stamps()
    }

    /// Does the call, a watch, read the database before it waits?
    pub fn reads_first(&self, step: &Step) -> bool {
        let transaction = &self.transactions[step.transaction];
        let Call::Watch { key } = &step.call else { return false };
        let cell = transaction.own.cell(key);
        let legal = key.as_slice() < transaction.max_read() && key.len() <= transaction.key_limit(key);
        transaction.is_usable() && legal && cell.is_spoilable() && !cell.unreadable
    }

    /// The versionstamps that the call, a timeout, ends.
    pub fn stamps_that_time_out(&self, step: &Step) -> Vec<usize> {
        let transaction = &self.transactions[step.transaction];
        if step.call != Call::TimeOut || transaction.deferred.is_some() {
            return Vec::new();
        }
        let waits = |held: &Held| matches!(held, Held::Waiting { watch: None });
        (0..transaction.held.len()).filter(|index| waits(&transaction.held[*index])).collect()
    }

    /// The held future that the call cancels or destroys, if it must have ended before.
    pub fn is_to_end_what_is_over(&self, step: &Step) -> Option<usize> {
        let Call::EndHeld { index, .. } = step.call else { return None };
        let held = self.transactions[step.transaction].held.get(index);
        matches!(held, Some(Held::Ended(_))).then_some(index)
    }

    /// Takes one step, and judges what was seen.
    pub fn step(&mut self, step: &Step, seen: &Seen, facts: &Facts) -> Verdict {
        let mut transaction = std::mem::take(&mut self.transactions[step.transaction]);
        let verdict = self.call(&mut transaction, &step.call, seen, facts);
        self.transactions[step.transaction] = transaction;
        verdict
    }

    /// What is in the database at the end.
    pub fn rows(&self) -> Vec<(Bytes, Bytes)> {
        let rows = self.store.rows(self.store.latest());
        rows.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// What the held futures of a transaction may have come to, in order; `None` for one that was destroyed.
    pub fn ends(&self, transaction: usize) -> Vec<Option<Vec<End>>> {
        self.transactions[transaction].held.iter().map(|held| held.ends(&self.store)).collect()
    }
}
