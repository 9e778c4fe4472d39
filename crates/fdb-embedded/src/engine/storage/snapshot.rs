//! A snapshot: redb's keys after some batch of commits, immutable.

use std::sync::Arc;

use bytes::Bytes;
use redb::{ReadOnlyTable, ReadableTableMetadata};

use super::error::{StorageError, with_cause};
use super::failure_latch::FailureLatch;

type StoredRow = (redb::AccessGuard<'static, &'static [u8]>, redb::AccessGuard<'static, &'static [u8]>);

/// redb's keys after some batch of commits, immutable.
pub struct Snapshot {
    data: ReadOnlyTable<&'static [u8], &'static [u8]>,
    latch: Arc<FailureLatch>,
}

impl Snapshot {
    pub(super) fn new(
        data: ReadOnlyTable<&'static [u8], &'static [u8]>,
        latch: Arc<FailureLatch>,
    ) -> Snapshot {
        Snapshot { data, latch }
    }

    /// The number of rows.
    pub fn len(&self) -> Result<u64, StorageError> {
        self.data.len().map_err(|error| with_cause(&self.latch, error.into()))
    }

    /// The value of `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        let found = self.data.get(key).map_err(|error| with_cause(&self.latch, error.into()))?;
        Ok(found.map(|value| Bytes::copy_from_slice(value.value())))
    }

    /// The rows of `[begin, end)`, to be read from either end.
    pub fn range(&self, begin: &[u8], end: &[u8]) -> Result<SnapshotRows, StorageError> {
        if begin >= end {
            return Ok(SnapshotRows { rows: None, latch: Arc::clone(&self.latch) });
        }
        let rows = self.data.range::<&[u8]>(begin..end);
        let rows = rows.map_err(|error| with_cause(&self.latch, error.into()))?;
        Ok(SnapshotRows { rows: Some(rows), latch: Arc::clone(&self.latch) })
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Snapshot")
    }
}

/// The rows of a range in key order; `next_back` reads from the end.
pub struct SnapshotRows {
    rows: Option<redb::Range<'static, &'static [u8], &'static [u8]>>,
    latch: Arc<FailureLatch>,
}

impl Iterator for SnapshotRows {
    type Item = Result<StoredRow, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rows.as_mut()?.next().map(|row| row.map_err(|error| with_cause(&self.latch, error.into())))
    }
}

impl DoubleEndedIterator for SnapshotRows {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.rows.as_mut()?.next_back().map(|row| row.map_err(|error| with_cause(&self.latch, error.into())))
    }
}
