//! Reading: an immutable view of all keys after some batch of commits.

use std::sync::Arc;

use bytes::Bytes;
use redb::{ReadOnlyTable, ReadableTableMetadata};

use super::{Health, StorageError, explain};

type Row = (redb::AccessGuard<'static, &'static [u8]>, redb::AccessGuard<'static, &'static [u8]>);

/// An immutable view of all keys after some batch of commits.
pub struct Snapshot {
    data: ReadOnlyTable<&'static [u8], &'static [u8]>,
    health: Arc<Health>,
}

impl Snapshot {
    pub(super) fn new(data: ReadOnlyTable<&'static [u8], &'static [u8]>, health: Arc<Health>) -> Snapshot {
        Snapshot { data, health }
    }

    /// How many rows there are.
    pub fn len(&self) -> Result<u64, StorageError> {
        self.data.len().map_err(|error| explain(&self.health, error.into()))
    }

    /// The value of `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        let found = self.data.get(key).map_err(|error| explain(&self.health, error.into()))?;
        Ok(found.map(|value| Bytes::copy_from_slice(value.value())))
    }

    /// The rows of `[begin, end)`, from either side.
    pub fn range(&self, begin: &[u8], end: &[u8]) -> Result<Rows, StorageError> {
        if begin >= end {
            return Ok(Rows { rows: None, health: Arc::clone(&self.health) });
        }
        let rows = self.data.range::<&[u8]>(begin..end);
        let rows = rows.map_err(|error| explain(&self.health, error.into()))?;
        Ok(Rows { rows: Some(rows), health: Arc::clone(&self.health) })
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Snapshot")
    }
}

/// Rows in key order; `next_back` walks down from the end.
pub struct Rows {
    rows: Option<redb::Range<'static, &'static [u8], &'static [u8]>>,
    health: Arc<Health>,
}

impl Iterator for Rows {
    type Item = Result<Row, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rows.as_mut()?.next().map(|row| row.map_err(|error| explain(&self.health, error.into())))
    }
}

impl DoubleEndedIterator for Rows {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.rows.as_mut()?.next_back().map(|row| row.map_err(|error| explain(&self.health, error.into())))
    }
}
