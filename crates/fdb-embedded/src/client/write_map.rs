//! What a transaction has written so far, as its own reads see it and as its commit sends it.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};

use crate::engine::atomic::AtomicOp;
use crate::engine::mutation::{Mutation, STAMP_LEN, Stamp};
use crate::error::{Code, Result};
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
    /// On top of an operation whose value is not known before the commit.
    Set(Vec<u8>),
    Atomic(AtomicOp, Vec<u8>),
    StampedValue {
        value: Vec<u8>,
        offset: usize,
    },
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

    /// The value over `stored`, the one in the database. A value that still lacks its versionstamp is as it was given,
    /// place included; an operation on top of one fails, as it does in FoundationDB.
    pub fn value(&self, stored: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        let mut value = match &self.base {
            Base::Snapshot => stored,
            Base::Absent => None,
            Base::Value(value) => Some(value.clone()),
        };
        let mut lacks_stamp = false;
        for op in &self.ops {
            value = match op {
                Op::Set(value) => Some(value.clone()),
                Op::Atomic(..) if lacks_stamp => return Err(Code::OPERATION_FAILED),
                Op::Atomic(op, operand) => op.apply(value.as_deref(), operand),
                Op::StampedValue { value, offset } => Some(template(value, *offset)),
            };
            lacks_stamp = matches!(op, Op::StampedValue { .. });
        }
        Ok(value)
    }

    fn set(&mut self, value: &[u8]) {
        *self = KeyWrites { base: Base::Value(value.to_vec()), ops: Vec::new() };
    }

    /// Adds an operation, put together with what is there where that comes to the same.
    fn atomic(&mut self, op: AtomicOp, operand: &[u8]) {
        let known = match &self.base {
            Base::Absent => Some(None),
            Base::Value(value) => Some(Some(value.as_slice())),
            Base::Snapshot => None,
        };
        match (known, self.ops.last_mut()) {
            (Some(value), None) => self.base = op.apply(value, operand).map_or(Base::Absent, Base::Value),
            (_, Some(Op::Atomic(last, first))) if *last == op && op.is_chain(first, operand) => {
                *first = op.apply(Some(first), operand).unwrap_or_default();
            }
            _ => self.ops.push(Op::Atomic(op, operand.to_vec())),
        }
    }

    fn mutations(&self, key: &[u8]) -> impl Iterator<Item = Mutation> {
        let base = match &self.base {
            Base::Value(value) => Some(Mutation::Set { key: key.to_vec(), value: value.clone() }),
            Base::Absent | Base::Snapshot => None,
        };
        let ops = self.ops.iter().cloned().map(|op| match op {
            Op::Set(value) => Mutation::Set { key: key.to_vec(), value },
            Op::Atomic(op, operand) => Mutation::Atomic { op, key: key.to_vec(), operand },
            Op::StampedValue { value, offset } => Mutation::StampedValue { key: key.to_vec(), value, offset },
        });
        base.into_iter().chain(ops)
    }
}

/// A key that gets a versionstamp on commit.
#[derive(Debug, Clone)]
struct StampedKey {
    key: Vec<u8>,
    offset: usize,
    value: Vec<u8>,
}

/// The writes of a transaction. Later ones replace or build on earlier ones.
#[derive(Debug, Default, Clone)]
pub struct WriteMap {
    keys: BTreeMap<Vec<u8>, KeyWrites>,
    /// By the template with the lowest possible stamp, which is where a clear finds them.
    stamped: BTreeMap<Vec<u8>, StampedKey>,
    cleared: RangeSet,
    /// Where a read would need the versionstamp that only the commit gives.
    unreadable: RangeSet,
    /// What is sent before everything else: what was written where a stamped key may come to lie, and all writes of
    /// a transaction that does not read its own.
    early: Vec<Mutation>,
}

