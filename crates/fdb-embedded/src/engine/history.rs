//! What the batches of the last five seconds changed: with the newest state, every version since can be read.
//!
//! Batches go to redb in groups. A [`Group`] leaves a [`Layer`]: the keys that it changed and what they held before. What a key held
//! between two groups is the value in the first layer after that, or, if none has the key, the newest value; and within a group, what
//! its own batches had written by then comes before that. So a version stays readable without a snapshot of its own, which would
//! keep redb from using freed pages again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::delta::Delta;
use crate::limits::MAX_HISTORY_BYTES;
use crate::rows::Direction;

/// Marks an absent value.
const ABSENT: u32 = u32::MAX;

/// A key and what it held before, in [`Changes::bytes`].
#[derive(Debug, Clone, Copy)]
struct Entry {
    at: u32,
    key: u32,
    value: u32,
}

impl Entry {
    fn key(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.at as usize..][..self.key as usize]
    }

    fn value(self, bytes: &[u8]) -> Option<&[u8]> {
        (self.value != ABSENT).then(|| &bytes[(self.at + self.key) as usize..][..self.value as usize])
    }
}

/// Bytes that changes take.
fn memory(bytes: &[u8], entries: &[Entry]) -> usize {
    bytes.len() + size_of_val(entries)
}

/// What a group changes, noted while it is applied.
#[derive(Debug, Default)]
pub struct Changes {
    /// Bytes of rows that there are more than before, or fewer.
    pub net: i64,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    is_too_much: bool,
}

impl Changes {
    /// `key` is about to change, or has just changed, from `old`.
    pub fn note(&mut self, key: &[u8], old: Option<&[u8]>) {
        // Only what a key held before the group counts, however often it changes: in a row, as a rule.
        let is_noted = self.entries.last().is_some_and(|last| last.key(&self.bytes) == key);
        if self.is_too_much || is_noted {
            return;
        }
        let added = size_of::<Entry>() + key.len() + old.map_or(0, <[u8]>::len);
        if memory(&self.bytes, &self.entries) + added > MAX_HISTORY_BYTES {
            *self = Changes { is_too_much: true, ..Changes::default() };
            return;
        }
        let narrow = |n: usize| u32::try_from(n).expect("MAX_HISTORY_BYTES is below 4 GiB");
        let value = old.map_or(ABSENT, |old| narrow(old.len()));
        self.entries.push(Entry { at: narrow(self.bytes.len()), key: narrow(key.len()), value });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(old.unwrap_or_default());
    }
}

/// What one group changed, in key order.
#[derive(Debug)]
pub struct Layer {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

impl Layer {
    /// What a group changed; `None` if that is too much to keep. Sorts it, so not where others wait.
    pub fn new(changes: Changes) -> Option<Layer> {
        let Changes { mut bytes, mut entries, is_too_much, .. } = changes;
        if is_too_much {
            return None;
        }
        // As a rule they come in order.
        entries.sort_by(|a, b| a.key(&bytes).cmp(b.key(&bytes)));
        // The first note of a key is what it held before the group; the sort keeps their order.
        entries.dedup_by(|later, first| later.key(&bytes) == first.key(&bytes));
        bytes.shrink_to_fit();
        entries.shrink_to_fit();
        Some(Layer { bytes, entries })
    }

    fn len(&self) -> usize {
        size_of::<Layer>() + memory(&self.bytes, &self.entries)
    }

    /// What `key` held before, if the group changed it.
    fn before(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let found = self.entries.binary_search_by(|entry| entry.key(&self.bytes).cmp(key)).ok()?;
        Some(self.entries[found].value(&self.bytes))
    }

    fn range(&self, begin: &[u8], end: &[u8]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let first = self.entries.partition_point(|entry| entry.key(&self.bytes) < begin);
        let rest = &self.entries[first..];
        let rest = &rest[..rest.partition_point(|entry| entry.key(&self.bytes) < end)];
        rest.iter().map(|entry| (entry.key(&self.bytes), entry.value(&self.bytes)))
    }
}

/// Batches that went to redb together.
#[derive(Debug)]
pub struct Group {
    /// What they have written, version by version.
    pub delta: Arc<Delta>,
    /// What they changed, if that is not too much to keep.
    pub layer: Option<Layer>,
    /// The version of the last of them.
    pub last: i64,
}

#[derive(Debug)]
struct Kept {
    delta: Arc<Delta>,
    layer: Arc<Layer>,
    last: i64,
}

impl Kept {
    fn len(&self) -> usize {
        self.layer.len() + self.delta.weight().bytes
    }
}

/// The way back to some version: what to see in front of a newer state of redb's.
#[derive(Debug, Default)]
pub struct Past {
    /// What the group that the version lies in has written by then.
    written: Option<(Arc<Delta>, i64)>,
    /// What that group and those after it have changed, oldest first.
    layers: Vec<Arc<Layer>>,
}

impl Past {
    /// True if the newer state is the state.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// What `key` held then, if it has changed since.
    pub fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let written = self.written.as_ref().and_then(|(delta, version)| delta.get(key, *version));
        let before = || self.layers.iter().find_map(|layer| layer.before(key));
        written.or_else(|| before().map(|value| value.map(Bytes::copy_from_slice)))
    }

