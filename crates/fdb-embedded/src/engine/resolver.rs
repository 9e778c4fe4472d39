//! The resolver: optimistic conflict detection over the last five seconds of commits.
//!
//! A transaction conflicts if a range that it read was written after its read version. Each batch
//! leaves one sorted array of the ranges it wrote. A check walks the batches after the read
//! version, newest first, and searches the shorter side's ranges in the longer by bisection. So a
//! check costs little for a transaction that lives a few milliseconds, and a commit without reads
//! costs nothing. Memory is the written keys of the window and twelve bytes for each.

use std::collections::{BTreeSet, VecDeque};

use mutant::mutant;

use crate::limits::{MAX_CONFLICT_BYTES, VERSION_WINDOW};
use crate::range_set::{KeyRange, RangeSet};

/// The result of a conflict check.
#[derive(Debug, PartialEq, Eq)]
pub enum ConflictCheck {
    /// No conflict.
    Commit,
    /// The read version is older than the window.
    TooOld,
    /// Indices of the transaction's reads that were written since, ascending.
    Conflict(Vec<usize>),
}

/// The ranges that one batch wrote.
#[derive(Debug)]
struct BatchWrites {
    version: i64,
    ranges: SortedRanges,
}

/// The recent writes that commits are checked against.
#[derive(Debug)]
pub struct Resolver {
    window: VecDeque<BatchWrites>,
    /// Bytes of the window.
    bytes: usize,
    /// The most bytes of the window.
    max_bytes: usize,
    current: RangeSet,
    /// Reads at versions before this one cannot be checked.
    oldest: i64,
}

impl Resolver {
    /// A resolver without commits. Reads before `version` cannot be checked.
    #[must_use]
    pub fn new(version: i64) -> Resolver {
        Resolver {
            window: VecDeque::new(),
            bytes: 0,
            max_bytes: MAX_CONFLICT_BYTES,
            current: RangeSet::default(),
            oldest: version,
        }
    }

    /// Starts a batch at `version`, and drops batches older than the window.
    pub fn start_batch(&mut self, version: i64) {
        self.oldest = self.oldest.max(version - VERSION_WINDOW);
        while self.window.front().is_some_and(|batch| batch.version <= self.oldest) {
            self.forget_oldest();
        }
    }

    /// Drops batches older than the window at `version`, and returns their memory.
    pub fn trim_expired(&mut self, version: i64) {
        self.start_batch(version);
        self.window.shrink_to_fit();
    }

    /// Bytes of the window.
    #[cfg(any(test, feature = "testing"))]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn forget_oldest(&mut self) {
        if let Some(batch) = self.window.pop_front() {
            self.bytes -= batch.ranges.size();
            self.oldest = self.oldest.max(batch.version);
        }
    }

    /// Checks one transaction of the current batch, after the earlier ones were added. `reads` are
    /// disjoint, not empty, and in key order. With `find_all`, returns all conflicts instead of the
    /// first.
    #[must_use]
    pub fn check(&self, read_version: i64, reads: &[KeyRange], find_all: bool) -> ConflictCheck {
        if read_version < self.oldest {
            return ConflictCheck::TooOld;
        }
        let newer = self.window.iter().rev().take_while(|batch| batch.version > read_version);
        let mut hits = BTreeSet::new();
        for written in newer.map(|batch| &batch.ranges as &dyn WrittenRanges).chain([&self.current as _]) {
            find_conflicts(written, reads, &mut |index| {
                hits.insert(index);
                find_all
            });
            if !find_all && !hits.is_empty() {
                break;
            }
        }
        if hits.is_empty() {
            ConflictCheck::Commit
        } else {
            ConflictCheck::Conflict(hits.into_iter().collect())
        }
    }

    /// Adds the writes of a transaction that commits in the current batch.
    pub fn add_writes(&mut self, writes: impl IntoIterator<Item = KeyRange>) {
        for (begin, end) in writes {
            if mutant("resolver-forgets-a-range") && end.strip_prefix(&begin[..]) != Some(&[0]) {
                continue;
            }
            self.current.insert(begin, end);
        }
    }

    /// Ends the current batch, which committed at `version`.
    pub fn finish_batch(&mut self, version: i64) {
        let current = std::mem::take(&mut self.current);
        if !current.is_empty() {
            let ranges = SortedRanges::new(&current);
            self.bytes += ranges.size();
            self.window.push_back(BatchWrites { version, ranges });
            while self.bytes > self.max_bytes && self.window.len() > 1 {
                self.forget_oldest();
            }
            if mutant("conflicts-of-one-batch-kept") && self.window.len() > 1 {
                self.bytes -= self.window.pop_front().map_or(0, |batch| batch.ranges.size());
            }
        }
    }
}

