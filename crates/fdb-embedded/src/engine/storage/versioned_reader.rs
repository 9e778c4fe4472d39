//! Reads keys at a version, from memtables, undo data and a snapshot of redb.

use std::iter::Peekable;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;

use super::error::StorageError;
use super::memtable::{Memtable, Row};
use super::snapshot::Snapshot;
use super::undo_log::{UndoRows, UndoView};
use crate::rows::{Direction, RowVisitor};

/// A reader of all keys at one version.
#[derive(Debug, Clone, Copy)]
pub struct VersionedReader<'a> {
    /// The keys in redb.
    pub snapshot: &'a Snapshot,
    /// The memtables after the snapshot, oldest first.
    pub memtables: &'a [Arc<Memtable>],
    /// The old values, if the version is before the snapshot.
    pub undo: &'a UndoView,
    /// The version.
    pub version: i64,
}

impl VersionedReader<'_> {
    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        let written = self.memtables.iter().rev().find_map(|memtable| memtable.get(key, self.version));
        match written.or_else(|| self.undo.get(key)) {
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
        visit: RowVisitor<'_>,
    ) -> Result<ControlFlow<()>, StorageError> {
        let mut changed = self.changed_rows(begin, end, direction);
        if changed.peek().is_none() {
            return scan_snapshot(self.snapshot, begin, end, direction, visit);
        }
        scan_merged(self.snapshot, begin, end, direction, changed, visit)
    }

    /// The rows of the range that differ from the snapshot, in the order of the scan.
    fn changed_rows<'b>(
        &'b self,
        begin: &'b [u8],
        end: &'b [u8],
        direction: Direction,
    ) -> Peekable<ChangedRows<'b>> {
        let (written, undo) = self.undo.range(begin, end, direction);
        let memtables = self.memtables.iter().rev();
        let memtables = memtables
            .map(|memtable| ChangeSource::Memtable(memtable.range(begin, end, self.version, direction)));
        let written = written.map(ChangeSource::Memtable);
        let undo = (!self.undo.is_empty()).then_some(ChangeSource::Undo(undo));
        let sources = memtables.chain(written).chain(undo);
        ChangedRows { sources: sources.map(Iterator::peekable).collect(), direction }.peekable()
    }
}

enum ChangeSource<'a> {
    Memtable(super::memtable::MemtableCursor<'a>),
    Undo(UndoRows<'a>),
}

impl Iterator for ChangeSource<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        match self {
            ChangeSource::Memtable(cursor) => cursor.next(),
            ChangeSource::Undo(rows) => rows.next(),
        }
    }
}

/// Merges several sources in key order. If several have a key, the first one counts.
struct ChangedRows<'a> {
    sources: Vec<Peekable<ChangeSource<'a>>>,
    direction: Direction,
}

impl Iterator for ChangedRows<'_> {
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
        // Skips the key in the other sources.
        rows.for_each(drop);
        first
    }
}

