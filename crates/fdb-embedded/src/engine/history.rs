//! What the batches of the last five seconds changed: with the newest state, every version since can be read.
//!
//! A batch leaves a [`Layer`]: the keys that it changed and what they held before. What a key held at some version is
//! the value in the first layer after it, or, if none has the key, the newest value. So a version stays readable
//! without a snapshot of its own, which would keep redb from using freed pages again.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use crate::limits::MAX_HISTORY_BYTES;

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

/// What a batch changes, noted while it is applied.
#[derive(Debug, Default)]
pub struct Changes {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    is_too_much: bool,
}

impl Changes {
    /// `key` is about to change, or has just changed, from `old`.
    pub fn note(&mut self, key: &[u8], old: Option<&[u8]>) {
        // Only what a key held before the batch counts, however often it changes: in a row, as a rule.
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

/// What one batch changed, in key order.
#[derive(Debug)]
pub struct Layer {
    version: i64,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

impl Layer {
    /// What the batch of `version` changed; `None` if that is too much to keep. Sorts it, so not where others wait.
    pub fn new(version: i64, changes: Changes) -> Option<Layer> {
        let Changes { mut bytes, mut entries, is_too_much } = changes;
        if is_too_much {
            return None;
        }
        entries.sort_by(|a, b| a.key(&bytes).cmp(b.key(&bytes)));
        // The first note of a key is what it held before the batch; the sort keeps their order.
        entries.dedup_by(|later, first| later.key(&bytes) == first.key(&bytes));
        bytes.shrink_to_fit();
        entries.shrink_to_fit();
        Some(Layer { version, bytes, entries })
    }

    fn len(&self) -> usize {
        size_of::<Layer>() + memory(&self.bytes, &self.entries)
    }

    /// What `key` held before, if the batch changed it.
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

/// The layers after some version, oldest first: what to see in front of a newer state.
#[derive(Debug, Default)]
pub struct Past {
    layers: Vec<Arc<Layer>>,
}

impl Past {
    /// True if the newer state is the state.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// What `key` held then, if it has changed since.
    pub fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        self.layers.iter().find_map(|layer| layer.before(key))
    }

    /// What the keys of `[begin, end)` that have changed since held then.
    pub fn range(&self, begin: &[u8], end: &[u8]) -> BTreeMap<&[u8], Option<&[u8]>> {
        let mut found = BTreeMap::new();
        for (key, value) in self.layers.iter().flat_map(|layer| layer.range(begin, end)) {
            found.entry(key).or_insert(value);
        }
        found
    }
}

/// The layers of the last five seconds, as far as they fit.
#[derive(Debug)]
pub struct History {
    layers: VecDeque<Arc<Layer>>,
    /// Versions below this one cannot be made from the layers.
    oldest: i64,
    bytes: usize,
}

impl History {
    /// Begins at `version`.
    pub fn new(version: i64) -> History {
        History { layers: VecDeque::new(), oldest: version, bytes: 0 }
    }

    /// The batch of `version` is durable, and `layer` what it changed. Layers up to version `expired` are not needed any
    /// more.
    pub fn push(&mut self, version: i64, layer: Option<Layer>, expired: i64) {
        let mut limit = MAX_HISTORY_BYTES;
        match layer {
            None => {
                self.oldest = version;
                limit = 0;
            }
            Some(layer) if layer.entries.is_empty() => {}
            Some(layer) => {
                self.bytes += layer.len();
                self.layers.push_back(Arc::new(layer));
            }
        }
        self.trim(limit, expired);
    }

    /// Forgets layers up to version `expired` although there is no new batch.
    pub fn forget(&mut self, expired: i64) {
        self.trim(MAX_HISTORY_BYTES, expired);
        self.layers.shrink_to_fit();
    }

    fn trim(&mut self, limit: usize, expired: i64) {
        while self.layers.front().is_some_and(|oldest| oldest.version <= expired || self.bytes > limit) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.layers.pop_front() {
            self.bytes -= oldest.len();
            self.oldest = self.oldest.max(oldest.version);
        }
    }

    /// Is it known what was there at `version`?
    pub fn reaches(&self, version: i64) -> bool {
        version >= self.oldest
    }

    /// What to see at `version` in front of the newest state; `None` if that is not known any more.
    pub fn since(&self, version: i64) -> Option<Past> {
        if !self.reaches(version) {
            return None;
        }
        let first = self.layers.partition_point(|layer| layer.version <= version);
        Some(Past {
            layers: self.layers.range(Range { start: first, end: self.layers.len() }).cloned().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(history: &mut History, version: i64, notes: &[(&str, Option<&str>)], expired: i64) {
        let mut changes = Changes::default();
        for (key, old) in notes {
            changes.note(key.as_bytes(), old.map(str::as_bytes));
        }
        history.push(version, Layer::new(version, changes), expired);
    }

    #[test]
    fn the_first_change_after_a_version_says_what_was_there() {
        let mut history = History::new(10);
        push(&mut history, 20, &[("b", None), ("a", Some("1")), ("a", Some("not this"))], 0);
        push(&mut history, 30, &[("a", Some("2")), ("c", Some(""))], 0);
        assert!(history.since(9).is_none());
        let past = history.since(19).unwrap();
        assert_eq!(past.get(b"a"), Some(Some(&b"1"[..])));
        assert_eq!(past.get(b"b"), Some(None));
        assert_eq!(past.get(b"d"), None);
        let range: Vec<_> = past.range(b"b", b"z").into_iter().collect();
        assert_eq!(range, [(&b"b"[..], None), (b"c", Some(&b""[..]))]);
        assert_eq!(history.since(20).unwrap().get(b"a"), Some(Some(&b"2"[..])));
        assert!(history.since(30).unwrap().is_empty());
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
