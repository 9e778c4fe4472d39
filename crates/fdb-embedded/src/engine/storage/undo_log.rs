//! The undo log: old values of the last five seconds, with which any version since can be read from
//! the newest state.
//!
//! When a memtable goes to redb, it leaves an [`UndoSegment`]: the keys that it changed and their
//! values before. To find a key's value at an old version, a reader looks into the memtable of that
//! version, then into the undo segments from that one on, oldest first, and then reads the newest
//! state. So an old version needs no snapshot of redb, which would keep freed pages from being
//! reused.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::memtable::{Memtable, MemtableCursor, Row};
use crate::limits::MAX_UNDO_BYTES;
use crate::rows::Direction;

/// The length that stands for an absent value.
const ABSENT: u32 = u32::MAX;

/// A key and its old value, as positions in [`UndoBuilder::bytes`].
#[derive(Debug, Clone, Copy)]
struct UndoRecord {
    at: u32,
    key: u32,
    value: u32,
}

impl UndoRecord {
    fn key(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.at as usize..][..self.key as usize]
    }

    fn value(self, bytes: &[u8]) -> Option<&[u8]> {
        (self.value != ABSENT).then(|| &bytes[(self.at + self.key) as usize..][..self.value as usize])
    }
}

/// Memory of bytes and records.
fn memory(bytes: &[u8], records: &[UndoRecord]) -> usize {
    bytes.len() + size_of_val(records)
}

/// Collects undo records while a memtable or a batch is applied to redb.
#[derive(Debug, Default)]
pub struct UndoBuilder {
    /// Growth of all keys and values in bytes; negative if they shrank.
    pub size_change: i64,
    bytes: Vec<u8>,
    records: Vec<UndoRecord>,
    is_too_large: bool,
}

impl UndoBuilder {
    /// Records the old value of `key`, which is changed now.
    pub fn record(&mut self, key: &[u8], old: Option<&[u8]>) {
        // Only the value before all changes counts. Repeated changes of a key usually follow each
        // other.
        let is_recorded = self.records.last().is_some_and(|last| last.key(&self.bytes) == key);
        if self.is_too_large || is_recorded {
            return;
        }
        let added = size_of::<UndoRecord>() + key.len() + old.map_or(0, <[u8]>::len);
        if memory(&self.bytes, &self.records) + added > MAX_UNDO_BYTES {
            *self = UndoBuilder { is_too_large: true, ..UndoBuilder::default() };
            return;
        }
        let narrow = |n: usize| u32::try_from(n).expect("MAX_UNDO_BYTES is below 4 GiB");
        let value = old.map_or(ABSENT, |old| narrow(old.len()));
        self.records.push(UndoRecord { at: narrow(self.bytes.len()), key: narrow(key.len()), value });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(old.unwrap_or_default());
    }
}

/// The old values of the keys that one flush to redb changed, in key order.
#[derive(Debug)]
pub struct UndoSegment {
    bytes: Vec<u8>,
    records: Vec<UndoRecord>,
}

impl UndoSegment {
    /// Sorts the records; `None` if they take too much memory. Runs on the flusher's thread,
    /// because sorting takes time.
    pub fn new(changes: UndoBuilder) -> Option<UndoSegment> {
        let UndoBuilder { mut bytes, mut records, is_too_large, .. } = changes;
        if is_too_large {
            return None;
        }
        // They usually are sorted already.
        records.sort_by(|a, b| a.key(&bytes).cmp(b.key(&bytes)));
        // The sort is stable, so the first record of a key has its oldest value.
        records.dedup_by(|later, first| later.key(&bytes) == first.key(&bytes));
        bytes.shrink_to_fit();
        records.shrink_to_fit();
        Some(UndoSegment { bytes, records })
    }

    fn len(&self) -> usize {
        size_of::<UndoSegment>() + memory(&self.bytes, &self.records)
    }

