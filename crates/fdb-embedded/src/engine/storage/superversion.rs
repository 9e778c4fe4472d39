//! A state that can be read: redb's newest snapshot, and what has been bytes_written since.

use std::sync::Arc;

use parking_lot::RwLock;

use super::{Snapshot, StorageError};
use crate::engine::memtable::Memtable;
use crate::engine::undo_log::UndoView;
use crate::engine::versioned_reader::VersionedReader;

/// A snapshot of redb's, and what batches have bytes_written since.
#[derive(Debug)]
pub struct Superversion {
    /// `None` once it has been let go.
    snapshot: RwLock<Option<Arc<Snapshot>>>,
    /// Writes after it, oldest first. The last one grows.
    memtables: Vec<Arc<Memtable>>,
    /// The version of the last batch that the snapshot has.
    base_version: i64,
    /// Bytes that had been bytes_written to the file by then, in all.
    bytes_written: u64,
}

impl Superversion {
    pub(super) fn new(
        snapshot: Arc<Snapshot>,
        memtables: Vec<Arc<Memtable>>,
        base_version: i64,
        bytes_written: u64,
    ) -> Superversion {
        Superversion { snapshot: RwLock::new(Some(snapshot)), memtables, base_version, bytes_written }
    }

    /// Versions from this one on can be read in it.
    pub fn base_version(&self) -> i64 {
        self.base_version
    }

    /// Bytes that had been bytes_written to the file, in all, when its snapshot was made.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// The same, as if so much had been bytes_written by then.
    #[cfg(test)]
    pub fn as_if_written(&self, bytes_written: u64) -> Superversion {
        let snapshot = self.snapshot().expect("it has one");
        Superversion::new(snapshot, self.memtables.clone(), self.base_version, bytes_written)
    }

    /// The same once more, to be let go by itself.
    pub fn duplicate(&self) -> Superversion {
        Superversion { snapshot: RwLock::new(self.snapshot()), memtables: self.memtables.clone(), ..*self }
    }

    /// Lets go of the snapshot, which keeps pages from being used again. Nothing can be read any more.
    pub fn release_snapshot(&self) {
        *self.snapshot.write() = None;
    }

    /// Its snapshot, if that has not been let go.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.read().clone()
    }

    /// A version of it, behind which lies `undo`. `snapshot` is its own.
    pub fn reader_at<'a>(
        &'a self,
        version: i64,
        snapshot: &'a Snapshot,
        undo: &'a UndoView,
    ) -> VersionedReader<'a> {
        VersionedReader { snapshot, memtables: &self.memtables, undo, version }
    }

    /// The memtable that grows.
    #[cfg(test)]
    pub fn active_memtable(&self) -> Arc<Memtable> {
        Arc::clone(self.memtables.last().expect("a state has one"))
    }

    /// What was there before the newest memtable.
    pub(super) fn read_below_active<T>(
        &self,
        read: impl FnOnce(VersionedReader<'_>) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let snapshot = self.snapshot().expect("the newest state is not let go while batches are applied");
        let memtables = self.memtables.split_last().map_or(&[][..], |(_newest, below)| below);
        read(VersionedReader {
            snapshot: &snapshot,
            memtables,
            undo: &UndoView::default(),
            version: i64::MAX,
        })
    }

    /// Everything that was bytes_written, whether it can be read by clients yet or not.
    pub(super) fn read_newest<T>(
        &self,
        read: impl FnOnce(VersionedReader<'_>) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let snapshot = self.snapshot().expect("the newest state is not let go while batches are applied");
        read(self.reader_at(i64::MAX, &snapshot, &UndoView::default()))
    }
}
