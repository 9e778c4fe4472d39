//! Backup: copies an open database at one version while it is used.
//!
//! ```text
//! the host, or a guest of it          DIR.partial              DIR
//! pin a version -> rows, in pages --> an ordinary database --> checked, renamed
//! ```
//! The calling process writes the copy, so the copy belongs to its user. The copy is an ordinary
//! database directory: to restore it, open it, or move it to the original place. An interrupted
//! backup leaves `DIR.partial` and no `DIR`; the next backup to `DIR` starts again.
//!
//! During a backup the host keeps the pages that later commits free, so its file grows by what is
//! written meanwhile. When its disk is short of space it lets them go, and the backup fails.

use baton::thread;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::doctor::{self, Severity};
use crate::engine::mutation::Mutation;
use crate::engine::{Directory, OpenError, StorageError, storage};
use crate::error::Code;
use crate::files::{DATA_FILE, LOG_FILE, exists};
use crate::limits::MAX_PINNED_VIEWS;
use crate::link::{Link, View};
use crate::range_set::key_after;
use crate::rows::{Direction, FetchHint};

/// Rows read at a time and then written durably: as many as a host sends at once.
const PAGE: FetchHint = FetchHint { rows: 1 << 16, bytes: 4 << 20 };

/// Above all keys.
const END: &[u8] = &[0xff; 64];

/// The size of a copy, so far or at the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackupStats {
    /// The version of the copy. It contains everything that was acknowledged before the backup
    /// began.
    pub version: i64,
    /// Rows.
    pub rows: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// The step of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackupStep {
    /// Waiting for the process that hosts the database, or opening the database.
    Waiting,
    /// Copying; so much has been copied.
    Copying(BackupStats),
    /// Reading the finished copy to check it.
    Checking,
}

/// Called with each step. The backup is cancelled if it breaks.
type ProgressFn<'p> = &'p mut dyn FnMut(BackupStep) -> ControlFlow<()>;

/// The pause before a version is pinned again because its host ended.
const PIN_RETRY_DELAY: Duration = Duration::from_millis(20);

/// How often a long step is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Why a backup failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is no database to copy.
    #[error("there is no database in {path}: it has no {DATA_FILE}", path = .0.display())]
    NoDatabase(PathBuf),
    /// The target exists. It is not overwritten.
    #[error("{path} exists and is not an empty directory; name one that does not exist", path = .0.display())]
    Exists(PathBuf),
    /// The target is inside the database's directory.
    #[error(
        "cannot make a copy in {path}: it is inside the database's own directory, and is lost with that; name a place outside of it, on \
         another disk if there is one",
        path = .0.display()
    )]
    Inside(PathBuf),
    /// The path does not end in a name.
    #[error("{path:?} has no name that a directory could get; name one that does not exist", path = .0)]
    NoName(PathBuf),
    /// The database cannot be opened.
    #[error("{0}")]
    Open(OpenError),
    /// The target directory cannot be created.
    #[error("{0}")]
    Target(OpenError),
    /// The thread for a step cannot be started.
    #[error("cannot start a thread")]
    NoThread(#[source] io::Error),
    /// Too many backups of this database are running.
    #[error("{MAX_PINNED_VIEWS} copies of this database are being made; wait for one of them")]
    Busy,
    /// The database cannot be read.
    #[error("the database cannot be read: {0}")]
    Unreadable(Code),
    /// The host has ended during the backup, or needed the space of the version that was copied.
    #[error(
        "the version that was being copied is lost: the process that hosts the database ended, or its disk needed the \
         space; make sure that the disk has space, and copy it again"
    )]
    Lost,
    /// The copy cannot be written. The source names the file.
    #[error("cannot write the copy, which is removed")]
    Storage {
        /// The error of the storage.
        source: StorageError,
    },
    /// An operation on a file failed.
    #[error("cannot write {path}", path = path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The check found that the copy is not what was written.
    #[error("the copy at {path} is not sound: {text}; check that disk", path = path.display())]
    Unsound {
        /// The path of the copy.
        path: PathBuf,
        /// The finding of the check.
        text: String,
    },
}

/// Why a backup ended early.
enum BackupEnd {
    /// `progress` has cancelled it.
    Cancelled,
    Failed(BackupError),
}

impl From<BackupError> for BackupEnd {
    fn from(error: BackupError) -> BackupEnd {
        BackupEnd::Failed(error)
    }
}

/// True if the directory has a database, sound or not. Opening a directory without one creates it.
#[must_use]
pub fn is_database(directory: &Path) -> bool {
    // If a file cannot be examined, opening the database reports why.
    [DATA_FILE, LOG_FILE].iter().any(|file| !matches!(exists(&directory.join(file)), Ok(false)))
}