    /// The old value of `key`, if this segment has one.
    fn before(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let found = self.records.binary_search_by(|entry| entry.key(&self.bytes).cmp(key)).ok()?;
        Some(self.records[found].value(&self.bytes))
    }

    fn range(&self, begin: &[u8], end: &[u8]) -> std::slice::Iter<'_, UndoRecord> {
        let first = self.records.partition_point(|entry| entry.key(&self.bytes) < begin);
        let rest = &self.records[first..];
        rest[..rest.partition_point(|entry| entry.key(&self.bytes) < end)].iter()
    }
}

/// The old values of a range, in the order of a scan. Copies a row when it is asked for, so a short
/// read costs little however much has changed.
pub struct UndoRows<'a> {
    /// The next row of each segment.
    heads: BinaryHeap<Head<'a>>,
    direction: Direction,
}

/// A segment's next row.
struct Head<'a> {
    segment: &'a UndoSegment,
    record: UndoRecord,
    rest: std::slice::Iter<'a, UndoRecord>,
    /// The position of the segment: of several with one key, the oldest counts.
    age: usize,
    direction: Direction,
}

impl<'a> UndoRows<'a> {
    fn new(segments: &'a [Arc<UndoSegment>], begin: &[u8], end: &[u8], direction: Direction) -> UndoRows<'a> {
        let mut rows = UndoRows { heads: BinaryHeap::new(), direction };
        for (age, segment) in segments.iter().enumerate() {
            rows.push(segment, segment.range(begin, end), age);
        }
        rows
    }

    fn push(&mut self, segment: &'a UndoSegment, mut rest: std::slice::Iter<'a, UndoRecord>, age: usize) {
        let direction = self.direction;
        let next = if direction == Direction::Forward { rest.next() } else { rest.next_back() };
        let head = next.map(|record| Head { segment, record: *record, rest, age, direction });
        self.heads.extend(head);
    }
}

impl Iterator for UndoRows<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        let Head { segment, record, rest, age, .. } = self.heads.pop()?;
        let key = record.key(&segment.bytes);
        self.push(segment, rest, age);
        while self.heads.peek().is_some_and(|head| head.key() == key) {
            let Head { segment, rest, age, .. } = self.heads.pop()?;
            self.push(segment, rest, age);
        }
        #[cfg(test)]
        tests::COPIED.set(tests::COPIED.get() + 1);
        Some((Bytes::copy_from_slice(key), record.value(&segment.bytes).map(Bytes::copy_from_slice)))
    }
}

impl<'a> Head<'a> {
    fn key(&self) -> &'a [u8] {
        self.record.key(&self.segment.bytes)
    }
}

/// The greatest is the next row of the scan.
impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_key = match self.direction {
            Direction::Forward => other.key().cmp(self.key()),
            Direction::Backward => self.key().cmp(other.key()),
        };
        by_key.then(other.age.cmp(&self.age))
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head<'_> {}

/// A memtable that went to redb, and its undo segment.
#[derive(Debug)]
pub struct FlushedMemtable {
    /// The writes, with all versions.
    pub memtable: Arc<Memtable>,
    /// The old values, unless they take too much memory.
    pub undo: Option<UndoSegment>,
    /// The version of the last batch.
    pub last: i64,
}

/// A memtable with its undo segment.
#[derive(Debug)]
pub struct RetainedSegment {
    memtable: Arc<Memtable>,
    segment: Arc<UndoSegment>,
    last: i64,
}

impl RetainedSegment {
    fn len(&self) -> usize {
        self.segment.len() + self.memtable.size().bytes
    }
}

/// The undo data that leads from the newest state back to one version.
#[derive(Debug, Default)]
pub struct UndoView {
    /// The memtable that the version lies in, and the version.
    written: Option<(Arc<Memtable>, i64)>,
    /// The undo segments of that memtable and the later ones, oldest first.
    segments: Vec<Arc<UndoSegment>>,
}

