//! Durable storage: one file, one table of keys, one of bookkeeping.
//!
//! | file | what |
//! |---|---|
//! | here | opening, applying a batch of commits |
//! | `snapshot` | reading |
//! | `pages` | the file under redb: a checksum for every page |
//! | `layout`, `superblock`, `sums` | where pages, redb's header and the checksums lie |
//! | `trust` | what a crash may have left unmatched |
//! | `health` | the first failure, in words |
//! | `disk` | what is asked of a file |
//! | `examine`, `overlay` | looking at a whole file without changing it |
//!
//! A batch of commits is one redb write transaction, durable when [`Storage::apply`] returns: redb flushes once and
//! finds the newest whole commit by checksum after a crash. A [`Snapshot`] is a redb read transaction.

mod disk;
pub mod examine;
mod health;
mod layout;
#[cfg(test)]
mod measure;
mod overlay;
mod pages;
#[cfg(test)]
mod sim;
mod snapshot;
mod sums;
mod superblock;
#[cfg(test)]
mod tests;
mod trust;

use std::fs::OpenOptions;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use redb::{Database, ReadableDatabase, ReadableTable, Table, TableDefinition};

use super::history::Changes;
use super::mutation::Mutation;
use crate::error::Code;
use disk::Disk;
use pages::{Meter, Pages};
use superblock::FORMAT;

pub use health::{Failure, Health};
pub use snapshot::Snapshot;

type Keys = TableDefinition<'static, &'static [u8], &'static [u8]>;

const DATA: Keys = TableDefinition::new("data");
const META: TableDefinition<'static, &'static str, i64> = TableDefinition::new("meta");

/// `META`: no version above this one has been handed out to any client.
const CEILING: &str = "version-ceiling";

/// Memory that redb may use for pages, bytes. The operating system's page cache stands behind it.
const CACHE_BYTES: usize = 64 << 20;

/// Why storage could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The file is damaged, or the operating system refused an operation.
    #[error("{0}")]
    Failed(Failure),
    /// The operating system would not open the file, of which it says nothing.
    #[error("it cannot be opened: {0}")]
    Unopened(std::io::Error),
    /// redb's word for it.
    #[error("{0}")]
    Redb(#[from] redb::Error),
    /// redb gave up on a file in a way that it should not.
    #[error("the file is damaged: redb panicked on it; restore it from a copy")]
    Panicked,
    /// The file is something else.
    #[error("it is not a database of this engine; use another directory")]
    Foreign,
    /// The file was written by another version of this engine.
    #[error(
        "format {found} is not one that this version reads (it reads {FORMAT}); open it with the version that wrote it, \
         or move it away to begin an empty database"
    )]
    Format {
        /// The number found in the file.
        found: u32,
    },
}

impl StorageError {
    /// What a client is told.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            StorageError::Failed(failure) => failure.code,
            StorageError::Redb(redb::Error::Corrupted(_))
            | StorageError::Panicked
            | StorageError::Foreign
            | StorageError::Format { .. } => Code::FILE_CORRUPT,
            StorageError::Redb(_) | StorageError::Unopened(_) => Code::IO_ERROR,
        }
    }
}

/// What the storage of a directory is opened with and keeps.
#[derive(Debug)]
pub struct Storage {
    db: Database,
    health: Arc<Health>,
    meter: Arc<Meter>,
}

impl Storage {
    /// Makes a new file.
    pub fn create(file: &Path) -> Result<Storage, StorageError> {
        let health = Arc::new(Health::new(file));
        let opened = OpenOptions::new().read(true).write(true).create_new(true).open(file);
        let disk = opened.map_err(|source| refused(&health, "create", &source))?;
        let storage = Storage::with(Pages::create(Box::new(disk), Arc::clone(&health)), health, || ())?;
        storage.create_tables().map_err(|error| storage.explain(error))?;
        Ok(storage)
    }

    /// Opens a file, and returns with it the version ceiling that it holds.
    pub fn open(file: &Path) -> Result<(Storage, i64), StorageError> {
        let health = Arc::new(Health::new(file));
        let opened = OpenOptions::new().read(true).write(true).open(file);
        let disk = opened.map_err(StorageError::Unopened)?;
        Storage::open_on(Box::new(disk), health)
    }

    fn open_on(disk: Box<dyn Disk>, health: Arc<Health>) -> Result<(Storage, i64), StorageError> {
        let storage = Storage::with(Pages::open(disk, Arc::clone(&health))?, health, || ())?;
        let ceiling = storage.ceiling().map_err(|error| storage.explain(error))?;
        Ok((storage, ceiling))
    }

