//! Durable storage: redb's file, and a log in front of it.
//!
//! | file | what |
//! |---|---|
//! | here | opening, applying a batch of commits, closing |
//! | `log/` | batches that redb's file does not have |
//! | `progress` | the way of a batch into the log, a delta, and redb |
//! | `outcome` | what a batch makes of a state, key by key |
//! | `applier` | the thread that puts groups of batches into redb |
//! | `state`, `snapshot` | what can be read |
//! | `tree` | redb: tables of keys and of bookkeeping |
//! | `pages` | the file under redb: a checksum for every page |
//! | `layout`, `superblock`, `sums` | where pages, redb's header and the checksums lie |
//! | `room` | space of the disk, and the reserve of it |
//! | `trust` | what a crash may have left unmatched |
//! | `health` | the first failure, in words |
//! | `disk` | what is asked of a file |
//! | `env` | the clock, random numbers, and the applier that is used |
//! | `rewrite` | a file that writes again what a failed flush has not written |
//! | `examine`, `overlay` | looking at a whole file without changing it |
//!
//! A batch of commits is a record in the log and rows of a delta in memory when [`Storage::apply`] returns. A little later it goes to redb
//! with others, in a write transaction that stays in memory. A batch for which the log has no room is committed by redb durably, and
//! with it all before it: then the log begins anew. A [`State`] is a read transaction of redb's and the deltas after it.
//! `docs/decisions/0011-log-before-redb.md` says why, and what is there after which failure.

mod applier;
mod disk;
mod env;
pub mod examine;
mod health;
mod layout;
mod log;
#[cfg(test)]
mod measure;
mod outcome;
mod overlay;
mod pages;
mod progress;
mod rewrite;
mod room;
#[cfg(test)]
mod sim;
mod snapshot;
mod state;
mod sums;
mod superblock;
#[cfg(test)]
mod tests;
mod tree;
mod trust;

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::directory::{make, private};
use super::history::Layer;
use super::mutation::Mutation;
use crate::error::Code;
use crate::fork::Own;
use crate::mutant::mutant;
use disk::Disk;
use env::{Env, System};
pub use log::is_full;
use log::{BOUNDS, Bounds, Log};
use overlay::Overlay;
use pages::{Pages, failed};
use progress::Progress;
use rewrite::Rewriting;
use superblock::{FORMAT, OLDEST};
use tree::{Commit, Known, Tree, Writes};

pub use health::{Failure, Health};
pub use progress::{Changed, Room, Touched};
pub use snapshot::Snapshot;
pub use state::State;

/// Memory that redb may use for pages, bytes. The operating system's page cache stands behind it.
const CACHE_BYTES: usize = 64 << 20;

/// The file that holds space for when the disk is full.
pub const RESERVE_FILE: &str = "reserve";

