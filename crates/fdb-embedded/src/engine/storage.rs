//! Durable storage: one redb file, one table of keys, one of bookkeeping.
//!
//! A batch of commits is one redb write transaction, durable when [`Storage::apply`] returns: redb flushes once and
//! finds the newest whole commit by checksum after a crash. A [`Snapshot`] is a redb read transaction.

use std::path::Path;

use bytes::Bytes;
use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable, Table, TableDefinition};

use super::mutation::Mutation;

type Keys = TableDefinition<'static, &'static [u8], &'static [u8]>;
type Row = (redb::AccessGuard<'static, &'static [u8]>, redb::AccessGuard<'static, &'static [u8]>);

const DATA: Keys = TableDefinition::new("data");
const META: TableDefinition<'static, &'static str, i64> = TableDefinition::new("meta");

/// `META`: no version above this one has been handed out to any client.
const CEILING: &str = "version-ceiling";
/// `META`: the layout of this file; a file with another number is refused.
const FORMAT: &str = "format";
const FORMAT_1: i64 = 1;

/// Memory that redb may use for pages, bytes. The operating system's page cache stands behind it.
const CACHE_BYTES: usize = 64 << 20;

/// Why storage could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// redb's word for it: an I/O error, or damage that it found.
    #[error("{0}")]
    Redb(#[from] redb::Error),
    /// The file was written by another version of this engine.
    #[error(
        "format {found} is not one that this version reads (it reads {FORMAT_1}); open it with the version that wrote it"
    )]
    Format {
        /// The number found in the file.
        found: i64,
    },
}

/// What the storage of a directory is opened with and keeps.
#[derive(Debug)]
pub struct Storage {
    db: Database,
}

/// An immutable view of all keys after some batch of commits.
pub struct Snapshot {
    data: ReadOnlyTable<&'static [u8], &'static [u8]>,
}

impl Storage {
    /// Opens or creates the file, and returns with it the version ceiling that it holds (0 in a new file).
    pub fn open(file: &Path) -> Result<(Storage, i64), StorageError> {
        let db = Database::builder().set_cache_size(CACHE_BYTES).create(file).map_err(redb::Error::from)?;
        let storage = Storage { db };
        let ceiling = storage.initialise()?;
        Ok((storage, ceiling))
    }

    /// Creates the tables of a new file; checks the format of an old one.
    fn initialise(&self) -> Result<i64, StorageError> {
        let write = self.db.begin_write().map_err(redb::Error::from)?;
        let (format, ceiling) = {
            write.open_table(DATA).map_err(redb::Error::from)?;
            let mut meta = write.open_table(META).map_err(redb::Error::from)?;
            let read = |key| -> Result<Option<i64>, redb::Error> { Ok(meta.get(key)?.map(|v| v.value())) };
            let (format, ceiling) = (read(FORMAT)?, read(CEILING)?);
            if format.is_none() {
                meta.insert(FORMAT, FORMAT_1).map_err(redb::Error::from)?;
            }
            (format, ceiling)
        };
        match format {
            Some(FORMAT_1) => write.abort().map_err(redb::Error::from)?,
            Some(found) => return Err(StorageError::Format { found }),
            None => write.commit().map_err(redb::Error::from)?,
        }
        Ok(ceiling.unwrap_or(0))
    }

    /// The newest durable state.
    pub fn snapshot(&self) -> Result<Snapshot, StorageError> {
        let read = self.db.begin_read().map_err(redb::Error::from)?;
        let data = read.open_table(DATA).map_err(redb::Error::from)?;
        Ok(Snapshot { data })
    }

    /// Applies stamped mutations in order, and a new version ceiling if there is one; durable when it returns.
    pub fn apply(&self, mutations: &[Mutation], ceiling: Option<i64>) -> Result<(), StorageError> {
        self.write(mutations, ceiling).map_err(StorageError::Redb)
    }