    /// `on_repair` is called when redb finds that the file was not closed after the last write to it.
    fn with(
        pages: Pages,
        health: Arc<Health>,
        on_repair: impl Fn() + 'static,
    ) -> Result<Storage, StorageError> {
        let (trust, meter) = (pages.trust(), pages.meter());
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        builder.set_repair_callback({
            let trust = Arc::clone(&trust);
            move |_| {
                trust.repair_begins();
                on_repair();
            }
        });
        // Pages are verified before redb sees them, but for those that it judges itself.
        let opened = catch_unwind(AssertUnwindSafe(|| builder.create_with_backend(pages)));
        trust.opened();
        let db =
            opened.map_err(|_| StorageError::Panicked)?.map_err(|error| explain(&health, error.into()))?;
        Ok(Storage { db, health, meter })
    }

    fn create_tables(&self) -> Result<(), redb::Error> {
        let write = self.db.begin_write()?;
        write.open_table(DATA)?;
        write.open_table(META)?;
        write.commit()?;
        Ok(())
    }

    fn ceiling(&self) -> Result<i64, redb::Error> {
        let meta = self.db.begin_read()?.open_table(META)?;
        Ok(meta.get(CEILING)?.map_or(0, |ceiling| ceiling.value()))
    }

    /// The state of the file.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    fn explain(&self, error: redb::Error) -> StorageError {
        explain(&self.health, error)
    }

    /// The newest durable state.
    pub fn snapshot(&self) -> Result<Snapshot, StorageError> {
        let open = || -> Result<_, redb::Error> { Ok(self.db.begin_read()?.open_table(DATA)?) };
        let data = open().map_err(|error| self.explain(error))?;
        Ok(Snapshot::new(data, Arc::clone(&self.health)))
    }

    /// Bytes written to the file so far.
    pub fn written(&self) -> u64 {
        self.meter.written.load(Ordering::Relaxed)
    }

    /// Length of the file, bytes.
    pub fn file_len(&self) -> u64 {
        self.meter.len.load(Ordering::Relaxed)
    }

    /// Applies stamped mutations in order, and a new version ceiling if there is one; durable when it returns what they
    /// changed.
    pub fn apply(&self, mutations: &[Mutation], ceiling: Option<i64>) -> Result<Changes, StorageError> {
        self.write(mutations, ceiling).map_err(|error| self.explain(error))
    }

    /// Saves what redb otherwise has to find out by walking through the file after a kill: which pages are free. Worth
    /// nothing any more after the next batch.
    pub fn settle(&self) -> Result<(), StorageError> {
        let settle = || -> Result<(), redb::Error> {
            let mut write = self.db.begin_write()?;
            write.set_quick_repair(true);
            write.commit()?;
            Ok(())
        };
        settle().map_err(|error| self.explain(error))
    }

    fn write(&self, mutations: &[Mutation], ceiling: Option<i64>) -> Result<Changes, redb::Error> {
        let mut changes = Changes::default();
        let write = self.db.begin_write()?;
        {
            let mut data = write.open_table(DATA)?;
            for mutation in mutations {
                apply_one(&mut data, mutation, &mut changes)?;
            }
            if let Some(ceiling) = ceiling {
                write.open_table(META)?.insert(CEILING, ceiling)?;
            }
        }
        write.commit()?;
        Ok(changes)
    }
}

type Data<'t> = Table<'t, &'static [u8], &'static [u8]>;

fn apply_one(data: &mut Data<'_>, mutation: &Mutation, changes: &mut Changes) -> Result<(), redb::Error> {
    match mutation {
        Mutation::Set { key, value } => put(data, key, Some(value), changes),
        Mutation::ClearRange { begin, end } if end.strip_prefix(begin.as_slice()) == Some(&[0]) => {
            put(data, begin, None, changes)
        }
        Mutation::ClearRange { begin, end } => {
            data.retain_in::<&[u8], _>(begin.as_slice()..end.as_slice(), |key, value| {
                changes.note(key, Some(value));
                false
            })?;
            Ok(())
        }
        Mutation::Atomic { op, key, operand } => {
            let new = op.apply(data.get(key.as_slice())?.as_ref().map(redb::AccessGuard::value), operand);
            put(data, key, new.as_deref(), changes)
        }
        Mutation::StampedKey { .. } | Mutation::StampedValue { .. } => {
            unreachable!("the committer stamps mutations before it applies them")
        }
    }
}

fn put(
    data: &mut Data<'_>,
    key: &[u8],
    value: Option<&[u8]>,
    changes: &mut Changes,
) -> Result<(), redb::Error> {
    let old = match value {
        Some(value) => data.insert(key, value)?,
        None => data.remove(key)?,
    };
    if value.is_some() || old.is_some() {
        changes.note(key, old.as_ref().map(redb::AccessGuard::value));
    }
    Ok(())
}

fn refused(health: &Health, operation: &str, source: &std::io::Error) -> StorageError {
    health.refused(operation, source);
    StorageError::Failed(health.failure().cloned().expect("it has just failed"))
}

/// The failure behind an error of redb's, which says no more than that there was one.
fn explain(health: &Health, error: redb::Error) -> StorageError {
    match health.failure() {
        Some(failure) => StorageError::Failed(failure.clone()),
        None => StorageError::Redb(error),
    }
}
