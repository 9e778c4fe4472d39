//! A superversion: a snapshot of redb and the memtables that are newer.

use std::sync::Arc;

use baton::RwLock;
use mutant::mutant;

use super::error::StorageError;
use super::memtable::Memtable;
use super::snapshot::Snapshot;
use super::undo_log::UndoView;
use super::versioned_reader::VersionedReader;

/// A snapshot of redb and the memtables that are newer: everything that one read needs.
#[derive(Debug)]
pub struct Superversion {
    /// `None` after they were released.
    contents: RwLock<Option<Arc<Contents>>>,
    /// The version of the last batch in the snapshot.
    base_version: i64,
    /// Total bytes that had been written to the file when the snapshot was made.
    bytes_written: u64,
}

/// What a superversion reads from.
#[derive(Debug)]
pub struct Contents {
    snapshot: Arc<Snapshot>,
    /// The memtables after the snapshot, oldest first. The last one is active and still grows.
    memtables: Vec<Arc<Memtable>>,
}

impl Contents {
    /// A reader at `version`, which sees the older values in `undo`.
    pub fn reader_at<'a>(&'a self, version: i64, undo: &'a UndoView) -> VersionedReader<'a> {
        VersionedReader { snapshot: &self.snapshot, memtables: &self.memtables, undo, version }
    }
}

impl Superversion {
    pub(super) fn new(
        snapshot: Arc<Snapshot>,
        memtables: Vec<Arc<Memtable>>,
        base_version: i64,
        bytes_written: u64,
    ) -> Superversion {
        let contents = RwLock::new(Some(Arc::new(Contents { snapshot, memtables })));
        Superversion { contents, base_version, bytes_written }
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
        Superversion { bytes_written, ..self.duplicate() }
    }

    /// A copy that is released on its own.
    pub fn duplicate(&self) -> Superversion {
        Superversion { contents: RwLock::new(self.contents()), ..*self }
    }

    /// Releases the snapshot, so that redb can reuse the pages it pins, and the memory of the
    /// memtables. A transaction that stays open keeps the superversion, and nothing of these.
    pub fn release(&self) {
        let mut contents = self.contents.write();
        if mutant("open-transactions-hold-memtables") {
            return;
        }
        *contents = None;
    }

    /// What it reads from, unless that was released.
    pub fn contents(&self) -> Option<Arc<Contents>> {
        self.contents.read().clone()
    }

    /// The snapshot, unless it was released.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.contents.read().as_ref().map(|contents| Arc::clone(&contents.snapshot))
    }

    fn newest_contents(&self) -> Arc<Contents> {
        self.contents().expect("the newest state is not let go while batches are applied")
    }

    /// The active memtable.
    #[cfg(test)]
    pub fn active_memtable(&self) -> Arc<Memtable> {
        Arc::clone(self.newest_contents().memtables.last().expect("a state has one"))
    }

    /// Reads the state below the active memtable.
    pub(super) fn read_below_active<T>(
        &self,
        read: impl FnOnce(VersionedReader<'_>) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let contents = self.newest_contents();
        let memtables = contents.memtables.split_last().map_or(&[][..], |(_newest, below)| below);
        read(VersionedReader {
            snapshot: &contents.snapshot,
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
        read(self.newest_contents().reader_at(i64::MAX, &UndoView::default()))
    }
}
