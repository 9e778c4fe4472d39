//! What the last commit has sent, for the special keys that show it.

use crate::client::write_map::{STAMP_OFFSET_LEN, WriteMap, place, split_template};
use crate::engine::mutation::Stamp;
use crate::range_set::{KeyRange, PackedKeys};

/// The conflict ranges of the last commit. Special keys show them until the transaction is reset.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// The bounds of read ranges, then those of written ranges, then the templates of stamped keys.
    keys: PackedKeys,
    /// The number of read ranges.
    reads: usize,
    /// The number of written ranges.
    writes: usize,
    /// The versionstamp, after a successful commit.
    pub(super) stamp: Option<Stamp>,
}

impl Sent {
    /// Keeps the conflict ranges of a commit, and the stamped keys among its writes.
    pub(super) fn new(reads: &[KeyRange], writes: &[KeyRange], own: &WriteMap) -> Sent {
        let ranges = || reads.iter().chain(writes);
        let of_ranges = ranges().map(|(begin, end)| (2, begin.len() + end.len()));
        let of_stamped = own.stamped_keys().map(|(key, _)| (1, key.len() + STAMP_OFFSET_LEN));
        let (count, bytes) =
            of_ranges.chain(of_stamped).fold((0, 0), |(n, len), (m, more)| (n + m, len + more));
        let mut keys = PackedKeys::with_capacity(count, bytes);
        for (begin, end) in ranges() {
            keys.push(&[begin]);
            keys.push(&[end]);
        }
        for (key, offset) in own.stamped_keys() {
            keys.push(&[key, &place(offset)]);
        }
        Sent { keys, reads: reads.len(), writes: writes.len(), stamp: None }
    }

    /// The read ranges.
    pub(super) fn reads(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.ranges(0, self.reads)
    }

    /// The written ranges, without those of stamped keys.
    pub(super) fn writes(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.ranges(self.reads, self.writes)
    }

    fn ranges(&self, first: usize, count: usize) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut bounds = self.keys.range(2 * first..2 * (first + count));
        std::iter::from_fn(move || Some((bounds.next()?, bounds.next()?)))
    }

    /// The keys that get a versionstamp, and its offset in them.
    pub(super) fn stamped_keys(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let templates = self.keys.range(2 * (self.reads + self.writes)..self.keys.len());
        templates.map(split_template)
    }
}