impl UndoView {
    /// True if the version is the newest state itself.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// The value of `key` at the version, if it has changed since.
    pub fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let written = self.written.as_ref().and_then(|(memtable, version)| memtable.get(key, *version));
        let before = || self.segments.iter().find_map(|segment| segment.before(key));
        written.or_else(|| before().map(|value| value.map(Bytes::copy_from_slice)))
    }

    /// The values at the version of keys in `[begin, end)` that have changed since, in the order of
    /// `direction`. Where both have a key, the rows of the memtable count.
    pub fn range<'a>(
        &'a self,
        begin: &'a [u8],
        end: &'a [u8],
        direction: Direction,
    ) -> (Option<MemtableCursor<'a>>, UndoRows<'a>) {
        let written = self.written.as_ref();
        let written = written.map(|(memtable, version)| memtable.range(begin, end, *version, direction));
        (written, UndoRows::new(&self.segments, begin, end, direction))
    }
}

/// The undo segments of the last five seconds, as far as memory allows.
#[derive(Debug)]
pub struct UndoLog {
    retained: VecDeque<RetainedSegment>,
    /// Versions below this one cannot be read.
    oldest: i64,
    bytes: usize,
}

impl UndoLog {
    /// An undo log that starts at `version`.
    pub fn new(version: i64) -> UndoLog {
        UndoLog { retained: VecDeque::new(), oldest: version, bytes: 0 }
    }

    /// Adds a flushed memtable. Returns the segments that it drops: up to version `expired`, and as
    /// many as take too much memory. Freeing them takes time, so it should not happen under a lock.
    #[must_use]
    pub fn push(&mut self, group: FlushedMemtable, expired: i64) -> Vec<RetainedSegment> {
        let FlushedMemtable { memtable, undo: segment, last } = group;
        let mut limit = MAX_UNDO_BYTES;
        match segment {
            None => {
                self.oldest = last;
                limit = 0;
            }
            // A memtable without undo records still has versions in between.
            Some(segment) if segment.records.is_empty() && memtable.size().writes == 0 => {}
            Some(segment) => {
                let kept = RetainedSegment { memtable, segment: Arc::new(segment), last };
                self.bytes += kept.len();
                self.retained.push_back(kept);
            }
        }
        self.trim(limit, expired)
    }

    /// Returns the segments up to version `expired`, as [`UndoLog::push`] does.
    #[must_use]
    pub fn trim_expired(&mut self, expired: i64) -> Vec<RetainedSegment> {
        let retired = self.trim(MAX_UNDO_BYTES, expired);
        self.retained.shrink_to_fit();
        retired
    }

    fn trim(&mut self, limit: usize, expired: i64) -> Vec<RetainedSegment> {
        let mut retired = Vec::new();
        while let Some(oldest) =
            self.retained.pop_front_if(|oldest| oldest.last <= expired || self.bytes > limit)
        {
            self.bytes -= oldest.len();
            self.oldest = self.oldest.max(oldest.last);
            retired.push(oldest);
        }
        retired
    }

    /// Bytes of all segments and memtables.
    #[cfg(feature = "testing")]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if `version` can be read.
    pub fn reaches(&self, version: i64) -> bool {
        version >= self.oldest
    }

