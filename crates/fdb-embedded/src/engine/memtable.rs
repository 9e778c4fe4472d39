//! What batches have written that redb does not have yet, by key and version.
//!
//! The committer adds to a memtable, readers look into it at their version, and the applier puts what it holds in the end into redb. It
//! only ever grows, so that whoever reads at a version sees the same at any time.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Included};

use bytes::Bytes;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

use crate::rows::Direction;

/// A key and what it holds: `None` if it is not there.
pub type Row = (Bytes, Option<Bytes>);

/// What a key held from which version on, oldest first: most are written once.
type Versions = SmallVec<[(i64, Option<Bytes>); 1]>;

/// Keys that a [`MemtableCursor`] fetches at first; it fetches twice as many each time.
const FIRST_PAGE: usize = 8;
/// And at most.
const MAX_PAGE: usize = 128;

/// Memory that an entry takes beside its key and value, about.
const ENTRY_OVERHEAD: usize = 96;

#[derive(Debug, Default)]
struct MemtableRows {
    by_key: BTreeMap<Bytes, Versions>,
    size: MemtableSize,
}

/// How much a memtable holds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct MemtableSize {
    /// Bytes of memory, about.
    pub bytes: usize,
    /// Writes.
    pub writes: usize,
    /// How many of them removed a key. Whoever reads a range passes by all of these, one by one.
    pub removals: usize,
}

/// Writes that redb does not have yet.
#[derive(Debug, Default)]
pub struct Memtable(RwLock<MemtableRows>);

impl Memtable {
    /// Adds what a batch writes; versions come in order. Nobody reads here meanwhile.
    pub fn writer(&self, version: i64) -> MemtableWriter<'_> {
        MemtableWriter { rows: self.0.write(), version }
    }

    /// What it holds now. Others read meanwhile; nobody writes.
    pub fn reader(&self) -> MemtableReader<'_> {
        MemtableReader(self.0.read())
    }

    /// True if a read would not have to wait.
    #[cfg(test)]
    pub fn is_readable(&self) -> bool {
        self.0.try_read().is_some()
    }

    /// How much it holds.
    pub fn size(&self) -> MemtableSize {
        self.0.read().size
    }

    /// What `key` holds at `version`, if it was written here by then.
    pub fn get(&self, key: &[u8], version: i64) -> Option<Option<Bytes>> {
        let rows = self.0.read();
        value_at(rows.by_key.get(key)?, version).cloned()
    }

    /// What every key that was written holds in the end, in order.
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

    /// The keys of `[begin, end)` that were written by `version`, in the order of `direction`.
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
            page: FIRST_PAGE,
            is_over,
        }
    }
}

/// What a memtable holds while nobody writes.
#[derive(Debug)]
pub struct MemtableReader<'d>(RwLockReadGuard<'d, MemtableRows>);

impl MemtableReader<'_> {
    /// Was `key` written here?
    pub fn has(&self, key: &[u8]) -> bool {
        self.0.by_key.contains_key(key)
    }
}

/// Adds the writes of one version.
#[derive(Debug)]
pub struct MemtableWriter<'d> {
    rows: RwLockWriteGuard<'d, MemtableRows>,
    version: i64,
}

impl MemtableWriter<'_> {
    /// What `key` holds now, if it was written here.
    pub fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let (_, value) = self.rows.by_key.get(key)?.last()?;
        Some(value.as_deref())
    }

    /// The keys of `[begin, end)` that were written here and are there.
    pub fn present(&self, begin: &[u8], end: &[u8]) -> Vec<Bytes> {
        let range = self.rows.by_key.range::<[u8], _>((Included(begin), Excluded(end)));
        let is_there = |versions: &Versions| versions.last().is_some_and(|(_, value)| value.is_some());
        range.filter(|(_, versions)| is_there(versions)).map(|(key, _)| key.clone()).collect()
    }

    /// `key` holds `value` from here on.
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

/// Walks over a range of a memtable, and holds its lock for a page of keys at a time.
#[derive(Debug)]
pub struct MemtableCursor<'d> {
    memtable: &'d Memtable,
    begin: &'d [u8],
    end: &'d [u8],
    version: i64,
    direction: Direction,
    /// The last key that was fetched.
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
        self.page = MAX_PAGE.min(self.page * 2);
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
    fn a_version_sees_what_was_written_by_then_and_nothing_of_what_comes() {
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
    fn a_range_of_many_pages_has_every_key_once_from_either_side_while_more_are_written() {
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