    /// What the keys of `[begin, end)` that have changed since held then, in the order of `direction`.
    pub fn range(&self, begin: &[u8], end: &[u8], direction: Direction) -> Vec<(Bytes, Option<Bytes>)> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut found: BTreeMap<Bytes, Option<Bytes>> = BTreeMap::new();
        for (key, value) in self.layers.iter().rev().flat_map(|layer| layer.range(begin, end)) {
            found.insert(Bytes::copy_from_slice(key), value.map(Bytes::copy_from_slice));
        }
        if let Some((delta, version)) = &self.written {
            found.extend(delta.range(begin, end, *version, direction));
        }
        match direction {
            Direction::Forward => found.into_iter().collect(),
            Direction::Backward => found.into_iter().rev().collect(),
        }
    }
}

/// The groups of the last five seconds, as far as they fit.
#[derive(Debug)]
pub struct History {
    groups: VecDeque<Kept>,
    /// Versions below this one cannot be made from the groups.
    oldest: i64,
    bytes: usize,
}

impl History {
    /// Begins at `version`.
    pub fn new(version: i64) -> History {
        History { groups: VecDeque::new(), oldest: version, bytes: 0 }
    }

    /// A group is in redb. Groups up to version `expired` are not needed any more.
    pub fn push(&mut self, group: Group, expired: i64) {
        let Group { delta, layer, last } = group;
        let mut limit = MAX_HISTORY_BYTES;
        match layer {
            None => {
                self.oldest = last;
                limit = 0;
            }
            // What a key held in between counts as well.
            Some(layer) if layer.entries.is_empty() && delta.weight().writes == 0 => {}
            Some(layer) => {
                let kept = Kept { delta, layer: Arc::new(layer), last };
                self.bytes += kept.len();
                self.groups.push_back(kept);
            }
        }
        self.trim(limit, expired);
    }

    /// Forgets groups up to version `expired` although there is no new one.
    pub fn forget(&mut self, expired: i64) {
        self.trim(MAX_HISTORY_BYTES, expired);
        self.groups.shrink_to_fit();
    }

    fn trim(&mut self, limit: usize, expired: i64) {
        while self.groups.front().is_some_and(|oldest| oldest.last <= expired || self.bytes > limit) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.groups.pop_front() {
            self.bytes -= oldest.len();
            self.oldest = self.oldest.max(oldest.last);
        }
    }

    /// Is it known what was there at `version`?
    pub fn reaches(&self, version: i64) -> bool {
        version >= self.oldest
    }

