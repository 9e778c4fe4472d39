//! A state that can be read: redb's newest snapshot, and what has been written since.

use std::sync::Arc;

use parking_lot::RwLock;

use super::{Snapshot, StorageError};
use crate::engine::delta::Delta;
use crate::engine::history::Past;
use crate::engine::reading::At;

/// A snapshot of redb's, and what batches have written since.
#[derive(Debug)]
pub struct State {
    /// `None` once it has been let go.
    snapshot: RwLock<Option<Arc<Snapshot>>>,
    /// Writes after it, oldest first. The last one grows.
    deltas: Vec<Arc<Delta>>,
    /// The version of the last batch that the snapshot has.
    base: i64,
    /// Bytes that had been written to the file by then, in all.
    written: u64,
}

impl State {
    pub(super) fn new(snapshot: Arc<Snapshot>, deltas: Vec<Arc<Delta>>, base: i64, written: u64) -> State {
        State { snapshot: RwLock::new(Some(snapshot)), deltas, base, written }
    }

    /// Versions from this one on can be read in it.
    pub fn base(&self) -> i64 {
        self.base
    }

    /// Bytes that had been written to the file, in all, when its snapshot was made.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The same, as if so much had been written by then.
    #[cfg(test)]
    pub fn as_if_written(&self, written: u64) -> State {
        let snapshot = self.snapshot().expect("it has one");
        State::new(snapshot, self.deltas.clone(), self.base, written)
    }

    /// The same once more, to be let go by itself.
    pub fn again(&self) -> State {
        State { snapshot: RwLock::new(self.snapshot()), deltas: self.deltas.clone(), ..*self }
    }

    /// Lets go of the snapshot, which keeps pages from being used again. Nothing can be read any more.
    pub fn let_go(&self) {
        *self.snapshot.write() = None;
    }

    /// Its snapshot, if that has not been let go.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.read().clone()
    }

    /// A version of it, behind which lies `past`. `snapshot` is its own.
    pub fn at<'a>(&'a self, version: i64, snapshot: &'a Snapshot, past: &'a Past) -> At<'a> {
        At { snapshot, deltas: &self.deltas, past, version }
    }

    /// The delta that grows.
    #[cfg(test)]
    pub fn newest_delta(&self) -> Arc<Delta> {
        Arc::clone(self.deltas.last().expect("a state has one"))
    }

    /// What was there before the newest delta.
    pub(super) fn below<T>(
        &self,
        read: impl FnOnce(At<'_>) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let snapshot = self.snapshot().expect("the newest state is not let go while batches are applied");
        let deltas = self.deltas.split_last().map_or(&[][..], |(_newest, below)| below);
        read(At { snapshot: &snapshot, deltas, past: &Past::default(), version: i64::MAX })
    }

    /// Everything that was written, whether it can be read by clients yet or not.
    pub(super) fn newest<T>(
        &self,
        read: impl FnOnce(At<'_>) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let snapshot = self.snapshot().expect("the newest state is not let go while batches are applied");
        read(self.at(i64::MAX, &snapshot, &Past::default()))
    }
}