#[cfg(test)]
thread_local! {
    /// Rows of snapshots that scans of this thread have visited.
    pub static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn comes_before(direction: Direction, a: &[u8], b: &[u8]) -> bool {
    if direction == Direction::Forward { a < b } else { a > b }
}

fn scan_snapshot(
    snapshot: &Snapshot,
    begin: &[u8],
    end: &[u8],
    direction: Direction,
    visit: RowVisitor<'_>,
) -> Result<ControlFlow<()>, StorageError> {
    let mut rows = snapshot.range(begin, end)?;
    loop {
        let row = match direction {
            Direction::Forward => rows.next(),
            Direction::Backward => rows.next_back(),
        };
        let Some(row) = row else { return Ok(ControlFlow::Continue(())) };
        let (key, value) = row?;
        #[cfg(test)]
        VISITED.set(VISITED.get() + 1);
        if visit(key.value(), value.value()).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
}

/// Merges the snapshot's rows with `changed`, which takes precedence. Both are in the order of the
/// scan.
fn scan_merged(
    snapshot: &Snapshot,
    begin: &[u8],
    end: &[u8],
    direction: Direction,
    mut changed: Peekable<ChangedRows<'_>>,
    visit: RowVisitor<'_>,
) -> Result<ControlFlow<()>, StorageError> {
    let outcome = scan_snapshot(snapshot, begin, end, direction, &mut |key, value| {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use checked_pages::sim::SplitMix;

    use super::*;
    use crate::engine::mutation::Mutation;
    use crate::engine::storage::{Durability, Storage, WriteBatch};

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    fn key(random: &mut SplitMix) -> Vec<u8> {
        vec![b'a' + u8::try_from(random.next() % 12).unwrap()]
    }

    /// Writes some keys into a memtable, and returns the expected state.
    fn write(memtable: &Memtable, version: i64, model: &Model, random: &mut SplitMix) -> Model {
        let mut model = model.clone();
        let mut rows = BTreeMap::new();
        for _ in 0..random.next() % 6 {
            let value = random.next().to_le_bytes().to_vec();
            let value = (!random.next().is_multiple_of(3)).then_some(value);
            rows.insert(key(random), value);
        }
        for (key, value) in &rows {
            match value {
                Some(value) => model.insert(key.clone(), value.clone()),
                None => model.remove(key),
            };
        }
        let mut writer = memtable.writer(version);
        rows.into_iter().for_each(|(key, value)| writer.put(key.into(), value.map(Bytes::from)));
        drop(writer);
        model
    }

    fn check(at: VersionedReader<'_>, expected: &Model, what: &str) {
        for direction in [Direction::Forward, Direction::Backward] {
            let mut found = Vec::new();
            let _all = at.scan(b"b", b"k", direction, &mut |key, value| {
                found.push((key.to_vec(), value.to_vec()));
                ControlFlow::Continue(())
            });
            if direction == Direction::Backward {
                found.reverse();
            }
            let range = expected.range(b"b".to_vec()..b"k".to_vec());
            let expected: Vec<_> = range.map(|(key, value)| (key.clone(), value.clone())).collect();
            assert_eq!(found, expected, "{what}, {direction:?}");
        }
        for letter in b'a'..=b'm' {
            let value = at.get(&[letter]).unwrap();
            assert_eq!(value.as_deref(), expected.get(&vec![letter]).map(Vec::as_slice), "{what}");
        }
    }

    #[test]
    fn reads_merge_two_memtables_with_the_rows_of_redb() {
        for seed in 1..=30 {
            let mut random = SplitMix(seed);
            let dir = tempfile::tempdir().unwrap();
            Storage::create(&dir.path().join("data")).unwrap();
            let (storage, _) = Storage::open(&dir.path().join("data"), &dir.path().join("log")).unwrap();
            let mut model = Model::new();
            for key in [b"a", b"c", b"d", b"g", b"j"] {
                model.insert(key.to_vec(), b"stored".to_vec());
            }
            let sets =
                model.iter().map(|(key, value)| Mutation::Set { key: key.clone(), value: value.clone() });
            let batch = WriteBatch { version: 0, ceiling: None, mutations: sets.collect() };
            storage.apply(batch, Durability::Flushed).unwrap();
            let snapshot = storage.superversion().snapshot().unwrap();
            let memtables = [Arc::new(Memtable::default()), Arc::new(Memtable::default())];
            let mut versions = vec![model];
            for version in 1..=8 {
                let memtable = &memtables[usize::from(version > 4)];
                versions.push(write(memtable, version, versions.last().unwrap(), &mut random));
            }
            for (version, expected) in (0..).zip(&versions) {
                let at = VersionedReader {
                    snapshot: &snapshot,
                    memtables: &memtables,
                    undo: &UndoView::default(),
                    version,
                };
                check(at, expected, &format!("seed {seed}, version {version}"));
            }
        }
    }
}
