//! Reading at a version: what redb has, under what it does not have yet.

use std::iter::Peekable;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;

use super::delta::{Delta, Row};
use super::history::Past;
use super::storage::{Snapshot, StorageError};
use crate::rows::{Direction, Visit};

/// Where to look for the keys of a version.
#[derive(Debug, Clone, Copy)]
pub struct At<'a> {
    /// What redb has.
    pub snapshot: &'a Snapshot,
    /// What was written after it, oldest first.
    pub deltas: &'a [Arc<Delta>],
    /// What was there before it.
    pub past: &'a Past,
    /// The version.
    pub version: i64,
}

impl At<'_> {
    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        let written = self.deltas.iter().rev().find_map(|delta| delta.get(key, self.version));
        match written.or_else(|| self.past.get(key)) {
            Some(value) => Ok(value),
            None => self.snapshot.get(key),
        }
    }

    /// Visits the rows of `[begin, end)` until the visitor breaks.
    pub fn scan(
        &self,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<ControlFlow<()>, StorageError> {
        let mut changed = self.changed(begin, end, direction);
        if changed.peek().is_none() {
            return scan_stored(self.snapshot, begin, end, direction, visit);
        }
        scan_merged(self.snapshot, begin, end, direction, changed, visit)
    }

    /// What is not as redb has it, in the order of the scan.
    fn changed<'b>(&'b self, begin: &'b [u8], end: &'b [u8], direction: Direction) -> Peekable<Changed<'b>> {
        let past = self.past.range(begin, end, direction);
        let deltas = self.deltas.iter().rev();
        let deltas = deltas.map(|delta| Source::Delta(delta.range(begin, end, self.version, direction)));
        let sources = deltas.chain((!past.is_empty()).then(|| Source::Past(past.into_iter())));
        Changed { sources: sources.map(Iterator::peekable).collect(), direction }.peekable()
    }
}

enum Source<'a> {
    Delta(super::delta::Cursor<'a>),
    Past(std::vec::IntoIter<Row>),
}

impl Iterator for Source<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        match self {
            Source::Delta(cursor) => cursor.next(),
            Source::Past(rows) => rows.next(),
        }
    }
}

/// Several sources in one order; where a key is in more than one, the first has the word.
struct Changed<'a> {
    sources: Vec<Peekable<Source<'a>>>,
    direction: Direction,
}

impl Iterator for Changed<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        let mut next: Option<Bytes> = None;
        for (key, _) in self.sources.iter_mut().filter_map(Peekable::peek) {
            if next.as_ref().is_none_or(|next| comes_before(self.direction, key, next)) {
                next = Some(key.clone());
            }
        }
        let next = next?;
        let mut rows = self.sources.iter_mut().filter_map(|source| source.next_if(|(key, _)| *key == next));
        let first = rows.next();
        // The others' word on this key does not count.
        rows.for_each(drop);
        first
    }
}

fn comes_before(direction: Direction, a: &[u8], b: &[u8]) -> bool {
    if direction == Direction::Forward { a < b } else { a > b }
}

fn scan_stored(
    snapshot: &Snapshot,
    begin: &[u8],
    end: &[u8],
    direction: Direction,
    visit: Visit<'_>,
) -> Result<ControlFlow<()>, StorageError> {
    let mut rows = snapshot.range(begin, end)?;
    loop {
        let row = match direction {
            Direction::Forward => rows.next(),
            Direction::Backward => rows.next_back(),
        };
        let Some(row) = row else { return Ok(ControlFlow::Continue(())) };
        let (key, value) = row?;
        if visit(key.value(), value.value()).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
}

/// The stored rows, but for keys of `changed`, which hold what is there. Both in the order of the scan.
fn scan_merged(
    snapshot: &Snapshot,
    begin: &[u8],
    end: &[u8],
    direction: Direction,
    mut changed: Peekable<Changed<'_>>,
    visit: Visit<'_>,
) -> Result<ControlFlow<()>, StorageError> {
    let outcome = scan_stored(snapshot, begin, end, direction, &mut |key, value| {
        while let Some((gone, now)) = changed.next_if(|(changed, _)| comes_before(direction, changed, key)) {
            if let Some(now) = now {
                visit(&gone, &now)?;
            }
        }
        match changed.next_if(|(changed, _)| changed == key) {
            Some((key, Some(now))) => visit(&key, &now),
            Some((_, None)) => ControlFlow::Continue(()),
            None => visit(key, value),
        }
    })?;
    if outcome.is_break() {
        return Ok(outcome);
    }
    for (key, now) in changed {
        if let Some(now) = now
            && visit(&key, &now).is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}
