//! What a transaction has written so far, as its own reads see it and as its commit sends it.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};

use crate::engine::atomic::AtomicOp;
use crate::engine::mutation::{Mutation, STAMP_LEN};
use crate::range_set::{KeyRange, RangeSet, key_after};

/// Where the value of a written key starts from, before the operations on top of it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Base {
    /// The value in the database.
    Snapshot,
    /// No value: a clear of this transaction came first.
    Absent,
    /// A value that this transaction set.
    Value(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Op {
    Atomic(AtomicOp, Vec<u8>),
    StampedValue { value: Vec<u8>, offset: usize },
}

/// All writes to one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyWrites {
    base: Base,
    ops: Vec<Op>,
}

impl KeyWrites {
    /// Does the value depend on what is in the database?
    #[must_use]
    pub fn is_dependent(&self) -> bool {
        self.base == Base::Snapshot
    }

    /// The value over `stored`, the one in the database, which is asked for only if it matters.
    pub fn value<E>(
        &self,
        stored: impl FnOnce() -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Option<Vec<u8>>, E> {
        let mut value = match &self.base {
            Base::Snapshot => stored()?,
            Base::Absent => None,
            Base::Value(value) => Some(value.clone()),
        };
        for op in &self.ops {
            value = match op {
                Op::Atomic(op, operand) => op.apply(value.as_deref(), operand),
                Op::StampedValue { value, .. } => Some(value.clone()),
            };
        }
        Ok(value)
    }
}

/// The writes of a transaction. Later ones replace or build on earlier ones.
#[derive(Debug, Default, Clone)]
pub struct WriteMap {
    keys: BTreeMap<Vec<u8>, KeyWrites>,
    /// Keys that get a versionstamp on commit, with the place of the stamp.
    stamped: BTreeMap<(Vec<u8>, usize), Vec<u8>>,
    cleared: RangeSet,
    /// Where a read would need the versionstamp that only the commit gives.
    unreadable: RangeSet,
}

impl WriteMap {
    /// True before the first write.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.stamped.is_empty() && self.cleared.is_empty()
    }

    /// Sets a key.
    pub fn set(&mut self, key: &[u8], value: &[u8]) {
        let writes = KeyWrites { base: Base::Value(value.to_vec()), ops: Vec::new() };
        self.keys.insert(key.to_vec(), writes);
    }

    /// Clears `[begin, end)`.
    pub fn clear_range(&mut self, begin: &[u8], end: &[u8]) {
        if begin >= end {
            return;
        }
        let range = begin.to_vec()..end.to_vec();
        self.keys.extract_if(range.clone(), |_, _| true).for_each(drop);
        self.stamped.retain(|(key, _), _| !range.contains(key));
        self.cleared.insert(begin.to_vec(), end.to_vec());
        self.unreadable.remove(begin, end);
    }

    /// Applies an atomic operation; at once, if the value does not depend on the database.
    pub fn atomic(&mut self, op: AtomicOp, key: &[u8], operand: &[u8]) {
        let writes = self.entry(key);
        let value = match (&writes.base, writes.ops.is_empty()) {
            (Base::Absent, true) => op.apply(None, operand),
            (Base::Value(value), true) => op.apply(Some(value), operand),
            _ => return writes.ops.push(Op::Atomic(op, operand.to_vec())),
        };
        match value {
            Some(value) => writes.base = Base::Value(value),
            None => {
                self.keys.remove(key);
                self.cleared.insert_key(key);
            }
        }
    }

    /// Sets `key` to a value whose ten bytes at `offset` become the versionstamp.
    pub fn set_stamped_value(&mut self, key: &[u8], value: &[u8], offset: usize) {
        let op = Op::StampedValue { value: value.to_vec(), offset };
        self.entry(key).ops.push(op);
        self.unreadable.insert_key(key);
    }

    /// Sets a key whose ten bytes at `offset` become the versionstamp. No read at or above `read_version` can tell
    /// which key that will be.
    pub fn set_stamped_key(&mut self, key: &[u8], offset: usize, value: &[u8], read_version: i64) {
        self.stamped.insert((key.to_vec(), offset), value.to_vec());
        let (begin, end) = stamped_range(key, offset, read_version);
        self.unreadable.insert(begin, end);
    }

    fn entry(&mut self, key: &[u8]) -> &mut KeyWrites {
        let base = if self.cleared.contains(key) { Base::Absent } else { Base::Snapshot };
        self.keys.entry(key.to_vec()).or_insert(KeyWrites { base, ops: Vec::new() })
    }

    /// The writes to one key, other than clears.
    pub fn get(&self, key: &[u8]) -> Option<&KeyWrites> {
        self.keys.get(key)
    }

