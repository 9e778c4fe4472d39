//! Durable storage of one directory: redb's file with a write-ahead log in front of it.
//!
//! When [`Storage::apply`] returns, a batch of commits is a record in the log and rows in the
//! active memtable. A little later a flusher thread writes the memtable to redb, in a transaction
//! that redb keeps in memory. When the log has no space for a batch, a checkpoint makes the batch
//! and everything before it durable in redb's file, and the log restarts at its beginning. Reads
//! use a [`Superversion`]: a read transaction of redb and the memtables that are newer than it.
//!
//! `docs/decisions/0011-log-before-redb.md` gives the reasons and says what survives which failure.

mod batch;
mod close_on_fork;
mod env;
mod error;
pub mod examine;
mod failure_latch;
mod known_length;
mod log;
pub mod memtable;
mod memtable_flusher;
mod mutation_evaluator;
mod snapshot;
mod space_reserve;
mod superversion;
#[cfg(test)]
mod tests;
mod tree;
pub mod undo_log;
pub mod versioned_reader;
mod write_path;

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use baton::Mutex;
use checked_pages::{Disk, FailureSink, OpenError, Overlay, Pages, RewritingDisk};
use mutant::mutant;

use crate::files::{RESERVE_FILE, create_file, private_options};
use crate::fork::CloseOnFork;
use env::{StorageEnv, SystemEnv};
use error::{failed, io_failure};
use log::{LOG_BOUNDS, Log, LogBounds};
use tree::{Tree, TreeCommit, TreeMeta, TreeWrites};
use undo_log::RetainedSegment;
use versioned_reader::VersionedReader;
use write_path::WritePath;

pub use batch::{Durability, WriteBatch};
pub use error::StorageError;
pub use failure_latch::FailureLatch;
pub use known_length::KnownLength;
pub use superversion::Superversion;
pub use write_path::{DiskSpace, FreeSpace, StorageUpdate, WrittenKeys};

/// Locks a file for this process before anything else is done with it.
pub type LockFile<'k> = dyn Fn(&Path, &File) -> Result<(), StorageError> + 'k;

/// The storage of a directory.
#[derive(Debug)]
pub struct Storage {
    write_path: Mutex<WritePath>,
    latch: Arc<FailureLatch>,
    /// A batch has failed, so redb's memory may hold changes that were not acknowledged.
    has_failed: AtomicBool,
    /// Writes stay in memory, because the disk was too full to open the database.
    is_read_only: bool,
    /// The data file and the log, if they are files.
    lengths: [Option<Arc<KnownLength>>; 2],
}

impl Storage {
    /// Creates an empty data file.
    pub fn create(file: &Path) -> Result<(), StorageError> {
        let latch = Arc::new(FailureLatch::new(file));
        let opened = create_file(file);
        let disk = opened.map_err(|source| io_failure(&latch, "create", &source))?;
        let pages = Pages::create(Box::new(disk), latch.clone());
        Tree::open(pages, latch, || ())?.create_tables()
    }

    /// Opens files that no other process can have open.
    #[cfg(test)]
    pub fn open(file: &Path, log: &Path) -> Result<(Storage, i64), StorageError> {
        Storage::open_locked(file, log, &|_, _| Ok(()))
    }

    /// Opens a data file and its log, and returns the version ceiling with them. Creates the log if
    /// the data file does not need an existing one. Calls `lock` with each file first.
    pub fn open_locked(file: &Path, log: &Path, lock: &LockFile<'_>) -> Result<(Storage, i64), StorageError> {
        let latch = Arc::new(FailureLatch::new(file));
        let disk = CloseOnFork::open(|| private_options().open(file)).map_err(StorageError::Unopened)?;
        lock(file, &disk)?;
        let data = Arc::new(KnownLength::new(disk).map_err(StorageError::Unopened)?);
        let disk = Box::new(Arc::clone(&data));
        let mut known_log = None;
        let space = space_reserve::SpaceReserve::open(disk, &file.with_file_name(RESERVE_FILE));
        let pages = open_pages(Box::new(Arc::clone(&space)), &latch)?;
        let log_latch = Arc::new(latch.for_file(log));
        let (mut storage, ceiling) =
            Storage::open_with(pages, latch, &log_latch, LOG_BOUNDS, Box::new(SystemEnv), |meta| {
                let disk = open_log(log, &log_latch, meta)?;
                lock(log, &disk)?;
                let disk =
                    KnownLength::new(disk).map_err(|source| io_failure(&log_latch, "open", &source))?;
                Ok(Box::new(Arc::clone(known_log.insert(Arc::new(disk)))))
            })?;
        storage.lengths = [Some(data), known_log];
        storage.write_path.get_mut().set_space_reserve(space);
        Ok((storage, ceiling))
    }

