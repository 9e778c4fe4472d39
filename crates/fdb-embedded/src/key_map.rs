//! A map by key that is fast for few keys and for keys inserted in order.
//!
//! Most transactions write few keys, or many in ascending order. A tree would search and allocate
//! for each. Here they are appended to a vector; only more than a few keys out of order are moved
//! into a tree.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::iter::{Chain, Flatten};
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::{option, vec};

/// An insertion may shift at most this many entries of the vector.
const MAX_SHIFTED: usize = 128;

type Entry<V> = (Vec<u8>, V);
type IntoIter<V> = Chain<Flatten<option::IntoIter<BTreeMap<Vec<u8>, V>>>, vec::IntoIter<Entry<V>>>;

/// A map by key, in key order.
#[derive(Clone)]
pub struct KeyMap<V> {
    /// Most maps have no tree, and then it costs nothing.
    #[expect(
        clippy::box_collection,
        reason = "an empty tree costs, when it is walked and when it is dropped"
    )]
    tree: Option<Box<BTreeMap<Vec<u8>, V>>>,
    /// The entries after all of the tree, in key order.
    tail: Vec<Entry<V>>,
}

/// The position of a key, or where it belongs.
enum KeyPosition {
    /// At this index of the tail.
    Found(usize),
    /// Missing; belongs at this index of the tail.
    Missing(usize),
    Tree,
}