    /// The written keys of `[begin, end)`, cleared ones excepted.
    pub fn range<'s>(
        &'s self,
        begin: &[u8],
        end: &[u8],
    ) -> impl DoubleEndedIterator<Item = (&'s [u8], &'s KeyWrites)> + use<'s> {
        let range = (begin < end).then(|| self.keys.range::<[u8], _>((Included(begin), Excluded(end))));
        range.into_iter().flatten().map(|(key, writes)| (key.as_slice(), writes))
    }

    /// The ranges in which the keys lie that get a versionstamp.
    pub fn stamped_ranges(&self, read_version: i64) -> impl Iterator<Item = KeyRange> {
        self.stamped.keys().map(move |(key, offset)| stamped_range(key, *offset, read_version))
    }

    /// What has been cleared.
    pub fn cleared(&self) -> &RangeSet {
        &self.cleared
    }

    /// What cannot be read before the commit.
    pub fn unreadable(&self) -> &RangeSet {
        &self.unreadable
    }

    /// Has any key of `[begin, end)` been set, changed or cleared?
    pub fn touches(&self, begin: &[u8], end: &[u8]) -> bool {
        self.cleared.intersects(begin, end) || self.range(begin, end).next().is_some()
    }

    /// `[begin, end)` without what this transaction has overwritten whatever the database holds: the part of a
    /// read that another transaction can spoil.
    pub fn dependent_parts(&self, begin: &[u8], end: &[u8]) -> RangeSet {
        let mut parts = RangeSet::default();
        parts.insert(begin.to_vec(), end.to_vec());
        for (b, e) in self.cleared.intersecting(begin, end) {
            parts.remove(b, e);
        }
        for (key, writes) in self.range(begin, end) {
            let after = key_after(key);
            if writes.is_dependent() {
                // A clear of the key before the operation would have made it independent.
                parts.insert(key.to_vec(), after);
            } else {
                parts.remove(key, &after);
            }
        }
        parts
    }

    /// The changes in the order in which the storage applies them: clears, then keys, then stamped keys.
    pub fn mutations(&self) -> Vec<Mutation> {
        let mut mutations = Vec::with_capacity(self.cleared.len() + self.keys.len() + self.stamped.len());
        for (begin, end) in self.cleared.iter() {
            mutations.push(Mutation::ClearRange { begin: begin.to_vec(), end: end.to_vec() });
        }
        for (key, writes) in &self.keys {
            if let Base::Value(value) = &writes.base {
                mutations.push(Mutation::Set { key: key.clone(), value: value.clone() });
            }
            mutations.extend(writes.ops.iter().cloned().map(|op| match op {
                Op::Atomic(op, operand) => Mutation::Atomic { op, key: key.clone(), operand },
                Op::StampedValue { value, offset } => {
                    Mutation::StampedValue { key: key.clone(), value, offset }
                }
            }));
        }
        for ((key, offset), value) in &self.stamped {
            let (key, value) = (key.clone(), value.clone());
            mutations.push(Mutation::StampedKey { key, offset: *offset, value });
        }
        mutations
    }
}

/// Where `key` may be once its versionstamp, which is above `read_version`, is known.
fn stamped_range(key: &[u8], offset: usize, read_version: i64) -> KeyRange {
    let mut lowest = key.to_vec();
    lowest[offset..offset + STAMP_LEN].fill(0);
    lowest[offset..offset + 8].copy_from_slice(&read_version.to_be_bytes());
    let mut highest = key.to_vec();
    highest[offset..offset + STAMP_LEN].fill(0xff);
    (lowest, key_after(&highest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(map: &WriteMap, key: &[u8], stored: Option<&[u8]>) -> Option<Vec<u8>> {
        match map.get(key) {
            Some(writes) => writes.value(|| Ok::<_, ()>(stored.map(<[u8]>::to_vec))).unwrap(),
            None if map.cleared().contains(key) => None,
            None => stored.map(<[u8]>::to_vec),
        }
    }

    #[test]
    fn operations_stack_on_the_database_and_fold_on_own_values() {
        let mut map = WriteMap::default();
        map.atomic(AtomicOp::Add, b"k", &[1]);
        map.atomic(AtomicOp::Add, b"k", &[2]);
        assert_eq!(value(&map, b"k", Some(&[10])), Some(vec![13]));
        assert!(map.get(b"k").unwrap().is_dependent());
        map.set(b"k", &[1]);
        map.atomic(AtomicOp::Add, b"k", &[2]);
        assert_eq!(map.mutations(), [Mutation::Set { key: b"k".to_vec(), value: vec![3] }]);
        map.atomic(AtomicOp::CompareAndClear, b"k", &[3]);
        assert_eq!(value(&map, b"k", Some(&[10])), None);
    }

    #[test]
    fn a_clear_makes_an_operation_independent_of_the_database() {
        let mut map = WriteMap::default();
        map.clear_range(b"a", b"z");
        map.atomic(AtomicOp::Add, b"k", &[2]);
        assert_eq!(value(&map, b"k", Some(&[10])), Some(vec![2]));
        assert!(map.dependent_parts(b"a", b"z").is_empty());
        assert_eq!(map.dependent_parts(b"a", b"zz").iter().collect::<Vec<_>>(), [(&b"z"[..], &b"zz"[..])]);
    }

    #[test]
    fn a_stamped_key_is_unreadable_from_the_read_version_on_until_cleared() {
        let mut map = WriteMap::default();
        let key = [&b"q"[..], &[0xff; 10], b"\0\x01"].concat();
        map.set_stamped_key(&key, 1, b"v", 5);
        let at = |version: i64| [&b"q"[..], &version.to_be_bytes(), &[0, 0, 0, 1]].concat();
        assert!(!map.unreadable().contains(&at(4)));
        assert!(map.unreadable().contains(&at(5)) && map.unreadable().contains(&key));
        map.clear_range(b"q", b"r");
        assert!(map.unreadable().is_empty() && map.mutations().len() == 1);
    }
}