/// Copies the database in directory `from` to the new directory `to`, and checks the copy.
///
/// Calls `progress` several times a second, also while it waits for another process. If `progress`
/// breaks, the backup is cancelled, its copy is removed, and the result is `None`.
pub fn backup(
    from: &Path,
    to: &Path,
    progress: &mut dyn FnMut(BackupStep) -> ControlFlow<()>,
) -> Result<Option<BackupStats>, BackupError> {
    match copy_to(from, to, progress) {
        Ok(copied) => Ok(Some(copied)),
        Err(BackupEnd::Cancelled) => Ok(None),
        Err(BackupEnd::Failed(error)) => Err(error),
    }
}

fn copy_to(from: &Path, to: &Path, progress: ProgressFn<'_>) -> Result<BackupStats, BackupEnd> {
    if !is_database(from) {
        return Err(BackupError::NoDatabase(from.to_path_buf()).into());
    }
    let partial = partial(to)?;
    if is_inside(from, to) {
        return Err(BackupError::Inside(to.to_path_buf()).into());
    }
    let directory = from.to_path_buf();
    let link = run_cancellable(move || Link::open(&directory), BackupStep::Waiting, progress)?;
    let link = link.map_err(BackupError::Open)?;
    let view = pin(&link, progress)?;
    let copy = CopyTarget::begin(&partial)?;
    let copied = match fill(view, copy, &partial, progress) {
        Ok(copied) => copied,
        Err(ended) => {
            // The partial copy may be what fills the disk.
            let removed = fs::remove_dir_all(&partial).map_err(|source| io_at(&partial, source));
            // The reason of a failure matters more than an error of the removal.
            if matches!(ended, BackupEnd::Cancelled) {
                removed?;
            }
            return Err(ended);
        }
    };
    fs::rename(&partial, to).map_err(|source| io_at(to, source))?;
    let above = to.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(above).and_then(|above| above.sync_all()).map_err(|source| io_at(above, source))?;
    Ok(copied)
}

/// Copies the rows, and checks the copy.
fn fill(
    view: View,
    copy: CopyTarget,
    partial: &Path,
    progress: ProgressFn<'_>,
) -> Result<BackupStats, BackupEnd> {
    let copied = copy_rows(&view, &copy, progress)?;
    // The host need not keep the version during the check.
    drop(view);
    drop(copy);
    let place = partial.to_path_buf();
    run_cancellable(move || check(&place, copied.rows), BackupStep::Checking, progress)??;
    Ok(copied)
}

/// Runs `work` on its own thread, so that it can be cancelled. The thread then continues until its
/// work is done.
fn run_cancellable<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    step: BackupStep,
    progress: ProgressFn<'_>,
) -> Result<T, BackupEnd> {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::Builder::new().name("fdb-backup".to_owned()).spawn(move || {
        // The receiver is dropped if the work was cancelled.
        drop(sender.send(work()));
    });
    thread.map_err(BackupError::NoThread)?;
    match wait(&receiver, step, progress)? {
        Some(done) => Ok(done),
        None => Err(BackupError::Unreadable(Code::INTERNAL_ERROR).into()),
    }
}

/// Waits until something is sent or the sender is dropped.
fn wait<T>(
    receiver: &Receiver<T>,
    step: BackupStep,
    progress: ProgressFn<'_>,
) -> Result<Option<T>, BackupEnd> {
    loop {
        match receiver.recv_timeout(PROGRESS_INTERVAL) {
            Ok(sent) => return Ok(Some(sent)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                if progress(step).is_break() {
                    return Err(BackupEnd::Cancelled);
                }
            }
        }
    }
}

/// True if `place`, which may not exist yet, is inside the directory, through whatever links.
fn is_inside(directory: &Path, place: &Path) -> bool {
    let (Ok(directory), Ok(place)) = (directory.canonicalize(), std::path::absolute(place)) else {
        return false;
    };
    place
        .ancestors()
        .find_map(|above| above.canonicalize().ok())
        .is_some_and(|above| above.starts_with(directory))
}

/// The directory in which the copy is made.
fn partial(to: &Path) -> Result<PathBuf, BackupError> {
    let is_free = match fs::read_dir(to) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == ErrorKind::NotFound && matches!(exists(to), Ok(false)),
    };
    if !is_free {
        return Err(BackupError::Exists(to.to_path_buf()));
    }
    let mut name = to.file_name().ok_or_else(|| BackupError::NoName(to.to_path_buf()))?.to_os_string();
    name.push(".partial");
    Ok(to.with_file_name(name))
}

/// Opens a view that stays readable until it is dropped.
fn pin(link: &Link, progress: ProgressFn<'_>) -> Result<View, BackupEnd> {
    loop {
        let pinned = match link.pin() {
            Ok(view) => {
                if matches!(view.version(), Err(Code::MISSING)) {
                    fetch(&view, progress)?;
                }
                view.version().map(|_| view)
            }
            Err(code) => Err(code),
        };
        match pinned {
            // There is no host at the moment.
            Err(Code::MISSING) => {
                let (sender, receiver) = mpsc::channel::<()>();
                link.when_role_known(Box::new(move || drop(sender)));
                // The sender is dropped when there is a host.
                wait(&receiver, BackupStep::Waiting, progress)?;
            }
            // The host ended before anything was copied. The next host pins a version of its own.
            Err(Code::TRANSACTION_TOO_OLD) => {
                thread::sleep(PIN_RETRY_DELAY);
                if progress(BackupStep::Waiting).is_break() {
                    return Err(BackupEnd::Cancelled);
                }
            }
            pinned => return pinned.map_err(|code| read_error(code).into()),
        }
    }
}