impl<V> KeyMap<V> {
    /// True if the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.tree.as_ref().map_or(0, |tree| tree.len()) + self.tail.len()
    }

    /// The value of `key`.
    pub fn get(&self, key: &[u8]) -> Option<&V> {
        match self.position(key) {
            KeyPosition::Found(index) => Some(&self.tail[index].1),
            KeyPosition::Missing(_) => None,
            KeyPosition::Tree => self.tree.as_ref()?.get(key),
        }
    }

    /// The value of `key`, mutable.
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        match self.position(key) {
            KeyPosition::Found(index) => Some(&mut self.tail[index].1),
            KeyPosition::Missing(_) => None,
            KeyPosition::Tree => self.tree.as_mut()?.get_mut(key),
        }
    }

    /// Sets the value of `key`.
    pub fn insert(&mut self, key: Vec<u8>, value: V) {
        match self.position(&key) {
            KeyPosition::Found(index) => self.tail[index].1 = value,
            KeyPosition::Missing(index) if self.accepts(index) => self.tail.insert(index, (key, value)),
            KeyPosition::Missing(_) => drop(self.flush().insert(key, value)),
            KeyPosition::Tree => drop(self.grow().insert(key, value)),
        }
    }

    /// The value of `key`; inserts `value` if there is none.
    pub fn get_or_insert_with(&mut self, key: &[u8], value: impl FnOnce() -> V) -> &mut V {
        let index = match self.position(key) {
            KeyPosition::Found(index) => index,
            KeyPosition::Missing(index) if self.accepts(index) => {
                self.tail.insert(index, (key.to_vec(), value()));
                index
            }
            KeyPosition::Missing(_) => return self.flush().entry(key.to_vec()).or_insert_with(value),
            KeyPosition::Tree => return self.grow().entry(key.to_vec()).or_insert_with(value),
        };
        &mut self.tail[index].1
    }

    fn position(&self, key: &[u8]) -> KeyPosition {
        match self.tail.last().map(|(last, _)| last.as_slice().cmp(key)) {
            Some(Ordering::Less) => return KeyPosition::Missing(self.tail.len()),
            Some(Ordering::Equal) => return KeyPosition::Found(self.tail.len() - 1),
            Some(Ordering::Greater) | None => {}
        }
        match self.tail.binary_search_by(|(own, _)| own.as_slice().cmp(key)) {
            Ok(index) => KeyPosition::Found(index),
            Err(0) if self.last_of_tree().is_some_and(|last| last >= key) => KeyPosition::Tree,
            Err(index) => KeyPosition::Missing(index),
        }
    }

    /// True if an entry may be inserted at `index` of the tail.
    fn accepts(&self, index: usize) -> bool {
        index == self.tail.len() || self.tail.len() < MAX_SHIFTED
    }

    fn last_of_tree(&self) -> Option<&[u8]> {
        self.tree.as_ref()?.last_key_value().map(|(last, _)| last.as_slice())
    }

    /// The tree, which is created if needed.
    fn grow(&mut self) -> &mut BTreeMap<Vec<u8>, V> {
        self.tree.get_or_insert_default()
    }

    /// Moves the tail into the tree. Each entry is moved at most once.
    fn flush(&mut self) -> &mut BTreeMap<Vec<u8>, V> {
        let tree = self.tree.get_or_insert_default();
        tree.extend(self.tail.drain(..));
        tree
    }

    /// The entry with the greatest key, its value mutable.
    pub fn last_mut(&mut self) -> Option<(&[u8], &mut V)> {
        self.last_up_to_mut(Unbounded)
    }

    /// The entry with the greatest key up to a bound.
    pub fn last_up_to(&self, bound: Bound<&[u8]>) -> Option<(&[u8], &V)> {
        match self.tail_up_to(bound).checked_sub(1) {
            Some(index) => Some((&self.tail[index].0, &self.tail[index].1)),
            None => {
                let mut up_to = self.tree.as_ref()?.range::<[u8], _>((Unbounded, bound));
                up_to.next_back().map(|(key, value)| (&key[..], value))
            }
        }
    }

    /// The entry with the greatest key up to a bound, its value mutable.
    pub fn last_up_to_mut(&mut self, bound: Bound<&[u8]>) -> Option<(&[u8], &mut V)> {
        match self.tail_up_to(bound).checked_sub(1) {
            Some(index) => {
                let (key, value) = &mut self.tail[index];
                Some((key, value))
            }
            None => {
                let mut up_to = self.tree.as_mut()?.range_mut::<[u8], _>((Unbounded, bound));
                up_to.next_back().map(|(key, value)| (&key[..], value))
            }
        }
    }

    /// The number of entries of the tail with keys up to a bound.
    fn tail_up_to(&self, bound: Bound<&[u8]>) -> usize {
        let is_in = |(key, _): &Entry<V>| match bound {
            Included(bound) => key.as_slice() <= bound,
            Excluded(bound) => key.as_slice() < bound,
            Unbounded => true,
        };
        match self.tail.last() {
            Some(last) if !is_in(last) => self.tail.partition_point(is_in),
            _ => self.tail.len(),
        }
    }

    /// The entries in key order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &V)> {
        let tail = self.tail.iter().map(|(key, value)| (&key[..], value));
        let tree = self.tree.iter().flat_map(|tree| tree.iter());
        tree.map(|(key, value)| (&key[..], value)).chain(tail)
    }

    /// The entries with keys of `[begin, end)`, in key order.
    pub fn range<'s>(
        &'s self,
        begin: &[u8],
        end: &[u8],
    ) -> impl DoubleEndedIterator<Item = (&'s [u8], &'s V)> + use<'s, V> {
        let tree = self.tree.as_ref().filter(|_| begin < end);
        let tree = tree.map(|tree| tree.range::<[u8], _>((Included(begin), Excluded(end))));
        let (from, to) = self.tail_range(begin, end);
        let tail = self.tail[from..to].iter().map(|(key, value)| (&key[..], value));
        tree.into_iter().flatten().map(|(key, value)| (&key[..], value)).chain(tail)
    }

    /// True if there is an entry with a key in `[begin, end)`.
    pub fn has_any(&self, begin: &[u8], end: &[u8]) -> bool {
        self.last_up_to(Excluded(end)).is_some_and(|(key, _)| begin <= key && begin < end)
    }

    /// Removes the entries with keys in `[begin, end)`, and returns them in key order.
    pub fn take_range(&mut self, begin: &[u8], end: &[u8]) -> Vec<(Vec<u8>, V)> {
        let mut taken = Vec::new();
        if !self.has_any(begin, end) {
            return taken;
        }
        if let Some(tree) = &mut self.tree {
            taken.extend(tree.extract_if(begin.to_vec()..end.to_vec(), |_, _| true));
        }
        let (from, to) = self.tail_range(begin, end);
        taken.extend(self.tail.drain(from..to));
        taken
    }

    /// The indices of the tail with keys in `[begin, end)`.
    fn tail_range(&self, begin: &[u8], end: &[u8]) -> (usize, usize) {
        let from = self.tail_up_to(Excluded(begin));
        (from, self.tail_up_to(Excluded(end)).max(from))
    }
}

impl<V> Default for KeyMap<V> {
    fn default() -> Self {
        KeyMap { tree: None, tail: Vec::new() }
    }
}

impl<V: PartialEq> PartialEq for KeyMap<V> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<V: Eq> Eq for KeyMap<V> {}