    /// The undo data for `version`; `None` if that cannot be read any more.
    pub fn undo_to(&self, version: i64) -> Option<UndoView> {
        if !self.reaches(version) {
            return None;
        }
        let first = self.retained.partition_point(|group| group.last <= version);
        let retained = self.retained.range(first..);
        Some(UndoView {
            written: self.retained.get(first).map(|group| (Arc::clone(&group.memtable), version)),
            segments: retained.map(|group| Arc::clone(&group.segment)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use super::*;

    thread_local! {
        /// Rows that scans of this thread have copied from segments.
        pub(super) static COPIED: Cell<usize> = const { Cell::new(0) };
    }

    /// All rows of a range, as a reader merges them.
    fn rows(past: &UndoView, begin: &[u8], end: &[u8], direction: Direction) -> Vec<Row> {
        let (written, undo) = past.range(begin, end, direction);
        let mut rows: BTreeMap<_, _> = undo.collect();
        rows.extend(written.into_iter().flatten());
        let rows = rows.into_iter();
        if direction == Direction::Forward { rows.collect() } else { rows.rev().collect() }
    }

    #[test]
    fn a_short_read_of_an_old_version_copies_few_rows() {
        let mut undo_log = UndoLog::new(0);
        for version in 1..=20 {
            let keys: Vec<_> = (0..1_000).map(|n| format!("{:04}", n * version % 9_973)).collect();
            let notes: Vec<_> = keys.iter().map(|key| (key.as_str(), Some("v"))).collect();
            push(&mut undo_log, version, &notes, -1);
        }
        let past = undo_log.undo_to(0).unwrap();
        for (direction, first) in [(Direction::Forward, "0000"), (Direction::Backward, "9972")] {
            COPIED.set(0);
            let (_, mut undo) = past.range(b"", b"z", direction);
            let key = undo.next().unwrap().0;
            assert!(direction == Direction::Backward || key == first, "{key:?}");
            assert_eq!(COPIED.get(), 1);
            let (_, undo) = past.range(b"", b"z", direction);
            let keys: Vec<_> = undo.map(|(key, _)| key).collect();
            let is_in_order = |pair: &[Bytes]| (pair[0] < pair[1]) == (direction == Direction::Forward);
            assert!(keys.windows(2).all(|pair| pair[0] != pair[1] && is_in_order(pair)));
            assert!(keys.len() > 5_000, "{}", keys.len());
        }
    }

    fn push(undo_log: &mut UndoLog, version: i64, notes: &[(&str, Option<&str>)], expired: i64) {
        push_group(undo_log, version, Memtable::default(), notes, expired);
    }

    fn push_group(
        undo_log: &mut UndoLog,
        last: i64,
        memtable: Memtable,
        notes: &[(&str, Option<&str>)],
        expired: i64,
    ) {
        let mut changes = UndoBuilder::default();
        for (key, old) in notes {
            changes.record(key.as_bytes(), old.map(str::as_bytes));
        }
        let group = FlushedMemtable { memtable: Arc::new(memtable), undo: UndoSegment::new(changes), last };
        drop(undo_log.push(group, expired));
    }

    fn write(memtable: &Memtable, version: i64, rows: &[(&'static str, Option<&'static str>)]) {
        let mut writer = memtable.writer(version);
        for (key, value) in rows {
            let (key, value) = row(key, *value);
            writer.put(key, value);
        }
    }

    fn row(key: &'static str, value: Option<&'static str>) -> (Bytes, Option<Bytes>) {
        (Bytes::from(key), value.map(Bytes::from))
    }

    fn held(past: &UndoView, key: &str) -> Option<Option<Bytes>> {
        past.get(key.as_bytes())
    }

    #[test]
    fn first_change_after_a_version_holds_the_value_before() {
        let mut undo_log = UndoLog::new(10);
        push(&mut undo_log, 20, &[("b", None), ("a", Some("1")), ("a", Some("not this"))], 0);
        push(&mut undo_log, 30, &[("a", Some("2")), ("c", Some(""))], 0);
        assert!(undo_log.undo_to(9).is_none());
        let past = undo_log.undo_to(19).unwrap();
        assert_eq!(held(&past, "a"), Some(Some("1".into())));
        assert_eq!(held(&past, "b"), Some(None));
        assert_eq!(held(&past, "d"), None);
        let range = rows(&past, b"b", b"z", Direction::Forward);
        assert_eq!(range, [row("b", None), row("c", Some(""))]);
        assert_eq!(held(&undo_log.undo_to(20).unwrap(), "a"), Some(Some("2".into())));
        assert!(undo_log.undo_to(30).unwrap().is_empty());
    }

    #[test]
    fn batches_of_a_group_precede_the_values_before_the_group() {
        let mut undo_log = UndoLog::new(10);
        let memtable = Memtable::default();
        write(&memtable, 12, &[("a", Some("x")), ("b", Some("y"))]);
        write(&memtable, 14, &[("a", None), ("c", Some("z"))]);
        // "a" was absent before, and is absent after.
        push_group(&mut undo_log, 14, memtable, &[("b", Some("0")), ("c", None)], 0);
        push(&mut undo_log, 20, &[("b", Some("y"))], 0);
        let at = |version: i64, key: &str| held(&undo_log.undo_to(version).unwrap(), key);
        assert_eq!((at(11, "a"), at(11, "b"), at(11, "c")), (None, Some(Some("0".into())), Some(None)));
        let [x, y] = ["x", "y"].map(|value| Some(Some(value.into())));
        assert_eq!((at(12, "a"), at(13, "b"), at(13, "c")), (x, y.clone(), Some(None)));
        assert_eq!((at(14, "a"), at(14, "b"), at(14, "c")), (None, y, None));
        let backward = rows(&undo_log.undo_to(13).unwrap(), b"a", b"z", Direction::Backward);
        assert_eq!(backward, [row("c", None), row("b", Some("y")), row("a", Some("x"))]);
        let mut alone = UndoLog::new(10);
        let memtable = Memtable::default();
        write(&memtable, 12, &[("a", Some("x"))]);
        write(&memtable, 14, &[("a", None)]);
        push_group(&mut alone, 14, memtable, &[], 0);
        assert_eq!(held(&alone.undo_to(13).unwrap(), "a"), Some(Some("x".into())), "in between");
    }

    #[test]
    fn undo_of_a_batch_is_bounded_and_counts_each_key_once() {
        let mut changes = UndoBuilder::default();
        let value = vec![0; 100_000];
        (0..2 * MAX_UNDO_BYTES / value.len()).for_each(|_| changes.record(b"k", Some(&value)));
        assert!(changes.bytes.len() < 2 * value.len());
        // Keys of which the records take most of the memory.
        let keys = (0..u32::MAX).take_while(|n| {
            assert!(memory(&changes.bytes, &changes.records) <= MAX_UNDO_BYTES);
            changes.record(&n.to_be_bytes(), None);
            !changes.is_too_large
        });
        assert!(keys.count() > MAX_UNDO_BYTES / 17, "sixteen bytes each");
        assert_eq!((changes.bytes.capacity(), changes.records.capacity()), (0, 0));
    }

    #[test]
    fn undo_that_is_too_old_or_too_large_is_forgotten() {
        let mut undo_log = UndoLog::new(0);
        for version in 1..=5 {
            push(&mut undo_log, version * 10, &[("k", Some("v"))], 20);
        }
        assert!(undo_log.undo_to(19).is_none());
        assert_eq!(undo_log.undo_to(20).unwrap().segments.len(), 3);
        let big = "x".repeat(MAX_UNDO_BYTES / 4);
        for version in 6..=9 {
            push(&mut undo_log, version * 10, &[("k", Some(&big))], 0);
        }
        assert!(undo_log.bytes <= MAX_UNDO_BYTES);
        assert!(undo_log.undo_to(59).is_none() && undo_log.undo_to(60).is_some());
        let all = [("a", Some(&*big)), ("b", Some(&big)), ("c", Some(&big)), ("d", Some(&big))];
        push(&mut undo_log, 100, &all, 0);
        assert!(
            undo_log.undo_to(99).is_none() && undo_log.undo_to(100).is_some(),
            "one batch that is too much"
        );
        assert_eq!(undo_log.bytes, 0);
    }
}
