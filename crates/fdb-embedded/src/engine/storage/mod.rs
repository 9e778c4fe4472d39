//! Durable storage: redb's file, and a log in front of it.
//!
//! | file | what |
//! |---|---|
//! | here | opening, applying a batch of commits, closing |
//! | `log/` | batches that redb's file does not have |
//! | `write_path` | the way of a batch into the log, a memtable, and redb |
//! | `outcome` | what a batch makes of a state, key by key |
//! | `flusher` | the thread that puts groups of batches into redb |
//! | `state`, `snapshot` | what can be read |
//! | `tree` | redb: tables of keys and of bookkeeping |
//! | `pages` | the file under redb: a checksum for every page |
//! | `layout`, `superblock`, `sums` | where pages, redb's header and the checksums lie |
//! | `space` | space of the disk, and the reserve of it |
//! | `policy` | what a crash may have left unmatched |
//! | `latch` | the first failure, in words |
//! | `disk` | what is asked of a file |
//! | `env` | the clock, random numbers, and the flusher that is used |
//! | `rewrite` | a file that writes again what a failed flush has not written |
//! | `examine`, `overlay` | looking at a whole file without changing it |
//!
//! A batch of commits is a record in the log and rows of a memtable in memory when [`Storage::apply`] returns. A little later it goes to redb
//! with others, in a write transaction that stays in memory. A batch for which the log has no space is committed by redb durably, and
//! with it all before it: then the log begins anew. A [`Superversion`] is a read transaction of redb's and the memtables after it.
//! `docs/decisions/0011-log-before-redb.md` says why, and what is there after which failure.

mod disk;
mod env;
pub mod examine;
mod failure_latch;
mod layout;
mod log;
#[cfg(test)]
mod measure;
mod memtable_flusher;
mod mutation_evaluator;
mod overlay;
mod page_checksums;
mod pages;
mod recovery_policy;
mod rewriting_disk;
#[cfg(test)]
mod sim;
mod snapshot;
mod space_reserve;
mod superblock;
mod superversion;
#[cfg(test)]
mod tests;
mod tree;
mod write_path;

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::directory::{create_file, private_options};
use super::mutation::Mutation;
use super::undo_log::UndoSegment;
use crate::error::Code;
use crate::fork::Own;
use crate::mutant::mutant;
use disk::Disk;
use env::{StorageEnv, SystemEnv};
pub use log::is_full;
use log::{LOG_BOUNDS, Log, LogBounds};
use overlay::Overlay;
use pages::{Pages, failed};
use rewriting_disk::RewritingDisk;
use superblock::{FORMAT, OLDEST_FORMAT};
use tree::{Tree, TreeCommit, TreeMeta, TreeWrites};
use write_path::WritePath;

pub use failure_latch::{Failure, FailureLatch};
pub use snapshot::Snapshot;
pub use superversion::Superversion;
pub use write_path::{DiskSpace, StorageUpdate, WrittenKeys};

/// Memory that redb may use for pages, bytes. The operating system's page cache stands behind it.
const CACHE_BYTES: usize = 64 << 20;

/// The file that holds space for when the disk is full.
pub const RESERVE_FILE: &str = "reserve";

/// Bytes that redb writes to its file between two durable commits, at most: what its memory has no space for. Together with
/// that memory, half of [`CACHE_BYTES`], it is what such a commit has to flush while others wait.
const MAX_UNFLUSHED: u64 = 16 << 20;

/// Why storage could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The file is damaged, or the operating system refused an operation.
    #[error("{0}")]
    Failed(Failure),
    /// The operating system would not open the file, of which it says nothing.
    #[error("it cannot be opened: {0}")]
    Unopened(std::io::Error),
    /// Another process has locked the file.
    #[error("another process has it locked; stop that one, or use another directory")]
    Held,
    /// No thread could be started.
    #[error("no thread could be started: {0}; check the limits of processes and memory")]
    NoThread(std::io::Error),
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
        "format {found} is not one that this version reads (it reads {OLDEST_FORMAT} to {FORMAT}); open it with the version that wrote it, \
         or move it away to begin an empty database"
    )]
    Format {
        /// The lsn found in the file.
        found: u32,
    },
}