    fn write(&self, mutations: &[Mutation], ceiling: Option<i64>) -> Result<(), redb::Error> {
        let write = self.db.begin_write()?;
        {
            let mut data = write.open_table(DATA)?;
            for mutation in mutations {
                apply_one(&mut data, mutation)?;
            }
            if let Some(ceiling) = ceiling {
                write.open_table(META)?.insert(CEILING, ceiling)?;
            }
        }
        write.commit()?;
        Ok(())
    }
}

fn apply_one(
    data: &mut Table<'_, &'static [u8], &'static [u8]>,
    mutation: &Mutation,
) -> Result<(), redb::Error> {
    match mutation {
        Mutation::Set { key, value } => {
            data.insert(key.as_slice(), value.as_slice())?;
        }
        Mutation::ClearRange { begin, end } if end.strip_prefix(begin.as_slice()) == Some(&[0]) => {
            data.remove(begin.as_slice())?;
        }
        Mutation::ClearRange { begin, end } => {
            data.retain_in::<&[u8], _>(begin.as_slice()..end.as_slice(), |_, _| false)?;
        }
        Mutation::Atomic { op, key, operand } => {
            let new = op.apply(data.get(key.as_slice())?.as_ref().map(redb::AccessGuard::value), operand);
            match new {
                Some(value) => data.insert(key.as_slice(), value.as_slice())?,
                None => data.remove(key.as_slice())?,
            };
        }
        Mutation::StampedKey { .. } | Mutation::StampedValue { .. } => {
            unreachable!("the committer stamps mutations before it applies them")
        }
    }
    Ok(())
}

impl Snapshot {
    /// The value of `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        let found = self.data.get(key).map_err(redb::Error::from)?;
        Ok(found.map(|value| Bytes::copy_from_slice(value.value())))
    }

    /// The rows of `[begin, end)`, from either side.
    pub fn range(&self, begin: &[u8], end: &[u8]) -> Result<Rows, StorageError> {
        if begin >= end {
            return Ok(Rows { rows: None });
        }
        let rows = self.data.range::<&[u8]>(begin..end).map_err(redb::Error::from)?;
        Ok(Rows { rows: Some(rows) })
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
}

impl Iterator for Rows {
    type Item = Result<Row, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rows.as_mut()?.next().map(|row| row.map_err(|e| StorageError::Redb(e.into())))
    }
}

impl DoubleEndedIterator for Rows {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.rows.as_mut()?.next_back().map(|row| row.map_err(|e| StorageError::Redb(e.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::atomic::AtomicOp;

    fn set(key: &[u8], value: &[u8]) -> Mutation {
        Mutation::Set { key: key.to_vec(), value: value.to_vec() }
    }

    #[test]
    fn mutations_apply_in_order_and_survive_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("data.redb");
        let (storage, ceiling) = Storage::open(&file).unwrap();
        assert_eq!(ceiling, 0);
        let before = storage.snapshot().unwrap();
        let clear = Mutation::ClearRange { begin: b"a".to_vec(), end: b"c".to_vec() };
        let add = Mutation::Atomic { op: AtomicOp::Add, key: b"n".to_vec(), operand: vec![2] };
        let batch =
            [set(b"a", b"1"), set(b"b", b"2"), set(b"c", b"3"), clear, add.clone(), add, set(b"a", b"4")];
        storage.apply(&batch, Some(77)).unwrap();
        assert_eq!(before.get(b"c").unwrap(), None, "a snapshot does not move");
        drop(before);
        drop(storage);

        let (storage, ceiling) = Storage::open(&file).unwrap();
        assert_eq!(ceiling, 77);
        let rows = storage.snapshot().unwrap().range(b"", b"\xff").unwrap();
        let rows: Vec<_> =
            rows.map(|row| row.map(|(k, v)| (k.value().to_vec(), v.value().to_vec())).unwrap()).collect();
        let expected = [(b"a", b"4".to_vec()), (b"c", b"3".to_vec()), (b"n", vec![4])];
        assert_eq!(rows, expected.map(|(k, v)| (k.to_vec(), v)));
    }

    #[test]
    fn a_file_that_is_no_database_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("data.redb");
        std::fs::write(&file, b"not a database, but long enough to look at".repeat(400)).unwrap();
        assert!(Storage::open(&file).is_err());
    }
}