impl WriteMap {
    /// True before the first write.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.stamped.is_empty() && self.cleared.is_empty() && self.early.is_empty()
    }

    /// Adds a write that no read of the transaction is to see.
    pub fn send(&mut self, mutation: Mutation) {
        self.early.push(mutation);
    }

    /// Sets a key. One that cannot be read stays so.
    pub fn set(&mut self, key: &[u8], value: &[u8]) {
        let is_unreadable = self.unreadable.contains(key);
        match self.keys.get_mut(key) {
            Some(writes) if is_unreadable => writes.ops.push(Op::Set(value.to_vec())),
            _ => self.entry(key).set(value),
        }
    }

    /// Clears `[begin, end)`.
    pub fn clear_range(&mut self, begin: &[u8], end: &[u8]) {
        if begin >= end {
            return;
        }
        let range = begin.to_vec()..end.to_vec();
        self.keys.extract_if(range.clone(), |_, _| true).for_each(drop);
        self.stamped.extract_if(range, |_, _| true).for_each(drop);
        self.cleared.insert(begin.to_vec(), end.to_vec());
        self.unreadable.remove(begin, end);
    }

    /// Applies an atomic operation; at once, if the value does not depend on the database.
    pub fn atomic(&mut self, op: AtomicOp, key: &[u8], operand: &[u8]) {
        let is_unreadable = self.unreadable.contains(key);
        let writes = self.entry(key);
        if is_unreadable {
            return writes.ops.push(Op::Atomic(op, operand.to_vec()));
        }
        writes.atomic(op, operand);
        if writes.base == Base::Absent {
            // Read as nothing, though selectors go on counting it, as FoundationDB's do.
            self.cleared.insert_key(key);
        }
    }

    /// Sets `key` to a value whose ten bytes at `offset` become the versionstamp.
    pub fn set_stamped_value(&mut self, key: &[u8], value: &[u8], offset: usize) {
        let is_unreadable = self.unreadable.contains(key);
        let writes = self.entry(key);
        if !is_unreadable || writes.ops.is_empty() && writes.is_dependent() {
            *writes = KeyWrites { base: Base::Absent, ops: Vec::new() };
        }
        writes.ops.push(Op::StampedValue { value: value.to_vec(), offset });
        self.unreadable.insert_key(key);
    }

    /// Sets a key whose ten bytes at `offset` become the versionstamp. No read at or above `read_version` can tell
    /// which key that will be, among those below `max`. What was written where it may lie is on its way before; returns
    /// that range.
    pub fn set_stamped_key(
        &mut self,
        key: &[u8],
        offset: usize,
        value: &[u8],
        (read_version, max): (i64, &[u8]),
    ) -> KeyRange {
        let (begin, end) = stamped_range(key, offset, read_version);
        let place = template(&begin, offset);
        let end = end.as_slice().min(max).to_vec();
        self.send_early(&begin, &end);
        self.unreadable.insert(begin.clone(), end.clone());
        self.stamped.insert(place, StampedKey { key: key.to_vec(), offset, value: value.to_vec() });
        (begin, end)
    }

    fn send_early(&mut self, begin: &[u8], end: &[u8]) {
        let is_in = (Included(begin), Excluded(end));
        let is_untouched = |map: &WriteMap| {
            map.keys.range::<[u8], _>(is_in).next().is_none()
                && map.stamped.range::<[u8], _>(is_in).next().is_none()
                && !map.cleared.intersects(begin, end)
        };
        if begin >= end || is_untouched(self) {
            return;
        }
        let clears = self.cleared.intersecting(begin, end).map(|(b, e)| (b.max(begin), e.min(end)));
        let clears = clears.map(|(b, e)| Mutation::ClearRange { begin: b.to_vec(), end: e.to_vec() });
        self.early.extend(clears);
        self.cleared.remove(begin, end);
        let range = begin.to_vec()..end.to_vec();
        let keys: Vec<_> = self.keys.extract_if(range.clone(), |_, _| true).collect();
        let stamped: Vec<_> = self.stamped.extract_if(range, |_, _| true).collect();
        self.early
            .extend(in_key_order(keys.iter().map(|(k, w)| (k, w)), stamped.iter().map(|(k, s)| (k, s))));
    }

    fn entry(&mut self, key: &[u8]) -> &mut KeyWrites {
        let base = if self.cleared.contains(key) { Base::Absent } else { Base::Snapshot };
        self.keys.entry(key.to_vec()).or_insert(KeyWrites { base, ops: Vec::new() })
    }

    /// As much of it as a read of one key sees.
    #[must_use]
    pub fn only(&self, key: &[u8]) -> WriteMap {
        let mut only = WriteMap::default();
        only.keys.extend(self.keys.get_key_value(key).map(|(key, writes)| (key.clone(), writes.clone())));
        let stamped = self.stamped.get_key_value(key);
        only.stamped.extend(stamped.map(|(place, stamped)| (place.clone(), stamped.clone())));
        for (all, part) in [(&self.cleared, &mut only.cleared), (&self.unreadable, &mut only.unreadable)] {
            if all.contains(key) {
                part.insert_key(key);
            }
        }
        only
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

    /// The keys that get a versionstamp, as they were given, and where in them.
    pub fn stamped_keys(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let early = self.early.iter().filter_map(|mutation| match mutation {
            Mutation::StampedKey { key, offset, .. } => Some((key.as_slice(), *offset)),
            _ => None,
        });
        early.chain(self.stamped.values().map(|stamped| (stamped.key.as_slice(), stamped.offset)))
    }

    /// What has been cleared.
    pub fn cleared(&self) -> &RangeSet {
        &self.cleared
    }

    /// What cannot be read before the commit.
    pub fn unreadable(&self) -> &RangeSet {
        &self.unreadable
    }

    /// Has the transaction overwritten a key, whatever the database holds?
    pub fn decides(&self, key: &[u8]) -> bool {
        match self.keys.get(key) {
            Some(writes) => !writes.is_dependent(),
            None => self.cleared.contains(key) || self.stamped.contains_key(key),
        }
    }

    /// Has any key of `[begin, end)` been set, changed or cleared?
    pub fn touches(&self, begin: &[u8], end: &[u8]) -> bool {
        self.cleared.intersects(begin, end)
            || self.range(begin, end).next().is_some()
            || self.stamped_places(begin, end).next().is_some()
    }

    /// Where the keys of `[begin, end)` are found that get a versionstamp.
    fn stamped_places(&self, begin: &[u8], end: &[u8]) -> impl Iterator<Item = &[u8]> {
        let range = (begin < end).then(|| self.stamped.range::<[u8], _>((Included(begin), Excluded(end))));
        range.into_iter().flatten().map(|(place, _)| place.as_slice())
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
        for place in self.stamped_places(begin, end) {
            parts.remove(place, &key_after(place));
        }
        parts
    }

    /// The changes in the order in which the storage applies them: early ones, clears, then keys in order.
    pub fn mutations(&self) -> Vec<Mutation> {
        let mut mutations = self.early.clone();
        for (begin, end) in self.cleared.iter() {
            mutations.push(Mutation::ClearRange { begin: begin.to_vec(), end: end.to_vec() });
        }
        mutations.extend(self.singles());
        mutations
    }

    /// Bytes of what FoundationDB's client would send where this one sends `mutations`: there a key with writes of its
    /// own parts the clear around it.
    pub fn sent_size(&self, mutations: &[Mutation]) -> i64 {
        let (early, rest) = mutations.split_at(self.early.len());
        let single = &rest[self.cleared.len()..];
        let absent =
            self.keys.iter().filter(|(_, writes)| writes.base == Base::Absent && writes.ops.is_empty());
        let absent = absent.map(|(key, _)| clear_size(key, &key_after(key))).sum::<i64>();
        let mut clears = 0;
        self.each_sent_clear(&mut |begin, end| clears += clear_size(begin, end));
        early.iter().chain(single).map(sent_size).sum::<i64>() + absent + clears
    }

    /// What is sent before everything else.
    pub fn early(&self) -> &[Mutation] {
        &self.early
    }

    /// The changes of single keys.
    pub fn singles(&self) -> Vec<Mutation> {
        in_key_order(&self.keys, &self.stamped)
    }

    /// Visits the clears, early ones apart, as FoundationDB's client would send them; those of keys that an operation has
    /// left absent are not among these.
    pub fn each_sent_clear(&self, visit: &mut dyn FnMut(&[u8], &[u8])) {
        for (begin, end) in self.cleared.iter() {
            let mut at = begin.to_vec();
            for (key, _) in self.range(begin, end) {
                if at.as_slice() < key {
                    visit(&at, key);
                }
                at = key_after(key);
            }
            if at.as_slice() < end {
                visit(&at, end);
            }
        }
    }
}