fn read_error(code: Code) -> BackupError {
    match code {
        Code::OPERATION_FAILED => BackupError::Busy,
        Code::TRANSACTION_TOO_OLD => BackupError::Lost,
        code => BackupError::Unreadable(code),
    }
}

/// Fetches the data that the last read was missing.
fn fetch(view: &View, progress: ProgressFn<'_>) -> Result<(), BackupEnd> {
    let missing = view.missing().ok_or(BackupError::Unreadable(Code::INTERNAL_ERROR))?;
    let (sender, receiver) = mpsc::channel::<()>();
    missing.fetch(Box::new(move || drop(sender)));
    // The sender is dropped when everything has arrived, or cannot arrive.
    wait(&receiver, BackupStep::Waiting, progress).map(drop)
}

/// The database that is being written.
struct CopyTarget {
    storage: storage::Storage,
    /// Declared after the storage, so that the directory stays locked until the storage is closed.
    _directory: Directory,
}

impl CopyTarget {
    /// An empty database. Removes files of an interrupted backup.
    fn begin(path: &Path) -> Result<CopyTarget, BackupError> {
        let directory = Directory::acquire(path).map_err(BackupError::Target)?;
        for file in [DATA_FILE, LOG_FILE] {
            let file = path.join(file);
            match fs::remove_file(&file) {
                Err(source) if source.kind() != ErrorKind::NotFound => return Err(io_at(&file, source)),
                _ => {}
            }
        }
        let (storage, _) = directory.open_storage().map_err(BackupError::Target)?;
        Ok(CopyTarget { storage, _directory: directory })
    }

    /// Adds rows durably.
    fn add(&self, version: i64, mutations: Vec<Mutation>) -> Result<(), BackupError> {
        let batch = storage::WriteBatch { version, ceiling: Some(version), mutations };
        let applied = self.storage.apply(batch, storage::Durability::Flushed);
        applied.map(drop).map_err(|source| BackupError::Storage { source })
    }
}

fn copy_rows(view: &View, copy: &CopyTarget, progress: ProgressFn<'_>) -> Result<BackupStats, BackupEnd> {
    let mut copied = BackupStats { version: view.version().map_err(read_error)?, ..BackupStats::default() };
    let mut next = Vec::new();
    loop {
        let rows = page(view, &next, progress)?;
        let Some(Mutation::Set { key, .. }) = rows.last() else { break };
        next = key_after(key);
        copied.rows += rows.len() as u64;
        copied.bytes += rows.iter().map(|row| row.payload_len() as u64).sum::<u64>();
        copy.add(copied.version, rows)?;
        if progress(BackupStep::Copying(copied)).is_break() {
            return Err(BackupEnd::Cancelled);
        }
    }
    // Stores the version even if there are no rows.
    copy.add(copied.version, Vec::new())?;
    Ok(copied)
}

/// The next page of rows from `begin` on; empty at the end.
fn page(view: &View, begin: &[u8], progress: ProgressFn<'_>) -> Result<Vec<Mutation>, BackupEnd> {
    loop {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        let outcome = view.scan(begin, END, Direction::Forward, (PAGE, None), &mut |key, value| {
            rows.push(Mutation::Set { key: key.to_vec(), value: value.to_vec() });
            bytes += key.len() + value.len();
            let is_full = rows.len() >= PAGE.rows as usize || bytes >= PAGE.bytes as usize;
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match outcome {
            Ok(_) => {
                view.trim();
                return Ok(rows);
            }
            // The rows so far are enough. The next page continues after them.
            Err(Code::MISSING) if !rows.is_empty() => {
                drop(view.missing());
                return Ok(rows);
            }
            Err(Code::MISSING) => fetch(view, progress)?,
            Err(code) => return Err(read_error(code).into()),
        }
    }
}

/// Checks the copy by reading all of it.
fn check(path: &Path, rows: u64) -> Result<(), BackupError> {
    let report = doctor::check(path);
    let unsound = |text: String| BackupError::Unsound { path: path.to_path_buf(), text };
    if let Some(found) = report.findings.iter().find(|finding| finding.severity == Severity::Problem) {
        return Err(unsound(format!("{}: {}", found.about, found.text)));
    }
    let expected = format!("{rows} can be read");
    match report.findings.iter().find(|finding| finding.about == "rows") {
        Some(found) if found.text.starts_with(&expected) => Ok(()),
        found => Err(unsound(format!(
            "{rows} rows were written, and {}",
            found.map_or("it could not be read through", |found| &found.text)
        ))),
    }
}

fn io_at(path: &Path, source: io::Error) -> BackupError {
    BackupError::Io { path: path.to_path_buf(), source }
}
