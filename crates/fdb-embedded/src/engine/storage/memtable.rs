//! A memtable: the writes that redb does not have yet, by key and version.
//!
//! The committer adds to the active memtable, readers look up keys at their versions, and the
//! flusher writes the final values to redb. Entries are never changed or removed, so a read at a
//! version always gives the same result.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Included};

use baton::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use bytes::Bytes;
use mutant::bound;
use smallvec::SmallVec;

use crate::rows::Direction;

/// A key and its value, or `None` if the key is absent.
pub type Row = (Bytes, Option<Bytes>);

/// The values of a key and the versions from which they hold, oldest first. Most keys have one.
type Versions = SmallVec<[(i64, Option<Bytes>); 1]>;

/// Keys in the first page of a [`MemtableCursor`]. Each further page is twice as long.
const FIRST_PAGE: usize = 8;
/// The most keys in a page.
const MAX_PAGE: usize = 128;

/// Approximate memory of an entry in addition to its key and value.
const ENTRY_OVERHEAD: usize = 96;

#[derive(Debug, Default)]
struct MemtableRows {
    by_key: BTreeMap<Bytes, Versions>,
    size: MemtableSize,
}

impl MemtableRows {
    /// The keys of `[begin, end)` whose newest value is present.
    fn present(&self, begin: &[u8], end: &[u8]) -> impl Iterator<Item = &Bytes> {
        let range = self.by_key.range::<[u8], _>((Included(begin), Excluded(end)));
        let is_there = |versions: &Versions| versions.last().is_some_and(|(_, value)| value.is_some());
        range.filter(move |(_, versions)| is_there(versions)).map(|(key, _)| key)
    }
}

/// The size of a memtable.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct MemtableSize {
    /// Approximate bytes of memory.
    pub bytes: usize,
    /// Writes.
    pub writes: usize,
    /// Writes that removed a key. A reader of a range steps over each of them.
    pub removals: usize,
}

/// The writes of some batches, all versions of each key.
#[derive(Debug, Default)]
pub struct Memtable(RwLock<MemtableRows>);

impl Memtable {
    /// Adds the writes of a batch. Versions must ascend. Readers wait until the writer is dropped.
    pub fn writer(&self, version: i64) -> MemtableWriter<'_> {
        MemtableWriter { rows: self.0.write(), version }
    }

    /// Reads the current entries. The committer waits until the reader is dropped.
    pub fn reader(&self) -> MemtableReader<'_> {
        MemtableReader(self.0.read())
    }

    /// True if a read would not wait.
    #[cfg(test)]
    pub fn is_readable(&self) -> bool {
        self.0.try_read().is_some()
    }

    /// How much it holds.
    pub fn size(&self) -> MemtableSize {
        self.0.read().size
    }

    /// The value of `key` at `version`, if the memtable has one.
    pub fn get(&self, key: &[u8], version: i64) -> Option<Option<Bytes>> {
        let rows = self.0.read();
        value_at(rows.by_key.get(key)?, version).cloned()
    }

    /// Calls `visit` with the final value of each written key, in key order.
    pub fn each_newest<E>(
        &self,
        mut visit: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), E>,
    ) -> Result<(), E> {
        let rows = self.0.read();
        rows.by_key.iter().try_for_each(|(key, versions)| match versions.last() {
            Some((_, value)) => visit(key, value.as_deref()),
            None => Ok(()),
        })
    }

    /// The keys of `[begin, end)` written at `version` or before, in the order of `direction`.
    pub fn range<'d>(
        &'d self,
        begin: &'d [u8],
        end: &'d [u8],
        version: i64,
        direction: Direction,
    ) -> MemtableCursor<'d> {
        let is_over = begin >= end;
        MemtableCursor {
            memtable: self,
            begin,
            end,
            version,
            direction,
            last: None,
            rows: VecDeque::new(),
            page: bound("memtable-first-page", FIRST_PAGE),
            is_over,
        }
    }
}

/// The entries of a memtable, locked against writes.
#[derive(Debug)]
pub struct MemtableReader<'d>(RwLockReadGuard<'d, MemtableRows>);

impl MemtableReader<'_> {
    /// True if the memtable has `key` at any version.
    pub fn has(&self, key: &[u8]) -> bool {
        self.0.by_key.contains_key(key)
    }

    /// How many keys of `[begin, end)` have a newest value, counted up to `most`.
    pub fn count_present(&self, begin: &[u8], end: &[u8], most: usize) -> usize {
        self.0.present(begin, end).take(most).count()
    }
}

/// Adds writes at one version.
#[derive(Debug)]
pub struct MemtableWriter<'d> {
    rows: RwLockWriteGuard<'d, MemtableRows>,
    version: i64,
}

impl MemtableWriter<'_> {
    /// The newest value of `key`, if the memtable has one.
    pub fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let (_, value) = self.rows.by_key.get(key)?.last()?;
        Some(value.as_deref())
    }

    /// The keys of `[begin, end)` whose newest value in the memtable is present.
    pub fn present(&self, begin: &[u8], end: &[u8]) -> Vec<Bytes> {
        self.rows.present(begin, end).cloned().collect()
    }

    /// Sets the value of `key` at the writer's version.
    pub fn put(&mut self, key: Bytes, value: Option<Bytes>) {
        let MemtableRows { by_key, size } = &mut *self.rows;
        size.bytes += ENTRY_OVERHEAD + key.len() + value.as_ref().map_or(0, Bytes::len);
        size.writes += 1;
        size.removals += usize::from(value.is_none());
        let versions = by_key.entry(key).or_default();
        match versions.last_mut() {
            Some((version, last)) if *version == self.version => *last = value,
            _ => versions.push((self.version, value)),
        }
    }
}