/// The changes of single keys, where a stamped key's place is that of its template.
fn in_key_order<'w>(
    keys: impl IntoIterator<Item = (&'w Vec<u8>, &'w KeyWrites)>,
    stamped: impl IntoIterator<Item = (&'w Vec<u8>, &'w StampedKey)>,
) -> Vec<Mutation> {
    let keys = keys.into_iter().flat_map(|(key, writes)| writes.mutations(key).map(move |m| (key, m)));
    let stamped = stamped.into_iter().map(|(place, s)| {
        (place, Mutation::StampedKey { key: s.key.clone(), offset: s.offset, value: s.value.clone() })
    });
    let mut all: Vec<(&Vec<u8>, Mutation)> = keys.chain(stamped).collect();
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, mutation)| mutation).collect()
}

/// What each mutation takes beside its keys and values, bytes.
const MUTATION_OVERHEAD: usize = 44;
/// The place of a versionstamp takes so many bytes.
const PLACE_LEN: usize = 4;

fn sent_size(mutation: &Mutation) -> i64 {
    let is_stamped = matches!(mutation, Mutation::StampedKey { .. } | Mutation::StampedValue { .. });
    let place = if is_stamped { PLACE_LEN } else { 0 };
    i64::try_from(MUTATION_OVERHEAD + mutation.payload_len() + place).unwrap_or(i64::MAX / 4)
}

fn clear_size(begin: &[u8], end: &[u8]) -> i64 {
    i64::try_from(MUTATION_OVERHEAD + begin.len() + end.len()).unwrap_or(i64::MAX / 4)
}

/// What is to be stamped as the client gave it: followed by the place of the stamp.
fn template(bytes: &[u8], offset: usize) -> Vec<u8> {
    let offset = u32::try_from(offset).expect("it was given as four bytes");
    [bytes, &offset.to_le_bytes()].concat()
}

/// Where `key` may be once its versionstamp, which is above `read_version`, is known.
pub fn stamped_range(key: &[u8], offset: usize, read_version: i64) -> KeyRange {
    let mut lowest = key.to_vec();
    lowest[offset..offset + STAMP_LEN].fill(0);
    lowest[offset..offset + 8].copy_from_slice(&read_version.to_be_bytes());
    let mut highest = key.to_vec();
    highest[offset..offset + STAMP_LEN].fill(0xff);
    (lowest, key_after(&highest))
}

/// Where `key` is with its versionstamp.
pub fn stamped_key(key: &[u8], offset: usize, stamp: Stamp) -> KeyRange {
    let mut key = key.to_vec();
    stamp.place(&mut key, offset);
    let after = key_after(&key);
    (key, after)
}

#[cfg(test)]
mod tests;
