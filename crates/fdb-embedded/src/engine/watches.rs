//! Watches that a commit has armed, waiting for their key to change.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use super::mutation::Mutation;
use super::views::View;
use crate::future::{Future, Output};

/// One armed watch.
#[derive(Debug)]
struct Armed {
    /// The value that the transaction saw; the watch fires when the key's value is another.
    baseline: Option<Bytes>,
    future: Arc<Future>,
}

/// Names an armed watch of a key.
pub type WatchId = u64;

/// All armed watches of a database directory, by key.
#[derive(Debug, Default)]
pub struct Watches {
    by_key: Mutex<BTreeMap<Vec<u8>, HashMap<WatchId, Armed>>>,
    sequence: AtomicU64,
}

impl Watches {
    /// Registers a watch. The caller must then compare the baseline with the value at a version read after this,
    /// because a change may have been published before the watch was there to see it.
    pub fn arm(&self, key: Vec<u8>, baseline: Option<Bytes>, future: Arc<Future>) -> WatchId {
        let id = self.sequence.fetch_add(1, Ordering::Relaxed);
        self.by_key.lock().entry(key).or_default().insert(id, Armed { baseline, future });
        id
    }

    /// Fires the watches of `key` whose value at `view` is not their baseline; fails all of them when the key
    /// cannot be read. The view has to be at the newest state, as a baseline may be.
    pub fn recheck(&self, key: &[u8], view: &View) {
        // Before the lock: a read may have to wait for the disk.
        let value = view.get(key);
        let ended: Vec<Armed> = {
            let mut by_key = self.by_key.lock();
            let Some(armed) = by_key.get_mut(key) else { return };
            let differs = |_: &WatchId, one: &mut Armed| value.as_ref() != Ok(&one.baseline);
            let ended = armed.extract_if(differs).map(|(_, one)| one).collect();
            if armed.is_empty() {
                by_key.remove(key);
            }
            ended
        };
        let error = value.err();
        // Outside the lock: completing a future runs the hook that forgets it.
        for one in ended {
            one.future.complete(error.map_or(Ok(Output::Void), Err));
        }
    }

    /// The watched keys that a batch's mutations may have changed.
    pub fn touched<'m>(&self, mutations: impl IntoIterator<Item = &'m Mutation>) -> Vec<Vec<u8>> {
        let by_key = self.by_key.lock();
        if by_key.is_empty() {
            return Vec::new();
        }
        let mut touched = Vec::new();
        for mutation in mutations {
            match mutation {
                Mutation::Set { key, .. } | Mutation::Atomic { key, .. } => {
                    touched.extend(by_key.contains_key(key).then(|| key.clone()));
                }
                Mutation::ClearRange { begin, end } if begin < end => {
                    let range = (Included(begin.as_slice()), Excluded(end.as_slice()));
                    touched.extend(by_key.range::<[u8], _>(range).map(|(key, _)| key.clone()));
                }
                _ => {}
            }
        }
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    /// The watched keys among those that a batch has written.
    pub fn touched_keys(&self, keys: &[Bytes]) -> Vec<Vec<u8>> {
        let by_key = self.by_key.lock();
        if by_key.is_empty() {
            return Vec::new();
        }
        let watched = keys.iter().filter(|key| by_key.contains_key(&key[..]));
        let mut touched: Vec<Vec<u8>> = watched.map(|key| key.to_vec()).collect();
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    /// Forgets a watch whose future has ended by itself: cancelled or destroyed.
    pub fn forget(&self, key: &[u8], id: WatchId) {
        let mut by_key = self.by_key.lock();
        if let Some(armed) = by_key.get_mut(key) {
            armed.remove(&id);
            if armed.is_empty() {
                by_key.remove(key);
            }
        }
    }

    /// How many watches of `key` are armed.
    #[cfg(test)]
    pub fn count(&self, key: &[u8]) -> usize {
        self.by_key.lock().get(key).map_or(0, HashMap::len)
    }
}