impl StorageError {
    /// True if the disk had no space.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, StorageError::Failed(failure) if failure.is_full)
    }

    /// What a client is told.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            StorageError::Failed(failure) => failure.code,
            StorageError::Redb(redb::Error::Corrupted(_))
            | StorageError::Panicked
            | StorageError::Foreign
            | StorageError::Format { .. } => Code::FILE_CORRUPT,
            StorageError::Held => Code::LOCK_FILE_FAILURE,
            StorageError::Redb(_) | StorageError::Unopened(_) | StorageError::NoThread(_) => Code::IO_ERROR,
        }
    }
}

/// What a batch of commits changes, in order, and the versions that go with it.
#[derive(Debug, Default, PartialEq)]
pub struct WriteBatch {
    /// The version of its commits.
    pub version: i64,
    /// A new version ceiling, if there is one.
    pub ceiling: Option<i64>,
    /// The changes, stamped.
    pub mutations: Vec<Mutation>,
}

/// What a batch has to have come through before anybody is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It is on the disk.
    Flushed,
    /// The operating system has it: it survives the end of any process, and not that of the machine. What comes after it is never
    /// on the disk without it.
    Asynchronous,
}

/// What a group of batches leaves when it is in redb.
#[derive(Debug)]
pub struct FlushedTree {
    /// Bytes of rows that it added, less those that it removed.
    pub size_change: i64,
    /// What it changed, if that is not too much to keep.
    pub undo: Option<UndoSegment>,
    /// The state after it.
    pub snapshot: Arc<Snapshot>,
}

/// What makes a file, which it is given with its path, this process's alone.
pub type LockFile<'k> = dyn Fn(&Path, &File) -> Result<(), StorageError> + 'k;

/// The storage of a directory.
#[derive(Debug)]
pub struct Storage {
    write_path: Mutex<WritePath>,
    latch: Arc<FailureLatch>,
    /// A batch has failed: what redb has in memory is not what was acknowledged.
    has_failed: AtomicBool,
    /// Nothing reaches the disk, which had no space for an opening.
    is_read_only: bool,
}

impl Storage {
    /// Makes a new file.
    pub fn create(file: &Path) -> Result<(), StorageError> {
        let latch = Arc::new(FailureLatch::new(file));
        let opened = create_file(file);
        let disk = opened.map_err(|source| io_failure(&latch, "create", &source))?;
        let pages = Pages::create(Box::new(disk), Arc::clone(&latch));
        Tree::open(pages, latch, || ())?.create_tables()
    }

    /// Opens files that nobody else can have open.
    #[cfg(test)]
    pub fn open(file: &Path, log: &Path) -> Result<(Storage, i64), StorageError> {
        Storage::open_locked(file, log, &|_, _| Ok(()))
    }

    /// Opens a file and its log, which is made if there has to be none yet, and returns with them the version ceiling. Each is given
    /// to `keep` before anything else is done with it, to be locked.
    pub fn open_locked(file: &Path, log: &Path, lock: &LockFile<'_>) -> Result<(Storage, i64), StorageError> {
        let latch = Arc::new(FailureLatch::new(file));
        let disk = Own::open(|| private_options().open(file)).map_err(StorageError::Unopened)?;
        lock(file, &disk)?;
        let space = space_reserve::SpaceReserve::open(Box::new(disk), &file.with_file_name(RESERVE_FILE));
        let pages = Pages::open(Box::new(Arc::clone(&space)), Arc::clone(&latch))?;
        let log_latch = Arc::new(latch.for_file(log));
        let (mut storage, ceiling) =
            Storage::open_with(pages, latch, &log_latch, LOG_BOUNDS, Box::new(SystemEnv), |meta| {
                let disk = open_log(log, &log_latch, meta)?;
                lock(log, &disk)?;
                Ok(Box::new(disk))
            })?;
        storage.write_path.get_mut().set_space_reserve(space);
        Ok((storage, ceiling))
    }

    /// Opens the same as a view, where the disk has not the space that an opening takes: what is written stays in memory.
    pub fn open_read_only(
        file: &Path,
        log: &Path,
        lock: &LockFile<'_>,
    ) -> Result<(Storage, i64), StorageError> {
        let latch = Arc::new(FailureLatch::new(file));
        let log_latch = Arc::new(latch.for_file(log));
        let disk = Own::open(|| private_options().open(file)).map_err(StorageError::Unopened)?;
        lock(file, &disk)?;
        let unread = |source| io_failure(&latch, "read", &source);
        let pages = Pages::open(Box::new(Overlay::new(disk).map_err(unread)?), Arc::clone(&latch))?;
        let (mut storage, ceiling) = Storage::open_with(
            pages,
            Arc::clone(&latch),
            &log_latch,
            LOG_BOUNDS,
            Box::new(SystemEnv),
            |meta| {
                let disk = open_log(log, &log_latch, meta)?;
                lock(log, &disk)?;
                Ok(Box::new(Overlay::new(disk).map_err(unread)?))
            },
        )?;
        storage.is_read_only = true;
        Ok((storage, ceiling))
    }

