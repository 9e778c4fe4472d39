//! The write map: a transaction's writes, as its own reads see them and as its commit sends them.

mod key_writes;
mod template;

use smallvec::SmallVec;

use crate::engine::atomic::AtomicOp;
use crate::engine::mutation::Mutation;
use crate::key_map::KeyMap;
use crate::range_set::{KeyRange, RangeSet, key_after};

pub use key_writes::{KeyWrites, Shape, ShapeKind};
pub use template::{STAMP_OFFSET_LEN, place, split_template, stamped_key, stamped_range};

use key_writes::{BaseValue, KeyOp};
use template::template;

/// The rest of a write whose key gets a versionstamp.
#[derive(Debug, Clone)]
struct Stamped {
    offset: usize,
    value: Vec<u8>,
}

impl Stamped {
    /// The mutation to send, for the given key.
    fn mutation(self, mut place: Vec<u8>) -> Mutation {
        place.truncate(place.len() - STAMP_OFFSET_LEN);
        Mutation::StampedKey { key: place, offset: self.offset, value: self.value }
    }
}

/// The writes of a transaction. Later ones replace earlier ones or build on them.
#[derive(Debug, Default, Clone)]
pub struct WriteMap {
    keys: KeyMap<KeyWrites>,
    /// By the key with the lowest possible stamp, where clears find it. The commit fills in the
    /// real stamp.
    stamped: KeyMap<Stamped>,
    cleared: RangeSet,
    /// Ranges whose contents depend on the versionstamp, so they are unreadable before the commit.
    unreadable: RangeSet,
    /// Mutations to send before all others: earlier writes to a range where a stamped key may lie,
    /// and all writes of a transaction without read-your-writes.
    early: Vec<Mutation>,
}

