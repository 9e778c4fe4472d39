//! Sets of half-open key ranges: conflict ranges, cleared ranges, unreadable ranges.

use std::ops::Bound::{Excluded, Included};
use std::ops::Range;

use crate::key_map::KeyMap;

/// A key range, begin inclusive, end exclusive.
pub type KeyRange = (Vec<u8>, Vec<u8>);

/// The first key after `key`: `key` and a zero byte.
#[must_use]
pub fn key_after(key: &[u8]) -> Vec<u8> {
    let mut after = Vec::with_capacity(key.len() + 1);
    after.extend_from_slice(key);
    after.push(0);
    after
}

/// Disjoint, non-adjacent ranges in key order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    ranges: KeyMap<Vec<u8>>,
}

impl RangeSet {
    /// True if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The number of disjoint ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The ranges in key order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        self.ranges.iter().map(|(begin, end)| (begin, end.as_slice()))
    }

    /// Adds one key.
    pub fn insert_key(&mut self, key: &[u8]) {
        self.insert(key.to_vec(), key_after(key));
    }

    /// Adds `[begin, end)`, without copying what the set contains already.
    pub fn cover(&mut self, begin: &[u8], end: &[u8]) {
        if let Some((last_begin, last_end)) = self.ranges.last_mut()
            && last_begin <= begin
            && begin <= last_end.as_slice()
        {
            if last_end.as_slice() < end {
                last_end.clear();
                last_end.extend_from_slice(end);
            }
        } else {
            self.insert(begin.to_vec(), end.to_vec());
        }
    }

    /// Adds `[begin, end)`. An empty range is ignored.
    pub fn insert(&mut self, begin: Vec<u8>, mut end: Vec<u8>) {
        if begin >= end {
            return;
        }
        // Most ranges are added in key order, or at one place.
        match self.ranges.last_mut() {
            None => return self.ranges.insert(begin, end),
            Some((_, last)) if *last < begin => return self.ranges.insert(begin, end),
            Some((first, last)) if *first <= *begin => {
                if *last < end {
                    *last = end;
                }
                return;
            }
            Some(_) => {}
        }
        let last = self.ranges.last_up_to(Included(&end));
        let is_alone = last.is_none_or(|(b, _)| *b <= *begin);
        // If no range begins inside, the last one up to `end` is also the one before `begin`.
        let before = if is_alone { last } else { self.ranges.last_up_to(Included(&begin)) };
        if before.is_some_and(|(_, e)| *e >= end) {
            return;
        }
        let goes_on = before.is_some_and(|(_, e)| *e >= begin);
        if !goes_on && is_alone {
            return self.ranges.insert(begin, end);
        }
        if !is_alone {
            let swallowed = self.ranges.take_range(&key_after(&begin), &key_after(&end));
            end = swallowed.into_iter().fold(end, |end, (_, reach)| end.max(reach));
        }
        match self.ranges.last_up_to_mut(Included(&begin)) {
            Some((_, reach)) if goes_on => *reach = end,
            _ => self.ranges.insert(begin, end),
        }
    }

    /// Removes `[begin, end)`.
    pub fn remove(&mut self, begin: &[u8], end: &[u8]) {
        if !self.intersects(begin, end) {
            return;
        }
        let mut reach = None;
        if let Some((_, e)) = self.ranges.last_up_to_mut(Excluded(begin))
            && e.as_slice() > begin
        {
            reach = Some(std::mem::replace(e, begin.to_vec()));
        }
        let inside = self.ranges.take_range(begin, end).into_iter().next_back();
        // The part of the last affected range after `end` remains.
        if let Some(e) = inside.map(|(_, e)| e).or(reach).filter(|e| e.as_slice() > end) {
            self.ranges.insert(end.to_vec(), e);
        }
    }

    /// The range that contains `key`, if any.
    pub fn containing(&self, key: &[u8]) -> Option<(&[u8], &[u8])> {
        let (begin, end) = self.ranges.last_up_to(Included(key))?;
        (key < end.as_slice()).then_some((begin, end))
    }

    /// True when `key` is in the set.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.containing(key).is_some()
    }

    /// The ranges that intersect `[begin, end)`, in key order.
    pub fn intersecting<'s>(
        &'s self,
        begin: &'s [u8],
        end: &'s [u8],
    ) -> impl DoubleEndedIterator<Item = (&'s [u8], &'s [u8])> {
        let first = self.containing(begin).filter(|(b, _)| *b < begin && begin < end);
        let rest = self.ranges.range(begin, end).map(|(b, e)| (b, e.as_slice()));
        first.into_iter().chain(rest)
    }

    /// True if the set intersects `[begin, end)`.
    pub fn intersects(&self, begin: &[u8], end: &[u8]) -> bool {
        // Only the last range that begins before `end` can reach beyond `begin`.
        let last = self.ranges.last_up_to(Excluded(end));
        begin < end && last.is_some_and(|(_, e)| begin < e.as_slice())
    }
}

