//! Armed watches: each waits for the value of its key to change.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;

use baton::{Condvar, Mutex};
use bytes::Bytes;

use super::mutation::Mutation;
use super::read_views::ReadView;
use crate::error::{Code, Result};
use crate::future::{Future, Output};
use crate::limits::MAX_WATCH_BYTES;

/// An armed watch.
#[derive(Debug)]
struct ArmedWatch {
    /// The value that the transaction saw. The watch fires when the key has another value.
    baseline: Option<Bytes>,
    future: Arc<Future>,
}

/// Approximate bytes of a watch in addition to its key and baseline.
pub(super) const WATCH_OVERHEAD: usize = 256;

impl ArmedWatch {
    /// Bytes that the watch of `key` counts for.
    fn len(&self, key: &[u8]) -> usize {
        WATCH_OVERHEAD + key.len() + self.baseline.as_ref().map_or(0, Bytes::len)
    }
}

/// Identifies an armed watch of a key.
pub type WatchId = u64;

#[derive(Debug, Default)]
struct WatchTable {
    by_key: BTreeMap<Vec<u8>, BTreeMap<WatchId, ArmedWatch>>,
    /// Bytes of all watches.
    bytes: usize,
    sequence: WatchId,
}

/// Watches that were armed on the committer's thread, and whose baseline another thread still has
/// to compare.
#[derive(Debug, Default)]
pub(super) struct DeferredComparisons {
    pub(super) waiting: VecDeque<(Vec<u8>, WatchId)>,
    /// Bytes of the keys.
    pub(super) bytes: usize,
    /// A thread that compares them is running.
    pub(super) has_thread: bool,
}

/// All armed watches of a database directory, by key.
#[derive(Debug, Default)]
pub struct Watches {
    table: Mutex<WatchTable>,
    pub(super) deferred: Mutex<DeferredComparisons>,
    /// Signals a new entry in `deferred`, or the engine's end.
    pub(super) deferred_wake: Condvar,
}

impl Watches {
    /// Adds the armed watches.
    #[cfg(feature = "testing")]
    pub fn add_holdings(&self, holdings: &mut super::holdings::Holdings) {
        let table = self.table.lock();
        holdings.watches = (table.by_key.values().map(BTreeMap::len).sum(), table.bytes);
    }
}

impl Watches {
    /// Registers a watch. The caller must then compare the baseline with a value read later,
    /// because a change may have been published just before. Fails if all watches together take
    /// more than `MAX_WATCH_BYTES`.
    pub(super) fn arm(&self, key: &[u8], baseline: Option<Bytes>, future: Arc<Future>) -> Result<WatchId> {
        let armed = ArmedWatch { baseline, future };
        let mut table = self.table.lock();
        let bytes = table.bytes + armed.len(key);
        if bytes > MAX_WATCH_BYTES {
            return Err(Code::TOO_MANY_WATCHES);
        }
        table.bytes = bytes;
        table.sequence += 1;
        let id = table.sequence;
        table.by_key.entry(key.to_vec()).or_default().insert(id, armed);
        Ok(id)
    }

    /// Ends the comparison of deferred watches, after the engine has ended.
    pub fn end(&self) {
        // Locked, so that the thread cannot miss the signal between its check and its wait.
        let _late = self.deferred.lock();
        self.deferred_wake.notify_all();
    }

    /// The baseline and the future of a watch, if it is armed.
    pub(super) fn get(&self, key: &[u8], id: WatchId) -> Option<(Option<Bytes>, Arc<Future>)> {
        let table = self.table.lock();
        let armed = table.by_key.get(key)?.get(&id)?;
        Some((armed.baseline.clone(), Arc::clone(&armed.future)))
    }

    /// Fires the watches of `key` whose baseline differs from the value at `view`, which must be
    /// newest. Fails them all if the key cannot be read.
    pub fn recheck(&self, key: &[u8], view: &ReadView) {
        // Before locking, because a read may go to the disk.
        let value = view.get(key);
        let ended: Vec<ArmedWatch> = {
            let mut table = self.table.lock();
            let Some(armed) = table.by_key.get_mut(key) else { return };
            let differs = |_: &WatchId, one: &mut ArmedWatch| value.as_ref() != Ok(&one.baseline);
            let ended: Vec<ArmedWatch> = armed.extract_if(.., differs).map(|(_, one)| one).collect();
            if armed.is_empty() {
                table.by_key.remove(key);
            }
            table.bytes -= ended.iter().map(|one| one.len(key)).sum::<usize>();
            ended
        };
        let error = value.err();
        // After unlocking, because completing a future runs the hook that forgets it.
        for one in ended {
            one.future.complete(error.map_or(Ok(Output::Void), Err));
        }
    }

    /// The watched keys that these mutations may have changed.
    pub fn affected_by<'m>(&self, mutations: impl IntoIterator<Item = &'m Mutation>) -> Vec<Vec<u8>> {
        let by_key = &self.table.lock().by_key;
        if by_key.is_empty() {
            return Vec::new();
        }
        let mut affected = Vec::new();
        for mutation in mutations {
            match mutation {
                Mutation::Set { key, .. } | Mutation::Atomic { key, .. } => {
                    affected.extend(by_key.contains_key(key).then(|| key.clone()));
                }
                Mutation::ClearRange { begin, end } if begin < end => {
                    let range = (Included(begin.as_slice()), Excluded(end.as_slice()));
                    affected.extend(by_key.range::<[u8], _>(range).map(|(key, _)| key.clone()));
                }
                _ => {}
            }
        }
        affected.sort_unstable();
        affected.dedup();
        affected
    }

    /// The watched keys among `keys`.
    pub fn affected_by_keys(&self, keys: &[Bytes]) -> Vec<Vec<u8>> {
        let by_key = &self.table.lock().by_key;
        if by_key.is_empty() {
            return Vec::new();
        }
        let watched = keys.iter().filter(|key| by_key.contains_key(&key[..]));
        let mut affected: Vec<Vec<u8>> = watched.map(|key| key.to_vec()).collect();
        affected.sort_unstable();
        affected.dedup();
        affected
    }

    /// Forgets a watch whose future was cancelled or destroyed.
    pub(super) fn forget(&self, key: &[u8], id: WatchId) {
        let mut table = self.table.lock();
        let table = &mut *table;
        let Some(armed) = table.by_key.get_mut(key) else { return };
        table.bytes -= armed.remove(&id).map_or(0, |one| one.len(key));
        if armed.is_empty() {
            table.by_key.remove(key);
        }
    }

    /// Bytes of all watches.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.table.lock().bytes
    }

    /// The number of armed watches of `key`.
    #[cfg(test)]
    pub fn count(&self, key: &[u8]) -> usize {
        self.table.lock().by_key.get(key).map_or(0, BTreeMap::len)
    }
}