impl WriteMap {
    /// True if there are no writes.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.stamped.is_empty() && self.cleared.is_empty() && self.early.is_empty()
    }

    /// Adds a write that the transaction's own reads do not see.
    pub fn send(&mut self, mutation: Mutation) {
        self.early.push(mutation);
    }

    /// Sets a key. An unreadable key stays unreadable.
    pub fn set(&mut self, key: &[u8], value: &[u8]) {
        let is_unreadable = self.unreadable.contains(key);
        match self.keys.get_mut(key) {
            Some(writes) if is_unreadable => writes.ops.push(KeyOp::Set(value.to_vec())),
            _ => self.entry(key).set(value),
        }
    }

    /// Clears `[begin, end)`.
    pub fn clear_range(&mut self, begin: &[u8], end: &[u8]) {
        if begin >= end {
            return;
        }
        drop(self.keys.take_range(begin, end));
        drop(self.stamped.take_range(begin, end));
        self.cleared.cover(begin, end);
        self.unreadable.remove(begin, end);
    }

    /// Applies an atomic operation, at once if the value does not depend on the database.
    pub fn atomic(&mut self, op: AtomicOp, key: &[u8], operand: &[u8]) {
        let is_unreadable = self.unreadable.contains(key);
        let writes = self.entry(key);
        if is_unreadable {
            return writes.ops.push(KeyOp::Atomic(op, operand.to_vec()));
        }
        writes.atomic(op, operand);
        if writes.base == BaseValue::Absent {
            // Reads find no value, but selectors count the key, as in FoundationDB.
            self.cleared.insert_key(key);
        }
    }

    /// Sets `key` to a value that gets the versionstamp at `offset`.
    pub fn set_stamped_value(&mut self, key: &[u8], value: &[u8], offset: usize) {
        let is_unreadable = self.unreadable.contains(key);
        let writes = self.entry(key);
        if !is_unreadable || writes.ops.is_empty() && writes.is_dependent() {
            *writes = KeyWrites { base: BaseValue::Absent, ops: SmallVec::new() };
        }
        writes.ops.push(KeyOp::StampedValue { value: value.to_vec(), offset });
        self.unreadable.insert_key(key);
    }

    /// Sets a key that gets the versionstamp at `offset`. The final key will lie in `range`, which
    /// becomes unreadable. Earlier writes to it are sent before.
    pub fn set_stamped_key(&mut self, range: KeyRange, offset: usize, value: &[u8]) {
        let (begin, end) = range;
        self.send_early(&begin, &end);
        self.unreadable.cover(&begin, &end);
        self.stamped.insert(template(begin, offset), Stamped { offset, value: value.to_vec() });
    }

    fn send_early(&mut self, begin: &[u8], end: &[u8]) {
        if !self.touches(begin, end) {
            return;
        }
        let clears = self.cleared.intersecting(begin, end).map(|(b, e)| (b.max(begin), e.min(end)));
        let clears = clears.map(|(b, e)| Mutation::ClearRange { begin: b.to_vec(), end: e.to_vec() });
        self.early.extend(clears);
        self.cleared.remove(begin, end);
        let (keys, stamped) = (self.keys.take_range(begin, end), self.stamped.take_range(begin, end));
        in_key_order(keys, stamped, &mut self.early);
    }

    fn entry(&mut self, key: &[u8]) -> &mut KeyWrites {
        let base = if self.cleared.contains(key) { BaseValue::Absent } else { BaseValue::Snapshot };
        self.keys.get_or_insert_with(key, || KeyWrites { base, ops: SmallVec::new() })
    }

    /// A copy of the parts that a read of one key sees.
    #[must_use]
    pub fn only(&self, key: &[u8]) -> WriteMap {
        let mut only = WriteMap::default();
        self.keys.get(key).into_iter().for_each(|writes| only.keys.insert(key.to_vec(), writes.clone()));
        let stamped = self.stamped.get(key).into_iter();
        stamped.for_each(|stamped| only.stamped.insert(key.to_vec(), stamped.clone()));
        for (all, part) in [(&self.cleared, &mut only.cleared), (&self.unreadable, &mut only.unreadable)] {
            if all.contains(key) {
                part.insert_key(key);
            }
        }
        only
    }

    /// The writes to a key, without clears.
    pub fn get(&self, key: &[u8]) -> Option<&KeyWrites> {
        self.keys.get(key)
    }

    /// The written keys of `[begin, end)`, without clears.
    pub fn range<'s>(
        &'s self,
        begin: &[u8],
        end: &[u8],
    ) -> impl DoubleEndedIterator<Item = (&'s [u8], &'s KeyWrites)> + use<'s> {
        self.keys.range(begin, end)
    }

    /// The keys that get a versionstamp, and its offset in them.
    pub fn stamped_keys(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let early = self.early.iter().filter_map(|mutation| match mutation {
            Mutation::StampedKey { key, offset, .. } => Some((key.as_slice(), *offset)),
            _ => None,
        });
        early.chain(self.stamped.iter().map(|(place, _)| split_template(place)))
    }

    /// The cleared ranges.
    pub fn cleared(&self) -> &RangeSet {
        &self.cleared
    }

    /// The ranges that are unreadable before the commit.
    pub fn unreadable(&self) -> &RangeSet {
        &self.unreadable
    }

    /// True if the value of a key does not depend on the database.
    pub fn decides(&self, key: &[u8]) -> bool {
        match self.keys.get(key) {
            Some(writes) => !writes.is_dependent(),
            None => self.cleared.contains(key) || self.stamped.get(key).is_some(),
        }
    }

    /// True if the transaction has written any key of `[begin, end)`.
    pub fn touches(&self, begin: &[u8], end: &[u8]) -> bool {
        self.cleared.intersects(begin, end)
            || self.keys.has_any(begin, end)
            || self.stamped.has_any(begin, end)
    }

    /// The stamped keys with the lowest possible stamp in `[begin, end)`.
    fn stamped_places<'s>(&'s self, begin: &[u8], end: &[u8]) -> impl Iterator<Item = &'s [u8]> + use<'s> {
        self.stamped.range(begin, end).map(|(place, _)| place)
    }

    /// The parts of `[begin, end)` whose contents depend on the database, so that other
    /// transactions can change them.
    pub fn dependent_parts(&self, begin: &[u8], end: &[u8]) -> RangeSet {
        let mut parts = RangeSet::default();
        parts.insert(begin.to_vec(), end.to_vec());
        for (b, e) in self.cleared.intersecting(begin, end) {
            parts.remove(b, e);
        }
        for (key, writes) in self.range(begin, end) {
            let after = key_after(key);
            if writes.is_dependent() {
                // If the key had been cleared before the operation, its value would not depend on
                // the database.
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

    /// Takes the mutations, in the order in which to apply them: early ones, clears, then keys in
    /// order.
    pub fn take_mutations(&mut self) -> Vec<Mutation> {
        let mut mutations = std::mem::take(&mut self.early);
        mutations.reserve_exact(self.cleared.len() + self.keys.len() + self.stamped.len());
        let cleared = std::mem::take(&mut self.cleared).into_iter();
        mutations.extend(cleared.map(|(begin, end)| Mutation::ClearRange { begin, end }));
        in_key_order(std::mem::take(&mut self.keys), std::mem::take(&mut self.stamped), &mut mutations);
        mutations
    }

    /// Bytes that FoundationDB's client would send. There, a written key splits the clear around
    /// it.
    pub fn sent_size(&self) -> i64 {
        let early = self.early.iter().map(|mutation| match Shape::of(mutation) {
            Some(shape) => sent_size(shape),
            None => sent_bytes(mutation.payload_len()),
        });
        let absent =
            self.keys.iter().filter(|(_, writes)| writes.base == BaseValue::Absent && writes.ops.is_empty());
        let absent = absent.map(|(key, _)| clear_size(key, &key_after(key))).sum::<i64>();
        let mut clears = 0;
        self.each_sent_clear(&mut |begin, end| clears += clear_size(begin, end));
        early.chain(self.singles().map(sent_size)).sum::<i64>() + absent + clears
    }

    /// The mutations that are sent first.
    pub fn early(&self) -> &[Mutation] {
        &self.early
    }

    /// The mutations of single keys, without early ones, in any order.
    pub fn singles(&self) -> impl Iterator<Item = Shape> {
        let keys = self.keys.iter().flat_map(|(key, writes)| writes.shapes(key.len()));
        let stamped = self.stamped.iter().map(|(place, stamped)| Shape {
            kind: ShapeKind::StampedKey,
            key: place.len() - STAMP_OFFSET_LEN,
            value: stamped.value.len(),
        });
        keys.chain(stamped)
    }

    /// Visits the clears that FoundationDB's client would send, without early ones and without keys
    /// that an operation has left absent.
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

/// Appends the mutations of single keys in key order; a stamped key sorts by its template.
fn in_key_order(
    keys: impl IntoIterator<Item = (Vec<u8>, KeyWrites)>,
    stamped: impl IntoIterator<Item = (Vec<u8>, Stamped)>,
    mutations: &mut Vec<Mutation>,
) {
    let mut stamped = stamped.into_iter().peekable();
    for (key, writes) in keys {
        while let Some((place, stamped)) = stamped.next_if(|(place, _)| *place < key) {
            mutations.push(stamped.mutation(place));
        }
        writes.send(key, mutations);
    }
    mutations.extend(stamped.map(|(place, stamped)| stamped.mutation(place)));
}

/// Bytes of a mutation in addition to its keys and values.
const MUTATION_OVERHEAD: usize = 44;

fn sent_size(shape: Shape) -> i64 {
    let is_stamped = matches!(shape.kind, ShapeKind::StampedKey | ShapeKind::StampedValue);
    sent_bytes(shape.key + shape.value + if is_stamped { STAMP_OFFSET_LEN } else { 0 })
}

fn sent_bytes(payload: usize) -> i64 {
    i64::try_from(MUTATION_OVERHEAD + payload).unwrap_or(i64::MAX / 4)
}

fn clear_size(begin: &[u8], end: &[u8]) -> i64 {
    sent_bytes(begin.len() + end.len())
}

#[cfg(test)]
mod tests;