fn value_at(versions: &Versions, version: i64) -> Option<&Option<Bytes>> {
    let newest = versions.iter().rev().find(|(since, _)| *since <= version);
    newest.map(|(_, value)| value)
}

/// Iterates over a range of a memtable. Locks it for one page of keys at a time.
#[derive(Debug)]
pub struct MemtableCursor<'d> {
    memtable: &'d Memtable,
    begin: &'d [u8],
    end: &'d [u8],
    version: i64,
    direction: Direction,
    /// The last key of the previous page.
    last: Option<Bytes>,
    rows: VecDeque<Row>,
    page: usize,
    is_over: bool,
}

impl MemtableCursor<'_> {
    fn fetch(&mut self) {
        let rows = self.memtable.0.read();
        let seen = |(key, versions): (&Bytes, &Versions)| {
            let value = value_at(versions, self.version);
            (key.clone(), value.cloned())
        };
        let last = self.last.as_deref();
        let page: Vec<(Bytes, Option<Option<Bytes>>)> = match self.direction {
            Direction::Forward => {
                let from = last.map_or(Included(self.begin), Excluded);
                rows.by_key.range::<[u8], _>((from, Excluded(self.end))).take(self.page).map(seen).collect()
            }
            Direction::Backward => {
                let to = last.map_or(Excluded(self.end), Excluded);
                let range = rows.by_key.range::<[u8], _>((Included(self.begin), to));
                range.rev().take(self.page).map(seen).collect()
            }
        };
        drop(rows);
        self.is_over = page.len() < self.page;
        self.page = bound("memtable-page", MAX_PAGE).min(self.page * 2);
        self.last = page.last().map(|(key, _)| key.clone());
        self.rows = page.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    }
}

impl Iterator for MemtableCursor<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        while self.rows.is_empty() && !self.is_over {
            self.fetch();
        }
        self.rows.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(memtable: &Memtable, version: i64, rows: impl IntoIterator<Item = Row>) {
        let mut writer = memtable.writer(version);
        rows.into_iter().for_each(|(key, value)| writer.put(key, value));
    }

    fn row(key: u32, value: Option<&'static [u8]>) -> Row {
        (Bytes::copy_from_slice(format!("{key:04}").as_bytes()), value.map(Bytes::from_static))
    }

    #[test]
    fn a_read_at_a_version_sees_only_writes_up_to_it() {
        let memtable = Memtable::default();
        write(&memtable, 10, [row(1, Some(b"a")), row(2, Some(b"b"))]);
        write(&memtable, 20, [row(1, None), row(3, Some(b"c"))]);
        let at = |version| {
            let rows: Vec<_> = memtable.range(b"", b"\xff", version, Direction::Forward).collect();
            for (key, value) in &rows {
                assert_eq!(memtable.get(key, version).as_ref(), Some(value));
            }
            rows
        };
        assert_eq!(at(9), []);
        assert_eq!(at(19), [row(1, Some(b"a")), row(2, Some(b"b"))]);
        assert_eq!(at(20), [row(1, None), row(2, Some(b"b")), row(3, Some(b"c"))]);
        assert_eq!(memtable.get(b"0003", 19), None);
        let writer = memtable.writer(30);
        assert_eq!((writer.get(b"0001"), writer.get(b"0002")), (Some(None), Some(Some(&b"b"[..]))));
        assert_eq!((writer.get(b"0004"), writer.present(b"", b"0003").len()), (None, 1));
        drop(writer);
        let MemtableSize { writes, removals, .. } = memtable.size();
        assert_eq!((writes, removals), (4, 1));
        let mut last = Vec::new();
        let visit = |key: &[u8], value: Option<&[u8]>| {
            last.push((Bytes::copy_from_slice(key), value.map(Bytes::copy_from_slice)));
            Ok::<_, ()>(())
        };
        memtable.each_newest(visit).unwrap();
        assert_eq!(last, at(20));
        write(&memtable, 20, [row(3, Some(b"d")), row(3, None)]);
        assert_eq!(memtable.get(b"0003", 20), Some(None), "the last write of a version counts");
    }

    #[test]
    fn a_long_range_has_every_key_once_during_writes() {
        let memtable = Memtable::default();
        write(&memtable, 1, (0..1_000).map(|n| row(n, Some(b"x"))));
        let mut cursor = memtable.range(b"0003", b"0900", 1, Direction::Forward);
        let mut found: Vec<Row> = cursor.by_ref().take(100).collect();
        write(&memtable, 2, (0..1_000).map(|n| row(n, None)));
        found.extend(cursor);
        let expected: Vec<Row> = (3..900).map(|n| row(n, Some(b"x"))).collect();
        assert_eq!(found, expected);
        let mut backward: Vec<Row> = memtable.range(b"0003", b"0900", 1, Direction::Backward).collect();
        backward.reverse();
        assert_eq!(backward, expected);
        assert_eq!(memtable.range(b"5", b"4", 1, Direction::Forward).count(), 0);
    }
}
