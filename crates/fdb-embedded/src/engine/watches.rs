//! Watches that a commit has armed, waiting for their key to change.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::mutation::Mutation;
use super::views::View;
use crate::error::Code;
use crate::future::{Future, Output};

/// One armed watch.
#[derive(Debug)]
struct Armed {
    /// The value that the transaction saw; the watch fires when the key's value is another.
    baseline: Option<Bytes>,
    future: Arc<Future>,
}

/// All armed watches of a database directory, by key.
#[derive(Debug, Default)]
pub struct Watches {
    by_key: Mutex<BTreeMap<Vec<u8>, Vec<Armed>>>,
}

impl Watches {
    /// Registers a watch. The caller must `recheck` the key at a version read after this, because a change may have
    /// been published before the watch was there to see it.
    pub fn arm(&self, key: Vec<u8>, baseline: Option<Bytes>, future: Arc<Future>) {
        self.by_key.lock().entry(key).or_default().push(Armed { baseline, future });
    }

    /// Fires the watches of `key` whose value at `view` is not their baseline; fails all of them when the key
    /// cannot be read.
    pub fn recheck(&self, key: &[u8], view: &View) {
        let ended = {
            let mut by_key = self.by_key.lock();
            let Some(armed) = by_key.get_mut(key) else { return };
            let value = view.get(key);
            let ended: Vec<Armed> = armed.extract_if(.., |one| value.as_ref() != Ok(&one.baseline)).collect();
            if armed.is_empty() {
                by_key.remove(key);
            }
            ended.into_iter().map(|one| (one.future, value.as_ref().err().copied())).collect::<Vec<_>>()
        };
        // Outside the lock: completing a future runs the hook that forgets it.
        for (future, error) in ended {
            future.complete(error.map_or(Ok(Output::Void), Err));
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

    /// Ends all watches with an error.
    pub fn fail_all(&self, code: Code) {
        let all = std::mem::take(&mut *self.by_key.lock());
        for armed in all.into_values().flatten() {
            armed.future.fail(code);
        }
    }

    /// Forgets a watch whose future has ended by itself: cancelled or destroyed.
    pub fn forget(&self, key: &[u8], future: &Arc<Future>) {
        let mut by_key = self.by_key.lock();
        if let Some(armed) = by_key.get_mut(key) {
            armed.retain(|one| !Arc::ptr_eq(&one.future, future));
            if armed.is_empty() {
                by_key.remove(key);
            }
        }
    }
}
