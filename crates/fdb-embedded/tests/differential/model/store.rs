//! The database as a list of states, one after each commit.

use std::collections::BTreeMap;

use super::Range;
use super::atomic;
use super::own::{Change, SET, STAMPED_KEY, STAMPED_VALUE};
use crate::program::Bytes;

pub type Rows = BTreeMap<Bytes, Bytes>;

/// The state after a commit, and what the commit wrote.
#[derive(Debug)]
struct State {
    rows: Rows,
    written: Vec<Range>,
}

#[derive(Debug)]
pub struct Store {
    states: Vec<State>,
}

impl Store {
    pub fn new(rows: Rows) -> Store {
        Store { states: vec![State { rows, written: Vec::new() }] }
    }

    /// The latest version: how many commits there have been.
    pub fn latest(&self) -> usize {
        self.states.len() - 1
    }

    pub fn rows(&self, version: usize) -> &Rows {
        &self.states[version].rows
    }

    /// Has a key of `reads` been written after `version`?
    pub fn conflicts(&self, version: usize, reads: &[Range]) -> bool {
        let written = self.states[version + 1..].iter().flat_map(|state| &state.written);
        written.into_iter().any(|written| reads.iter().any(|read| read.meets(written)))
    }

    /// Adds a commit; `stamp` is its versionstamp, if one is needed.
    pub fn commit(&mut self, changes: &[Change], mut written: Vec<Range>, stamp: Option<&[u8]>) {
        let mut rows = self.rows(self.latest()).clone();
        for change in changes {
            match change {
                Change::Clear(range) => rows.retain(|key, _| !range.contains(key)),
                Change::Op { code: SET, key, operand } => drop(rows.insert(key.clone(), operand.clone())),
                Change::Op { code: STAMPED_KEY, key, operand } => {
                    let key = stamped(key, stamp);
                    written.push(Range::key(&key));
                    rows.insert(key, operand.clone());
                }
                Change::Op { code: STAMPED_VALUE, key, operand } => {
                    rows.insert(key.clone(), stamped(operand, stamp));
                }
                Change::Op { code, key, operand } => {
                    match atomic::apply(*code, rows.get(key).map(Vec::as_slice), operand) {
                        Some(value) => rows.insert(key.clone(), value),
                        None => rows.remove(key),
                    };
                }
            }
        }
        self.states.push(State { rows, written });
    }
}

/// Puts the versionstamp where the last four bytes say, and takes those off. A commit that should have succeeded and did not
/// has no versionstamp; the caller sees that it failed.
fn stamped(template: &[u8], stamp: Option<&[u8]>) -> Bytes {
    let stamp = stamp.unwrap_or(&[0; 10]);
    let (rest, place) = template.split_last_chunk::<4>().unwrap();
    let place = usize::try_from(i32::from_le_bytes(*place)).unwrap();
    let mut rest = rest.to_vec();
    rest[place..place + stamp.len()].copy_from_slice(stamp);
    rest
}
