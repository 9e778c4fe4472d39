//! A superversion: a snapshot of redb and the memtables that are newer.

use std::sync::Arc;

use parking_lot::RwLock;

use super::{Snapshot, StorageError};
use crate::engine::memtable::Memtable;
use crate::engine::undo_log::UndoView;
use crate::engine::versioned_reader::VersionedReader;

/// A snapshot of redb and the memtables that are newer: everything that one read needs.
#[derive(Debug)]
pub struct Superversion {
    /// `None` after it was released.
    snapshot: RwLock<Option<Arc<Snapshot>>>,
    /// The memtables after the snapshot, oldest first. The last one is active and still grows.
    memtables: Vec<Arc<Memtable>>,
    /// The version of the last batch in the snapshot.
    base_version: i64,
    /// Total bytes that had been written to the file when the snapshot was made.
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

    /// The oldest version that it can serve.
    pub fn base_version(&self) -> i64 {
        self.base_version
    }

    /// Total bytes that had been written to the file when the snapshot was made.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// A copy that claims another total of written bytes.
    #[cfg(test)]
    pub fn as_if_written(&self, bytes_written: u64) -> Superversion {
        let snapshot = self.snapshot().expect("it has one");
        Superversion::new(snapshot, self.memtables.clone(), self.base_version, bytes_written)
    }

    /// A copy whose snapshot is released on its own.
    pub fn duplicate(&self) -> Superversion {
        Superversion { snapshot: RwLock::new(self.snapshot()), memtables: self.memtables.clone(), ..*self }
    }

    /// Releases the snapshot, so that redb can reuse the pages it pins. Later reads fail.
    pub fn release_snapshot(&self) {
        *self.snapshot.write() = None;
    }

    /// The snapshot, unless it was released.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.read().clone()
    }

    /// A reader at `version`, which sees the older values in `undo`. `snapshot` is this
    /// superversion's own.
    pub fn reader_at<'a>(
        &'a self,
        version: i64,
        snapshot: &'a Snapshot,
        undo: &'a UndoView,
    ) -> VersionedReader<'a> {
        VersionedReader { snapshot, memtables: &self.memtables, undo, version }
    }

    /// The active memtable.
    #[cfg(test)]
    pub fn active_memtable(&self) -> Arc<Memtable> {
        Arc::clone(self.memtables.last().expect("a state has one"))
    }

    /// Reads the state below the active memtable.
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

    /// Reads all writes, including writes that clients cannot read yet.
    pub(super) fn read_newest<T>(
        &self,
        read: impl FnOnce(VersionedReader<'_>) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let snapshot = self.snapshot().expect("the newest state is not let go while batches are applied");
        read(self.reader_at(i64::MAX, &snapshot, &UndoView::default()))
    }
}