impl FromIterator<KeyRange> for RangeSet {
    fn from_iter<I: IntoIterator<Item = KeyRange>>(ranges: I) -> Self {
        let mut set = RangeSet::default();
        for (begin, end) in ranges {
            set.insert(begin, end);
        }
        set
    }
}

impl IntoIterator for RangeSet {
    type Item = KeyRange;
    type IntoIter = <KeyMap<Vec<u8>> as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        self.ranges.into_iter()
    }
}

impl From<RangeSet> for Vec<KeyRange> {
    fn from(set: RangeSet) -> Self {
        set.ranges.into()
    }
}

/// A list of keys in one allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackedKeys {
    bytes: Vec<u8>,
    /// The end of each key.
    ends: Vec<usize>,
}

impl PackedKeys {
    /// An empty list with capacity for this many keys and bytes.
    #[must_use]
    pub fn with_capacity(keys: usize, bytes: usize) -> PackedKeys {
        PackedKeys { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(keys) }
    }

    /// Appends a key, given in parts.
    pub fn push(&mut self, parts: &[&[u8]]) {
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.ends.push(self.bytes.len());
    }

    /// The keys with these indices.
    pub fn range(&self, indices: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let mut at = indices.start.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.ends[indices].iter().map(move |end| &self.bytes[std::mem::replace(&mut at, *end)..*end])
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges() -> impl Strategy<Value = Vec<(bool, u8, u8)>> {
        proptest::collection::vec((any::<bool>(), 0u8..40, 0u8..40), 0..24)
    }

    #[test]
    fn packed_keys_round_trip() {
        let keys = [&b""[..], b"a", b"", b"bcd", &[0xff; 9]];
        let mut packed = PackedKeys::with_capacity(1, 2);
        keys.iter().for_each(|key| packed.push(&[&key[..key.len() / 2], &key[key.len() / 2..]]));
        assert_eq!(packed.len(), keys.len());
        for (from, to) in [(0, 5), (0, 0), (1, 4), (2, 3), (5, 5)] {
            assert_eq!(packed.range(from..to).collect::<Vec<_>>(), keys[from..to]);
        }
    }

    proptest! {
        #[test]
        fn range_set_agrees_with_a_bitmap(steps in ranges()) {
            let mut set = RangeSet::default();
            let mut bitmap = [false; 40];
            for (add, begin, end) in steps {
                if add && begin % 2 == 0 {
                    set.insert(vec![begin], vec![end]);
                } else if add {
                    set.cover(&[begin], &[end]);
                } else {
                    set.remove(&[begin], &[end]);
                }
                for key in begin..end {
                    bitmap[usize::from(key)] = add;
                }
                for (key, member) in (0u8..).zip(bitmap) {
                    prop_assert_eq!(set.contains(&[key]), member);
                    prop_assert_eq!(set.intersects(&[key], &[key, 0]), member);
                }
                let listed: Vec<_> = set.iter().collect();
                prop_assert!(listed.windows(2).all(|pair| pair[0].1 < pair[1].0), "coalesced: {:?}", listed);
                let hit = bitmap[usize::from(begin.min(end))..usize::from(end.max(begin))].contains(&true);
                prop_assert_eq!(set.intersects(&[begin.min(end)], &[end.max(begin)]), hit);
            }
        }
    }
}