    fn open_with(
        pages: Pages,
        latch: Arc<FailureLatch>,
        log_latch: &Arc<FailureLatch>,
        bounds: LogBounds,
        env: Box<dyn StorageEnv>,
        open_log: impl FnOnce(&TreeMeta) -> Result<Box<dyn Disk>, StorageError>,
    ) -> Result<(Storage, i64), StorageError> {
        let meter = pages.meter();
        let tree = Arc::new(Tree::open(pages, Arc::clone(&latch), || ())?);
        let meta = tree.meta()?;
        let disk = Box::new(RewritingDisk::new(open_log(&meta)?));
        let meta = recover(&tree, &*disk, log_latch, meta)?;
        let log = Log::new(disk, Arc::clone(log_latch), meta.log_len, bounds, env.random());
        let log = log.map_err(|error| failed(log_latch, &error))?;
        let write_path = Mutex::new(WritePath::new(tree, log, meter, meta.batch, env)?);
        Ok((
            Storage { write_path, latch, has_failed: AtomicBool::new(false), is_read_only: false },
            meta.ceiling,
        ))
    }

    /// The state of the files.
    pub fn latch(&self) -> &Arc<FailureLatch> {
        &self.latch
    }

    /// True if nothing that is written to it reaches the disk: it is there to be read.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// What is to be read.
    pub fn superversion(&self) -> Arc<Superversion> {
        Arc::clone(self.write_path.lock().superversion())
    }

    /// Whether commits of `bytes` bytes find space in the data file, on a disk with `free` bytes. A disk that had none
    /// for the reserve is asked again if `asks_again`.
    pub fn reserve_space(&self, bytes: u64, free: u64, asks_again: bool) -> DiskSpace {
        self.write_path.lock().reserve_space(Storage::space_cost(bytes), free, asks_again)
    }

    /// True if only a checkpoint can make more space in the data file.
    pub fn needs_checkpoint_for_space(&self) -> bool {
        self.write_path.lock().needs_checkpoint_for_space()
    }

    /// A commit that was admitted after [`Storage::reserve_space`] found no space takes so many bytes in the data file.
    pub fn charge_space(&self, cost: u64) {
        self.write_path.lock().charge_space(cost);
    }

    /// Bytes of the data file that commits of `bytes` bytes may take: pages are half full at worst, mostly, and counters and other
    /// small rows have a page of their own to change.
    pub fn space_cost(bytes: u64) -> u64 {
        2 * bytes + (16 << 10)
    }