/// Receives a range; without an end if the range is one key.
type EachRange<'e> = &'e mut dyn FnMut(&[u8], Option<&[u8]>);

/// The ranges that a batch wrote, disjoint and in key order.
trait WrittenRanges {
    fn len(&self) -> usize;
    fn intersects(&self, begin: &[u8], end: &[u8]) -> bool;
    fn each(&self, each: EachRange<'_>);
}

/// Calls `hit` with the index of each conflicting read until it returns false. Walks the side with
/// fewer ranges and searches the other, so that neither many reads nor many writes alone make it
/// slow.
fn find_conflicts(written: &dyn WrittenRanges, reads: &[KeyRange], hit: &mut dyn FnMut(usize) -> bool) {
    if reads.len() <= written.len() {
        let collisions = reads.iter().enumerate().filter(|(_, (begin, end))| written.intersects(begin, end));
        // The search ends when `hit` returns false.
        let _ = collisions.map(|(index, _)| index).find(|index| !hit(*index));
        return;
    }
    let mut go_on = true;
    written.each(&mut |begin, end| {
        let first = reads.partition_point(|(_, read_end)| read_end.as_slice() <= begin);
        let starts_before = |read: &[u8]| end.map_or(read <= begin, |end| read < end);
        let mut reached = reads.iter().enumerate().skip(first);
        while go_on
            && let Some((index, (read, _))) = reached.next()
            && starts_before(read)
        {
            go_on = hit(index);
        }
    });
}

impl WrittenRanges for RangeSet {
    fn len(&self) -> usize {
        RangeSet::len(self)
    }

    fn intersects(&self, begin: &[u8], end: &[u8]) -> bool {
        RangeSet::intersects(self, begin, end)
    }

    fn each(&self, each: EachRange<'_>) {
        self.iter().for_each(|(begin, end)| each(begin, Some(end)));
    }
}

/// Disjoint ranges in key order, in one allocation.
#[derive(Debug)]
struct SortedRanges {
    bytes: Box<[u8]>,
    /// For each range the offsets of its begin and its end, and the end's end. A range of one key
    /// has an empty end; it stands for the begin and a zero byte.
    bounds: Box<[[u32; 3]]>,
}

impl SortedRanges {
    fn new(ranges: &RangeSet) -> SortedRanges {
        let at = |bytes: &Vec<u8>| u32::try_from(bytes.len()).expect("a batch is far smaller than 4 GiB");
        let mut bytes = Vec::new();
        let mut bounds = Vec::with_capacity(ranges.len());
        for (begin, end) in ranges.iter() {
            let start = at(&bytes);
            bytes.extend_from_slice(begin);
            let middle = at(&bytes);
            if end.strip_prefix(begin) != Some(&[0]) {
                bytes.extend_from_slice(end);
            }
            bounds.push([start, middle, at(&bytes)]);
        }
        SortedRanges { bytes: bytes.into_boxed_slice(), bounds: bounds.into_boxed_slice() }
    }

    /// Bytes of memory.
    fn size(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.bounds)
    }

    fn slice(&self, from: u32, to: u32) -> &[u8] {
        &self.bytes[from as usize..to as usize]
    }
}

impl WrittenRanges for SortedRanges {
    fn len(&self) -> usize {
        self.bounds.len()
    }

    fn intersects(&self, begin: &[u8], end: &[u8]) -> bool {
        // Only the last range that begins before `end` can reach beyond `begin`.
        let index = self.bounds.partition_point(|[from, to, _]| self.slice(*from, *to) < end);
        let Some([from, middle, to]) = index.checked_sub(1).map(|i| self.bounds[i]) else { return false };
        if middle == to { begin <= self.slice(from, middle) } else { begin < self.slice(middle, to) }
    }