/// Bytes that redb writes to its file between two durable commits, at most: what its memory has no room for. Together with
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
        "format {found} is not one that this version reads (it reads {OLDEST} to {FORMAT}); open it with the version that wrote it, \
         or move it away to begin an empty database"
    )]
    Format {
        /// The number found in the file.
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
pub struct Batch {
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
    Written,
}

/// What a group of batches leaves when it is in redb.
#[derive(Debug)]
pub struct Applied {
    /// Bytes of rows that it added, less those that it removed.
    pub net: i64,
    /// What it changed, if that is not too much to keep.
    pub layer: Option<Layer>,
    /// The state after it.
    pub snapshot: Arc<Snapshot>,
}

/// What makes a file, which it is given with its path, this process's alone.
pub type Keep<'k> = dyn Fn(&Path, &File) -> Result<(), StorageError> + 'k;

/// The storage of a directory.
#[derive(Debug)]
pub struct Storage {
    progress: Mutex<Progress>,
    health: Arc<Health>,
    /// A batch has failed: what redb has in memory is not what was acknowledged.
    has_failed: AtomicBool,
    /// Nothing reaches the disk, which had no space for an opening.
    is_view: bool,
}

impl Storage {
    /// Makes a new file.
    pub fn create(file: &Path) -> Result<(), StorageError> {
        let health = Arc::new(Health::new(file));
        let opened = make(file);
        let disk = opened.map_err(|source| refused(&health, "create", &source))?;
        let pages = Pages::create(Box::new(disk), Arc::clone(&health));
        Tree::open(pages, health, || ())?.create_tables()
    }

    /// Opens files that nobody else can have open.
    #[cfg(test)]
    pub fn open(file: &Path, log: &Path) -> Result<(Storage, i64), StorageError> {
        Storage::open_kept(file, log, &|_, _| Ok(()))
    }

    /// Opens a file and its log, which is made if there has to be none yet, and returns with them the version ceiling. Each is given
    /// to `keep` before anything else is done with it, to be locked.
    pub fn open_kept(file: &Path, log: &Path, keep: &Keep<'_>) -> Result<(Storage, i64), StorageError> {
        let health = Arc::new(Health::new(file));
        let disk = Own::open(|| private().open(file)).map_err(StorageError::Unopened)?;
        keep(file, &disk)?;
        let room = room::Room::open(Box::new(disk), &file.with_file_name(RESERVE_FILE));
        let pages = Pages::open(Box::new(Arc::clone(&room)), Arc::clone(&health))?;
        let of_log = Arc::new(health.beside(log));
        let (mut storage, ceiling) =
            Storage::with(pages, health, &of_log, BOUNDS, Box::new(System), |known| {
                let disk = open_log(log, &of_log, known)?;
                keep(log, &disk)?;
                Ok(Box::new(disk))
            })?;
        storage.progress.get_mut().mind(room);
        Ok((storage, ceiling))
    }

    /// Opens the same as a view, where the disk has not the space that an opening takes: what is written stays in memory.
    pub fn open_view(file: &Path, log: &Path, keep: &Keep<'_>) -> Result<(Storage, i64), StorageError> {
        let health = Arc::new(Health::new(file));
        let of_log = Arc::new(health.beside(log));
        let disk = Own::open(|| private().open(file)).map_err(StorageError::Unopened)?;
        keep(file, &disk)?;
        let unread = |source| refused(&health, "read", &source);
        let pages = Pages::open(Box::new(Overlay::new(disk).map_err(unread)?), Arc::clone(&health))?;
        let (mut storage, ceiling) =
            Storage::with(pages, Arc::clone(&health), &of_log, BOUNDS, Box::new(System), |known| {
                let disk = open_log(log, &of_log, known)?;
                keep(log, &disk)?;
                Ok(Box::new(Overlay::new(disk).map_err(unread)?))
            })?;
        storage.is_view = true;
        Ok((storage, ceiling))
    }

    fn with(
        pages: Pages,
        health: Arc<Health>,
        of_log: &Arc<Health>,
        bounds: Bounds,
        env: Box<dyn Env>,
        open_log: impl FnOnce(&Known) -> Result<Box<dyn Disk>, StorageError>,
    ) -> Result<(Storage, i64), StorageError> {
        let meter = pages.meter();
        let tree = Arc::new(Tree::open(pages, Arc::clone(&health), || ())?);
        let known = tree.known()?;
        let disk = Box::new(Rewriting::new(open_log(&known)?));
        let known = catch_up(&tree, &*disk, of_log, known)?;
        let log = Log::new(disk, Arc::clone(of_log), known.log_len, bounds, env.random());
        let log = log.map_err(|error| failed(of_log, &error))?;
        let progress = Mutex::new(Progress::new(tree, log, meter, known.batch, env)?);
        Ok((Storage { progress, health, has_failed: AtomicBool::new(false), is_view: false }, known.ceiling))
    }

    /// The state of the files.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// True if nothing that is written to it reaches the disk: it is there to be read.
    pub fn is_view(&self) -> bool {
        self.is_view
    }

    /// What is to be read.
    pub fn state(&self) -> Arc<State> {
        Arc::clone(self.progress.lock().state())
    }

    /// Whether commits of `bytes` bytes find space in the data file, on a disk with `free` bytes. A disk that had none
    /// for the reserve is asked again if `asks_again`.
    pub fn make_room(&self, bytes: u64, free: u64, asks_again: bool) -> Room {
        self.progress.lock().make_room(Storage::cost(bytes), free, asks_again)
    }

    /// True if only a checkpoint can make more space in the data file.
    pub fn is_crowded(&self) -> bool {
        self.progress.lock().is_crowded()
    }

    /// A commit that was admitted after [`Storage::make_room`] found no space takes so many bytes in the data file.
    pub fn use_room(&self, cost: u64) {
        self.progress.lock().use_room(cost);
    }

    /// Bytes of the data file that commits of `bytes` bytes may take: pages are half full at worst, mostly, and counters and other
    /// small rows have a page of their own to change.
    pub fn cost(bytes: u64) -> u64 {
        2 * bytes + (16 << 10)
    }

    /// Reads the newest state, whether clients can read it yet or not.
    pub fn weigh<T>(
        &self,
        read: impl FnOnce(&super::reading::At<'_>) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let state = self.state();
        state.newest(|newest| read(&newest))
    }

    /// Applies a batch; it is as durable as wanted when this returns. After an error it may be, and no further batch is taken.
    pub fn apply(&self, batch: Batch, durability: Durability) -> Result<Changed, StorageError> {
        self.unless_failed(|progress| progress.apply(batch, durability))
    }

    /// Flushes what was only written, and gives redb what it does not have.
    pub fn rest(&self) -> Result<Changed, StorageError> {
        self.unless_failed(Progress::rest)
    }

    /// Leaves nothing in the log, so that whoever opens the file next need not read it.
    pub fn settle(&self) -> Result<Changed, StorageError> {
        self.unless_failed(Progress::settle)
    }

    /// Takes no more batches, and leaves the files as they are: what was acknowledged is in them.
    pub fn give_up(&self) {
        self.has_failed.store(true, Ordering::Release);
    }

    /// Flushes what was acknowledged and not flushed, as far as that is still possible after a failure of the other file.
    pub fn flush_log(&self) {
        if !mutant("failure-leaves-log-unflushed") {
            let _ = self.progress.lock().flush_log();
        }
    }

    fn unless_failed<T>(
        &self,
        work: impl FnOnce(&mut Progress) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        // redb does not know what has happened to the log.
        if let Some(failure) = self.health.failure() {
            self.flush_log();
            return Err(StorageError::Failed(failure.clone()));
        }
        work(&mut self.progress.lock()).inspect_err(|_| self.has_failed.store(true, Ordering::Release))
    }

    /// Makes everything durable in redb's file: until it is opened again it needs no log.
    fn close(&self) -> Result<(), StorageError> {
        if self.is_view {
            return Ok(());
        }
        if self.has_failed.load(Ordering::Acquire) || self.health.failure().is_some() {
            self.flush_log();
            return Ok(());
        }
        self.progress.lock().close()
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // What is not in redb's file after an error is in the log.
        let _ = self.close();
    }
}

/// Opens the log of a file, or makes it, if it holds nothing that is needed.
fn open_log(path: &Path, health: &Health, known: &Known) -> Result<Own<File>, StorageError> {
    let file = match Own::open(|| private().open(path)) {
        Err(source) if source.kind() == ErrorKind::NotFound && known.mark.is_none() => {
            let above = path.parent().unwrap_or(Path::new("."));
            let made = Own::open(|| make(path));
            // A file whose name is lost with the power is lost.
            made.and_then(|file| File::open(above)?.sync_all().map(|()| file))
                .map_err(|source| refused(health, "create", &source))?
        }
        Err(source) if source.kind() == ErrorKind::NotFound => return Err(failed(health, &missing(health))),
        opened => opened.map_err(|source| refused(health, "open", &source))?,
    };
    Ok(file)
}

fn missing(health: &Health) -> std::io::Error {
    health.missing("the newest commits are in it; put it back, or restore the whole directory from a copy")
}

/// Applies what is in the log and not in redb's file, durably: a second attempt finds all of it done, or nothing.
fn catch_up(tree: &Tree, log: &dyn Disk, health: &Health, known: Known) -> Result<Known, StorageError> {
    let Some((batch, number)) = left_in_log(log, health, &known)? else { return Ok(known) };
    tree.apply(Writes::of(&batch.mutations), batch.ceiling, number, Commit::AndEnd)?;
    tree.known()
}

/// The batches that are in the log and not in redb's file, as one, and the number of the last.
fn left_in_log(log: &dyn Disk, health: &Health, known: &Known) -> Result<Option<(Batch, u64)>, StorageError> {
    let Some(mark) = known.mark else { return Ok(None) };
    let read = || {
        let mut bytes = vec![0; usize::try_from(log.len()?.min(mark.len)).unwrap_or(usize::MAX)];
        log.read_at(0, &mut bytes).map(|()| bytes)
    };
    let bytes = read().map_err(|source| refused(health, "read", &source))?;
    // redb's file may have batches of this log: redb makes durable what it holds in memory when it is closed after a failure of the log.
    let applied = if mutant("log-is-applied-twice") { mark.generation } else { known.batch };
    let found = log::scan::scan(&bytes, &mark, applied);
    let found = found.map_err(|wrong| failed(health, &health.damaged(&wrong.to_string())))?;
    let number = found.last().map(|last| last.number);
    let mut all = Batch::default();
    for log::scan::Found { batch, .. } in found {
        all.ceiling = batch.ceiling.or(all.ceiling);
        all.mutations.extend(batch.mutations);
    }
    Ok(number.map(|number| (all, number)))
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