    /// Reads the newest state, whether clients can read it yet or not.
    pub fn read_newest<T>(
        &self,
        read: impl FnOnce(&super::versioned_reader::VersionedReader<'_>) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let superversion = self.superversion();
        superversion.read_newest(|newest| read(&newest))
    }

    /// Applies a batch; it is as durable as wanted when this returns. After an error it may be, and no further batch is taken.
    pub fn apply(&self, batch: WriteBatch, durability: Durability) -> Result<StorageUpdate, StorageError> {
        self.unless_failed(|write_path| write_path.apply(batch, durability))
    }

    /// Flushes what was only written, and gives redb what it does not have.
    pub fn flush_idle(&self) -> Result<StorageUpdate, StorageError> {
        self.unless_failed(WritePath::flush_idle)
    }

    /// Leaves nothing in the log, so that whoever opens the file next need not read it.
    pub fn checkpoint(&self) -> Result<StorageUpdate, StorageError> {
        self.unless_failed(WritePath::checkpoint)
    }

    /// Takes no more batches, and leaves the files as they are: what was acknowledged is in them.
    pub fn stop_writes(&self) {
        self.has_failed.store(true, Ordering::Release);
    }

    /// Flushes what was acknowledged and not flushed, as far as that is still possible after a failure of the other file.
    pub fn flush_log(&self) {
        if !mutant("failure-leaves-log-unflushed") {
            let _ = self.write_path.lock().flush_log();
        }
    }

    fn unless_failed<T>(
        &self,
        work: impl FnOnce(&mut WritePath) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        // redb does not know what has happened to the log.
        if let Some(failure) = self.latch.failure() {
            self.flush_log();
            return Err(StorageError::Failed(failure.clone()));
        }
        work(&mut self.write_path.lock()).inspect_err(|_| self.has_failed.store(true, Ordering::Release))
    }

    /// Makes everything durable in redb's file: until it is opened again it needs no log.
    fn close(&self) -> Result<(), StorageError> {
        if self.is_read_only {
            return Ok(());
        }
        if self.has_failed.load(Ordering::Acquire) || self.latch.failure().is_some() {
            self.flush_log();
            return Ok(());
        }
        self.write_path.lock().close()
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // What is not in redb's file after an error is in the log.
        let _ = self.close();
    }
}

/// Opens the log of a file, or makes it, if it holds nothing that is needed.
fn open_log(path: &Path, latch: &FailureLatch, meta: &TreeMeta) -> Result<Own<File>, StorageError> {
    let file = match Own::open(|| private_options().open(path)) {
        Err(source) if source.kind() == ErrorKind::NotFound && meta.anchor.is_none() => {
            let above = path.parent().unwrap_or(Path::new("."));
            let made = Own::open(|| create_file(path));
            // A file whose name is lost with the power is lost.
            made.and_then(|file| File::open(above)?.sync_all().map(|()| file))
                .map_err(|source| io_failure(latch, "create", &source))?
        }
        Err(source) if source.kind() == ErrorKind::NotFound => return Err(failed(latch, &missing(latch))),
        opened => opened.map_err(|source| io_failure(latch, "open", &source))?,
    };
    Ok(file)
}

fn missing(latch: &FailureLatch) -> std::io::Error {
    latch.missing("the newest commits are in it; put it back, or restore the whole directory from a copy")
}

/// Applies what is in the log and not in redb's file, durably: a second attempt finds all of it done, or nothing.
fn recover(
    tree: &Tree,
    log: &dyn Disk,
    latch: &FailureLatch,
    meta: TreeMeta,
) -> Result<TreeMeta, StorageError> {
    let Some((batch, lsn)) = unapplied_batches(log, latch, &meta)? else { return Ok(meta) };
    tree.apply(TreeWrites::of(&batch.mutations), batch.ceiling, lsn, TreeCommit::FinalCheckpoint)?;
    tree.meta()
}

/// The batches that are in the log and not in redb's file, as one, and the lsn of the last.
fn unapplied_batches(
    log: &dyn Disk,
    latch: &FailureLatch,
    meta: &TreeMeta,
) -> Result<Option<(WriteBatch, u64)>, StorageError> {
    let Some(anchor) = meta.anchor else { return Ok(None) };
    let read = || {
        let mut bytes = vec![0; usize::try_from(log.len()?.min(anchor.len)).unwrap_or(usize::MAX)];
        log.read_at(0, &mut bytes).map(|()| bytes)
    };
    let bytes = read().map_err(|source| io_failure(latch, "read", &source))?;
    // redb's file may have batches of this log: redb makes durable what it holds in memory when it is closed after a failure of the log.
    let applied = if mutant("log-is-applied-twice") { anchor.checkpoint_lsn } else { meta.batch };
    let found = log::scan::scan(&bytes, &anchor, applied);
    let found = found.map_err(|wrong| failed(latch, &latch.damaged(&wrong.to_string())))?;
    let lsn = found.last().map(|last| last.lsn);
    let mut all = WriteBatch::default();
    for log::scan::LoggedBatch { batch, .. } in found {
        all.ceiling = batch.ceiling.or(all.ceiling);
        all.mutations.extend(batch.mutations);
    }
    Ok(lsn.map(|lsn| (all, lsn)))
}

fn io_failure(latch: &FailureLatch, operation: &str, source: &std::io::Error) -> StorageError {
    latch.io_error(operation, source);
    StorageError::Failed(latch.failure().cloned().expect("it has just failed"))
}

/// The failure behind an error of redb's, which says no more than that there was one.
fn with_cause(latch: &FailureLatch, error: redb::Error) -> StorageError {
    match latch.failure() {
        Some(failure) => StorageError::Failed(failure.clone()),
        None => StorageError::Redb(error),
    }
}