    /// What to see at `version` in front of redb's newest state; `None` if that is not known any more.
    pub fn since(&self, version: i64) -> Option<Past> {
        if !self.reaches(version) {
            return None;
        }
        let first = self.groups.partition_point(|group| group.last <= version);
        let groups = self.groups.range(first..);
        Some(Past {
            written: self.groups.get(first).map(|group| (Arc::clone(&group.delta), version)),
            layers: groups.map(|group| Arc::clone(&group.layer)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(history: &mut History, version: i64, notes: &[(&str, Option<&str>)], expired: i64) {
        push_group(history, version, Delta::default(), notes, expired);
    }

    fn push_group(
        history: &mut History,
        last: i64,
        delta: Delta,
        notes: &[(&str, Option<&str>)],
        expired: i64,
    ) {
        let mut changes = Changes::default();
        for (key, old) in notes {
            changes.note(key.as_bytes(), old.map(str::as_bytes));
        }
        history.push(Group { delta: Arc::new(delta), layer: Layer::new(changes), last }, expired);
    }

    fn write(delta: &Delta, version: i64, rows: &[(&'static str, Option<&'static str>)]) {
        let mut writer = delta.writer(version);
        for (key, value) in rows {
            let (key, value) = row(key, *value);
            writer.put(key, value);
        }
    }

    fn row(key: &'static str, value: Option<&'static str>) -> (Bytes, Option<Bytes>) {
        (Bytes::from(key), value.map(Bytes::from))
    }

    fn held(past: &Past, key: &str) -> Option<Option<Bytes>> {
        past.get(key.as_bytes())
    }

    #[test]
    fn the_first_change_after_a_version_says_what_was_there() {
        let mut history = History::new(10);
        push(&mut history, 20, &[("b", None), ("a", Some("1")), ("a", Some("not this"))], 0);
        push(&mut history, 30, &[("a", Some("2")), ("c", Some(""))], 0);
        assert!(history.since(9).is_none());
        let past = history.since(19).unwrap();
        assert_eq!(held(&past, "a"), Some(Some("1".into())));
        assert_eq!(held(&past, "b"), Some(None));
        assert_eq!(held(&past, "d"), None);
        let range = past.range(b"b", b"z", Direction::Forward);
        assert_eq!(range, [row("b", None), row("c", Some(""))]);
        assert_eq!(held(&history.since(20).unwrap(), "a"), Some(Some("2".into())));
        assert!(history.since(30).unwrap().is_empty());
    }

    #[test]
    fn within_a_group_its_own_batches_come_before_what_was_there_before_it() {
        let mut history = History::new(10);
        let delta = Delta::default();
        write(&delta, 12, &[("a", Some("x")), ("b", Some("y"))]);
        write(&delta, 14, &[("a", None), ("c", Some("z"))]);
        // "a" was not there before, and is not there after.
        push_group(&mut history, 14, delta, &[("b", Some("0")), ("c", None)], 0);
        push(&mut history, 20, &[("b", Some("y"))], 0);
        let at = |version: i64, key: &str| held(&history.since(version).unwrap(), key);
        assert_eq!((at(11, "a"), at(11, "b"), at(11, "c")), (None, Some(Some("0".into())), Some(None)));
        let [x, y] = ["x", "y"].map(|value| Some(Some(value.into())));
        assert_eq!((at(12, "a"), at(13, "b"), at(13, "c")), (x, y.clone(), Some(None)));
        assert_eq!((at(14, "a"), at(14, "b"), at(14, "c")), (None, y, None));
        let backward = history.since(13).unwrap().range(b"a", b"z", Direction::Backward);
        assert_eq!(backward, [row("c", None), row("b", Some("y")), row("a", Some("x"))]);
        let mut alone = History::new(10);
        let delta = Delta::default();
        write(&delta, 12, &[("a", Some("x"))]);
        write(&delta, 14, &[("a", None)]);
        push_group(&mut alone, 14, delta, &[], 0);
        assert_eq!(held(&alone.since(13).unwrap(), "a"), Some(Some("x".into())), "in between");
    }

    #[test]
    fn what_a_batch_notes_is_bounded_and_a_key_counts_once_however_often_it_changes() {
        let mut changes = Changes::default();
        let value = vec![0; 100_000];
        (0..2 * MAX_HISTORY_BYTES / value.len()).for_each(|_| changes.note(b"k", Some(&value)));
        assert!(changes.bytes.len() < 2 * value.len());
        // Keys of which the entries take most of the memory.
        let keys = (0..u32::MAX).take_while(|n| {
            assert!(memory(&changes.bytes, &changes.entries) <= MAX_HISTORY_BYTES);
            changes.note(&n.to_be_bytes(), None);
            !changes.is_too_much
        });
        assert!(keys.count() > MAX_HISTORY_BYTES / 17, "sixteen bytes each");
        assert_eq!((changes.bytes.capacity(), changes.entries.capacity()), (0, 0));
    }

    #[test]
    fn what_is_too_old_or_too_much_is_forgotten() {
        let mut history = History::new(0);
        for version in 1..=5 {
            push(&mut history, version * 10, &[("k", Some("v"))], 20);
        }
        assert!(history.since(19).is_none());
        assert_eq!(history.since(20).unwrap().layers.len(), 3);
        let big = "x".repeat(MAX_HISTORY_BYTES / 4);
        for version in 6..=9 {
            push(&mut history, version * 10, &[("k", Some(&big))], 0);
        }
        assert!(history.bytes <= MAX_HISTORY_BYTES);
        assert!(history.since(59).is_none() && history.since(60).is_some());
        let all = [("a", Some(&*big)), ("b", Some(&big)), ("c", Some(&big)), ("d", Some(&big))];
        push(&mut history, 100, &all, 0);
        assert!(history.since(99).is_none() && history.since(100).is_some(), "one batch that is too much");
        assert_eq!(history.bytes, 0);
    }
}