impl<V: std::fmt::Debug> std::fmt::Debug for KeyMap<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<V> IntoIterator for KeyMap<V> {
    type Item = (Vec<u8>, V);
    type IntoIter = IntoIter<V>;

    fn into_iter(self) -> Self::IntoIter {
        self.tree.map(|tree| *tree).into_iter().flatten().chain(self.tail)
    }
}

impl<V> From<KeyMap<V>> for Vec<(Vec<u8>, V)> {
    fn from(map: KeyMap<V>) -> Self {
        // Without a tree nothing has to be moved.
        if map.tree.is_none() { map.tail } else { map.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Insert(u8),
        /// How many keys in order, from one on.
        Append(u8, u8),
        GetOrInsert(u8),
        Change(u8),
        ChangeUpTo(u8),
        Take(u8, u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            any::<u8>().prop_map(Step::Insert),
            (any::<u8>(), 0..200_u8).prop_map(|(from, len)| Step::Append(from, len)),
            any::<u8>().prop_map(Step::GetOrInsert),
            any::<u8>().prop_map(Step::Change),
            any::<u8>().prop_map(Step::ChangeUpTo),
            any::<(u8, u8)>().prop_map(|(from, to)| Step::Take(from, to)),
        ];
        proptest::collection::vec(step, 0..60)
    }

    fn apply(map: &mut KeyMap<usize>, tree: &mut BTreeMap<Vec<u8>, usize>, n: usize, step: Step) {
        match step {
            Step::Insert(key) => {
                map.insert(vec![key], n);
                tree.insert(vec![key], n);
            }
            Step::Append(from, len) => {
                for key in from..from.saturating_add(len) {
                    map.insert(vec![key], n);
                    tree.insert(vec![key], n);
                }
            }
            Step::GetOrInsert(key) => {
                assert_eq!(map.get_or_insert_with(&[key], || n), tree.entry(vec![key]).or_insert(n));
            }
            Step::Change(key) => {
                map.get_mut(&[key]).into_iter().for_each(|value| *value = n);
                tree.get_mut(&[key][..]).into_iter().for_each(|value| *value = n);
            }
            Step::ChangeUpTo(key) => {
                map.last_up_to_mut(Included(&[key])).into_iter().for_each(|(_, value)| *value = n);
                tree.range_mut(..=vec![key]).next_back().into_iter().for_each(|(_, value)| *value = n);
            }
            Step::Take(from, to) => {
                let taken = map.take_range(&[from], &[to]);
                let expected: Vec<_> = match from < to {
                    true => tree.extract_if(vec![from]..vec![to], |_, _| true).collect(),
                    false => Vec::new(),
                };
                assert_eq!(taken, expected);
            }
        }
    }

    proptest! {
        #[test]
        fn key_map_agrees_with_a_btree_map(steps in steps(), from: u8, to: u8) {
            let (mut map, mut tree) = (KeyMap::default(), BTreeMap::new());
            for (n, step) in steps.into_iter().enumerate() {
                apply(&mut map, &mut tree, n, step);
                prop_assert_eq!((map.len(), map.is_empty()), (tree.len(), tree.is_empty()));
                prop_assert!(map.iter().eq(tree.iter().map(|(key, value)| (&key[..], value))));
                prop_assert!(map.iter().rev().eq(tree.iter().rev().map(|(key, value)| (&key[..], value))));
                prop_assert_eq!(map.get(&[from]), tree.get(&[from][..]));
                let bound = |bound| tree.range::<[u8], _>((Unbounded, bound)).next_back().map(|(k, v)| (&k[..], v));
                for up_to in [Included(&[from][..]), Excluded(&[from]), Unbounded] {
                    prop_assert_eq!(map.last_up_to(up_to), bound(up_to));
                }
                let range = (from < to).then(|| tree.range(vec![from]..vec![to])).into_iter().flatten();
                let range: Vec<_> = range.map(|(key, value)| (&key[..], value)).collect();
                prop_assert_eq!(map.range(&[from], &[to]).collect::<Vec<_>>(), range.clone());
                prop_assert_eq!(map.has_any(&[from], &[to]), !range.is_empty());
                prop_assert!(map.range(&[from], &[to]).rev().eq(range.into_iter().rev()));
            }
            let copy: KeyMap<_> = map.clone();
            prop_assert_eq!(&copy, &map);
            prop_assert_eq!(Vec::from(copy), tree.into_iter().collect::<Vec<_>>());
        }
    }
}