    fn each(&self, each: EachRange<'_>) {
        for [from, middle, to] in &self.bounds {
            let end = (middle < to).then(|| self.slice(*middle, *to));
            each(self.slice(*from, *middle), end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(begin: u8, end: u8) -> KeyRange {
        (vec![begin], vec![end])
    }

    /// Disjoint, non-adjacent ranges from any bounds, as a transaction's reads are.
    fn reads(bounds: &[(u8, u8)]) -> Vec<KeyRange> {
        let ranges = bounds.iter().map(|(a, b)| range(*a.min(b), *a.max(b) + 1));
        ranges.collect::<RangeSet>().into_iter().collect()
    }

    proptest! {
        #[test]
        fn resolver_agrees_with_the_latest_write_of_each_key(
            batches in proptest::collection::vec(proptest::collection::vec((0u8..30, 0u8..30), 0..4), 1..12),
            bounds in proptest::collection::vec((0u8..29, 0u8..29), 0..6),
            behind in 0usize..12, sealed in any::<bool>(),
        ) {
            let reads = reads(&bounds);
            let mut resolver = Resolver::new(0);
            let mut last_write = [0i64; 30];
            let mut version = 10;
            for (n, batch) in batches.iter().enumerate() {
                version += 1;
                for (b, e) in batch {
                    resolver.add_writes([range(*b, *e)]);
                    for key in *b..*e {
                        last_write[usize::from(key)] = version;
                    }
                }
                // The last batch may still be current.
                if sealed || n + 1 < batches.len() {
                    resolver.finish_batch(version);
                }
            }
            // Writes of the current batch are newer than any read version.
            let newest = version - i64::from(!sealed);
            let read_version = newest.min(version - i64::try_from(behind).unwrap());
            let written = |(begin, end): &KeyRange| {
                (begin[0]..end[0]).any(|key| last_write[usize::from(key)] > read_version)
            };
            let expected: Vec<usize> = (0..reads.len()).filter(|i| written(&reads[*i])).collect();
            let some = resolver.check(read_version, &reads, false);
            prop_assert_eq!(some == ConflictCheck::Commit, expected.is_empty());
            let all = if expected.is_empty() { ConflictCheck::Commit } else { ConflictCheck::Conflict(expected) };
            prop_assert_eq!(resolver.check(read_version, &reads, true), all);
        }
    }

    #[test]
    fn a_single_key_is_hit_by_its_own_range_only() {
        let mut resolver = Resolver::new(0);
        resolver.add_writes([(b"k".to_vec(), b"k\0".to_vec())]);
        resolver.finish_batch(5);
        assert_eq!(
            resolver.check(4, &[(b"k".to_vec(), b"k\0".to_vec())], true),
            ConflictCheck::Conflict(vec![0])
        );
        assert_eq!(resolver.check(4, &[(b"k\0".to_vec(), b"z".to_vec())], true), ConflictCheck::Commit);
        assert_eq!(resolver.check(4, &[(b"a".to_vec(), b"k".to_vec())], true), ConflictCheck::Commit);
        assert_eq!(resolver.check(5, &[(b"a".to_vec(), b"z".to_vec())], true), ConflictCheck::Commit);
    }

    #[test]
    fn writes_that_take_too_much_memory_are_forgotten_and_older_reads_are_too_old() {
        let mut resolver = Resolver { max_bytes: 1_000, ..Resolver::new(0) };
        for version in 1..=100 {
            resolver.start_batch(version);
            resolver.add_writes([range(1, 2), range(4, 5), range(7, 8)]);
            resolver.finish_batch(version);
            assert!(resolver.bytes() <= 1_000, "{}", resolver.bytes());
        }
        assert_eq!(resolver.check(50, &[range(9, 10)], true), ConflictCheck::TooOld);
        assert_eq!(resolver.check(99, &[range(1, 2)], true), ConflictCheck::Conflict(vec![0]));
        assert_eq!(resolver.check(100, &[range(1, 2)], true), ConflictCheck::Commit);
        resolver.trim_expired(100 + VERSION_WINDOW);
        assert_eq!((resolver.bytes(), resolver.window.capacity()), (0, 0));
    }

    #[test]
    fn a_read_version_outside_the_window_is_too_old() {
        let mut resolver = Resolver::new(100);
        assert_eq!(resolver.check(99, &[], true), ConflictCheck::TooOld);
        resolver.add_writes([range(1, 2)]);
        resolver.finish_batch(200 + VERSION_WINDOW);
        resolver.start_batch(100 + 2 * VERSION_WINDOW);
        assert_eq!(resolver.check(99 + VERSION_WINDOW, &[], true), ConflictCheck::TooOld);
        assert_eq!(
            resolver.check(100 + VERSION_WINDOW, &[range(1, 2)], true),
            ConflictCheck::Conflict(vec![0])
        );
        resolver.start_batch(200 + 2 * VERSION_WINDOW);
        assert!(resolver.window.is_empty());
    }
}