    /// Opens the same files on a disk that is too full for recovery to write. Writes stay in
    /// memory.
    pub fn open_read_only(
        file: &Path,
        log: &Path,
        lock: &LockFile<'_>,
    ) -> Result<(Storage, i64), StorageError> {
        let latch = Arc::new(FailureLatch::new(file));
        let log_latch = Arc::new(latch.for_file(log));
        let disk = CloseOnFork::open(|| private_options().open(file)).map_err(StorageError::Unopened)?;
        lock(file, &disk)?;
        let unread = |source| io_failure(&latch, "read", &source);
        let pages = open_pages(Box::new(Overlay::new(disk).map_err(unread)?), &latch)?;
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

    /// Opens these disks, which a simulation has made. An empty one gets its tables first.
    #[cfg(test)]
    pub fn open_disks<D: Disk + Clone>(data: &D, log: Box<dyn Disk>) -> Result<(Storage, i64), StorageError> {
        let latch = Arc::new(FailureLatch::new(Path::new("sim")));
        if data.len().is_ok_and(|len| len == 0) {
            let pages = Pages::create(Box::new(data.clone()), latch.clone());
            Tree::open(pages, Arc::clone(&latch), || ())?.create_tables()?;
        }
        let pages = open_pages(Box::new(data.clone()), &latch)?;
        // So short that it is filled, and grows, within a few batches.
        let bounds = LogBounds { first: 16 << 10, step: 16 << 10, most: 96 << 10 };
        let log_latch = Arc::new(latch.for_file(Path::new("log")));
        Storage::open_with(pages, latch, &log_latch, bounds, Box::new(SystemEnv), |_| Ok(log))
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
        let write_path = Mutex::new(WritePath::new(tree, log, meter, &meta, env)?);
        Ok((
            Storage {
                write_path,
                latch,
                has_failed: AtomicBool::new(false),
                is_read_only: false,
                lengths: [None, None],
            },
            meta.ceiling,
        ))
    }

    /// The latch that keeps the first failure of the files.
    pub fn latch(&self) -> &Arc<FailureLatch> {
        &self.latch
    }

    /// The data file and the log with their lengths; none of a database that is only read.
    pub fn lengths(&self) -> &[Option<Arc<KnownLength>>; 2] {
        &self.lengths
    }

    /// True if writes stay in memory, so that the database can only be read.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// The newest superversion.
    pub fn superversion(&self) -> Arc<Superversion> {
        Arc::clone(self.write_path.lock().superversion())
    }

    /// Reserves space in the data file for commits of `bytes` bytes. After the disk had no space for
    /// the reserve, tries again only if `asks_again`.
    pub fn reserve_space(&self, bytes: u64, free: FreeSpace, asks_again: bool) -> DiskSpace {
        self.write_path.lock().reserve_space(Storage::space_cost(bytes), free, asks_again)
    }

    /// True if only a checkpoint can make more space in the data file.
    pub fn needs_checkpoint_for_space(&self) -> bool {
        self.write_path.lock().needs_checkpoint_for_space()
    }

    /// Counts `cost` bytes of the data file for a commit that is admitted on a full disk.
    pub fn charge_space(&self, cost: u64) {
        self.write_path.lock().charge_space(cost);
    }

    /// Upper estimate of the bytes that commits of `bytes` bytes take in the data file. Pages are
    /// usually at least half full, and a small row such as a counter changes a page of its own.
    pub fn space_cost(bytes: u64) -> u64 {
        2 * bytes + (16 << 10)
    }

    /// Reads the newest state, including writes that clients cannot read yet.
    pub fn read_newest<T>(
        &self,
        read: impl FnOnce(&VersionedReader<'_>) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let superversion = self.superversion();
        superversion.read_newest(|newest| read(&newest))
    }

    /// Applies a batch, and returns when it has the wanted durability. After an error the batch may
    /// or may not be durable, and no further batch is accepted.
    pub fn apply(&self, batch: WriteBatch, durability: Durability) -> Result<StorageUpdate, StorageError> {
        self.unless_failed(|write_path| write_path.apply(batch, durability))
    }

    /// Flushes the log and writes the memtable to redb. The committer calls this when it is idle.
    pub fn flush_idle(&self) -> Result<StorageUpdate, StorageError> {
        self.unless_failed(WritePath::flush_idle)
    }

    /// Makes redb's file complete, so that the next process to open it need not read the log.
    pub fn checkpoint(&self) -> Result<StorageUpdate, StorageError> {
        self.unless_failed(WritePath::checkpoint)
    }

    /// Leaves memory that nothing reads any more to the flusher, which frees it after its next job:
    /// thousands of small pieces, for which commits would wait.
    pub fn retire(&self, retired: Vec<RetainedSegment>) {
        if !retired.is_empty() {
            self.write_path.lock().retire(retired);
        }
    }

    /// Frees what waits for the flusher.
    pub fn free_retired(&self) {
        let retired = self.write_path.lock().take_retired();
        drop(retired);
    }

    /// Adds what the storage holds.
    #[cfg(feature = "testing")]
    pub fn add_holdings(&self, holdings: &mut crate::engine::holdings::Holdings) {
        self.write_path.lock().add_holdings(holdings);
    }

    /// Accepts no more batches. The files keep everything that was acknowledged.
    pub fn stop_writes(&self) {
        self.has_failed.store(true, Ordering::Release);
    }

    /// Flushes acknowledged batches to the log, if that is still possible after the data file
    /// failed.
    pub fn flush_log(&self) {
        if !mutant("failure-leaves-log-unflushed") {
            let _ = self.write_path.lock().flush_log();
        }
    }

    fn unless_failed<T>(
        &self,
        work: impl FnOnce(&mut WritePath) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        // redb does not know about failures of the log.
        if let Some(failure) = self.latch.failure() {
            self.flush_log();
            return Err(StorageError::Failed(failure.clone()));
        }
        work(&mut self.write_path.lock()).inspect_err(|_| self.has_failed.store(true, Ordering::Release))
    }

    /// Makes redb's file complete. Until the next opening it needs no log.
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
        // After an error, the log holds everything that redb's file lacks.
        let _ = self.close();
    }
}

/// Opens the log, or creates it if redb's file does not need an existing one.
fn open_log(path: &Path, latch: &FailureLatch, meta: &TreeMeta) -> Result<CloseOnFork<File>, StorageError> {
    let file = match CloseOnFork::open(|| private_options().open(path)) {
        Err(source) if source.kind() == ErrorKind::NotFound && meta.anchor.is_none() => {
            let above = path.parent().unwrap_or(Path::new("."));
            let made = CloseOnFork::open(|| create_file(path));
            // The directory entry has to survive a power failure too.
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

/// Writes the log's batches to redb in one durable transaction, so that an interrupted recovery
/// starts again from the same state.
fn recover(
    tree: &Tree,
    log: &dyn Disk,
    latch: &FailureLatch,
    meta: TreeMeta,
) -> Result<TreeMeta, StorageError> {
    let Some((batch, lsn)) = unapplied_batches(log, latch, &meta)? else { return Ok(meta) };
    tree.apply(TreeWrites::of(&batch.mutations), batch.ceiling, lsn, TreeCommit::Recovery)?;
    tree.meta()
}

/// The batches of the log that redb's file lacks, merged into one, and the LSN of the last.
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
    // redb's file may contain batches of this log: after a failure of the log, closing redb makes
    // its memory durable.
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

/// Opens redb's file. Failures are kept in the latch.
fn open_pages(disk: Box<dyn Disk>, latch: &Arc<FailureLatch>) -> Result<Pages, StorageError> {
    Pages::open(disk, latch.clone()).map_err(|error| match error {
        OpenError::Foreign => StorageError::Foreign,
        OpenError::Format(found) => StorageError::Format { found },
        OpenError::Failed(error) => failed(latch, &error),
    })
}
