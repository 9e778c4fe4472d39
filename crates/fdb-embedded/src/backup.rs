//! Copies a database that is open, while it is used, as it is at one version.
//!
//! ```text
//! the host, or a guest of it          DIR.partial              DIR
//! pin a version -> rows, in pages --> an ordinary database --> checked, renamed
//! ```
//! The copy is made by whoever asks for it, so it lies where that process may write, and belongs to its user. It is a
//! database directory like any other: to restore it is to open it, or to move it where the other one was. A copy that ends
//! half-way leaves `DIR.partial` and no `DIR`; the next one to the same place begins anew.
//!
//! As long as it takes, the host keeps the pages that later commits free: its file grows by what is written meanwhile.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::doctor::{self, Verdict};
use crate::engine::mutation::Mutation;
use crate::engine::{DATA_FILE, Directory, LOG_FILE, OpenError, StorageError, exists, storage};
use crate::error::Code;
use crate::limits::MAX_PINNED;
use crate::link::{Link, View};
use crate::range_set::key_after;
use crate::rows::{Direction, Want};

/// What is read at once, and then written in one durable step: as much as one process gives another.
const PAGE: Want = Want { rows: 1 << 16, bytes: 4 << 20 };

/// No key is as high.
const END: &[u8] = &[0xff; 64];

/// What a copy holds, so far or in the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// The version that it shows. Everything that was acknowledged before the copy began is in it.
    pub version: i64,
    /// Its rows.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// What a copy is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It waits for the process that hosts the database, or opens the database itself.
    Waits,
    /// So much has been copied.
    Copies(Copied),
    /// All has been copied, and the copy is read through.
    Checks,
}

/// What is called with each step; when it breaks, the copy ends.
type Progress<'p> = &'p mut dyn FnMut(Step) -> ControlFlow<()>;

/// A step that takes longer than this is reported again.
const BEAT: Duration = Duration::from_millis(100);

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is nothing to be copied.
    #[error("there is no database in {path}: it has no {DATA_FILE}", path = .0.display())]
    NoDatabase(PathBuf),
    /// What is there is not overwritten.
    #[error("{path} exists and is not an empty directory; name one that does not exist", path = .0.display())]
    Exists(PathBuf),
    /// The copy would be inside the database's directory.
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
    /// The copy's directory cannot be made.
    #[error("{0}")]
    Place(OpenError),
    /// The system lets this process start no thread.
    #[error("cannot start a thread")]
    NoThread(#[source] io::Error),
    /// So many copies are being made already.
    #[error("{MAX_PINNED} copies of this database are being made; wait for one of them")]
    Busy,
    /// The database cannot be read on.
    #[error("the database cannot be read: {0}")]
    Unreadable(Code),
    /// The process that hosts the database has gone away.
    #[error(
        "the process that hosts the database went away, and with it the version that was being copied; copy it again"
    )]
    Lost,
    /// The copy cannot be written. The reason names the file.
    #[error("cannot write the copy, which is removed")]
    Storage {
        /// What is wrong.
        source: StorageError,
    },
    /// The operating system refuses something.
    #[error("cannot write {path}", path = path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// The copy was read through, and is not what was written.
    #[error("the copy at {path} is not sound: {text}; check that disk", path = path.display())]
    Unsound {
        /// Where it was left.
        path: PathBuf,
        /// What was found.
        text: String,
    },
}

/// Why a copy ends early.
enum Ended {
    /// `progress` has broken it off.
    BrokenOff,
    Failed(BackupError),
}

impl From<BackupError> for Ended {
    fn from(error: BackupError) -> Ended {
        Ended::Failed(error)
    }
}

/// Whether there is a database in a directory: not whether it is sound. Opening one that is not there makes it.
#[must_use]
pub fn is_database(directory: &Path) -> bool {
    // What cannot be looked at, or has only one of its files, says why when it is opened.
    [DATA_FILE, LOG_FILE].iter().any(|file| !matches!(exists(&directory.join(file)), Ok(false)))
}

/// Copies the database in the directory `from` to the new directory `to`, and reads the copy through.
///
/// `progress` is called several times a second, also while the copy waits for another process; when it breaks, the copy
/// ends and is removed, and the result is `None`.
pub fn backup(
    from: &Path,
    to: &Path,
    progress: &mut dyn FnMut(Step) -> ControlFlow<()>,
) -> Result<Option<Copied>, BackupError> {
    match copy_to(from, to, progress) {
        Ok(copied) => Ok(Some(copied)),
        Err(Ended::BrokenOff) => Ok(None),
        Err(Ended::Failed(error)) => Err(error),
    }
}

fn copy_to(from: &Path, to: &Path, progress: Progress<'_>) -> Result<Copied, Ended> {
    if !is_database(from) {
        return Err(BackupError::NoDatabase(from.to_path_buf()).into());
    }
    let partial = partial(to)?;
    if is_inside(from, to) {
        return Err(BackupError::Inside(to.to_path_buf()).into());
    }
    let directory = from.to_path_buf();
    let link = aside(move || Link::open(&directory), Step::Waits, progress)?;
    let link = link.map_err(BackupError::Open)?;
    let view = pin(&link, progress)?;
    let copy = Copy::begin(&partial)?;
    let copied = match fill(view, copy, &partial, progress) {
        Ok(copied) => copied,
        Err(ended) => {
            // What is there of the copy may be what fills the disk.
            let removed = fs::remove_dir_all(&partial).map_err(|source| io_at(&partial, source));
            // Of a copy that failed, the reason matters more.
            if matches!(ended, Ended::BrokenOff) {
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

/// Copies the rows, and reads the copy through.
fn fill(view: View, copy: Copy, partial: &Path, progress: Progress<'_>) -> Result<Copied, Ended> {
    let copied = copy_rows(&view, &copy, progress)?;
    // The host need not keep the version while the copy is read.
    drop(view);
    drop(copy);
    let place = partial.to_path_buf();
    aside(move || check(&place, copied.rows), Step::Checks, progress)??;
    Ok(copied)
}

/// Does work on a thread of its own, so that it can be broken off. Then it goes on until it or the process ends.
fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    step: Step,
    progress: Progress<'_>,
) -> Result<T, Ended> {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::Builder::new().name("fdb-backup".to_owned()).spawn(move || {
        // It has no receiver after it was broken off.
        drop(sender.send(work()));
    });
    thread.map_err(BackupError::NoThread)?;
    match wait(&receiver, step, progress)? {
        Some(done) => Ok(done),
        None => Err(BackupError::Unreadable(Code::INTERNAL_ERROR).into()),
    }
}

/// Waits until something is sent, or the sender is dropped.
fn wait<T>(receiver: &Receiver<T>, step: Step, progress: Progress<'_>) -> Result<Option<T>, Ended> {
    loop {
        match receiver.recv_timeout(BEAT) {
            Ok(sent) => return Ok(Some(sent)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                if progress(step).is_break() {
                    return Err(Ended::BrokenOff);
                }
            }
        }
    }
}

/// Whether a place that need not be there yet is inside the database's directory, whatever links lead to it.
fn is_inside(directory: &Path, place: &Path) -> bool {
    let (Ok(directory), Ok(place)) = (directory.canonicalize(), std::path::absolute(place)) else {
        return false;
    };
    place
        .ancestors()
        .find_map(|above| above.canonicalize().ok())
        .is_some_and(|above| above.starts_with(directory))
}

/// The directory that a copy is made in.
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

/// A version that can be read until it is dropped.
fn pin(link: &Link, progress: Progress<'_>) -> Result<View, Ended> {
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
                link.when_settled(Box::new(move || drop(sender)));
                // It is dropped when there is one.
                wait(&receiver, Step::Waits, progress)?;
            }
            pinned => return pinned.map_err(|code| refused(code).into()),
        }
    }
}

fn refused(code: Code) -> BackupError {
    match code {
        Code::OPERATION_FAILED => BackupError::Busy,
        Code::TRANSACTION_TOO_OLD => BackupError::Lost,
        code => BackupError::Unreadable(code),
    }
}

/// Waits for what the last read has missed.
fn fetch(view: &View, progress: Progress<'_>) -> Result<(), Ended> {
    let missing = view.missing().ok_or(BackupError::Unreadable(Code::INTERNAL_ERROR))?;
    let (sender, receiver) = mpsc::channel::<()>();
    missing.fetch(Box::new(move || drop(sender)));
    // It is dropped when everything has come, or never will.
    wait(&receiver, Step::Waits, progress).map(drop)
}

/// A database that is being made.
struct Copy {
    storage: storage::Storage,
    /// After the storage: it holds the files until they are closed.
    _directory: Directory,
}

impl Copy {
    /// An empty one. What a copy that was broken off has left there is removed.
    fn begin(path: &Path) -> Result<Copy, BackupError> {
        let directory = Directory::acquire(path).map_err(BackupError::Place)?;
        for file in [DATA_FILE, LOG_FILE] {
            let file = path.join(file);
            match fs::remove_file(&file) {
                Err(source) if source.kind() != ErrorKind::NotFound => return Err(io_at(&file, source)),
                _ => {}
            }
        }
        let (storage, _) = directory.open_storage().map_err(BackupError::Place)?;
        Ok(Copy { storage, _directory: directory })
    }

    /// Adds rows, durably.
    fn add(&self, version: i64, mutations: Vec<Mutation>) -> Result<(), BackupError> {
        let batch = storage::WriteBatch { version, ceiling: Some(version), mutations };
        let applied = self.storage.apply(batch, storage::Durability::Flushed);
        applied.map(drop).map_err(|source| BackupError::Storage { source })
    }
}

fn copy_rows(view: &View, copy: &Copy, progress: Progress<'_>) -> Result<Copied, Ended> {
    let mut copied = Copied { version: view.version().map_err(refused)?, ..Copied::default() };
    let mut next = Vec::new();
    loop {
        let rows = page(view, &next, progress)?;
        let Some(Mutation::Set { key, .. }) = rows.last() else { break };
        next = key_after(key);
        copied.rows += rows.len() as u64;
        copied.bytes += rows.iter().map(|row| row.payload_len() as u64).sum::<u64>();
        copy.add(copied.version, rows)?;
        if progress(Step::Copies(copied)).is_break() {
            return Err(Ended::BrokenOff);
        }
    }
    // Of a database without rows, too, the version is kept.
    copy.add(copied.version, Vec::new())?;
    Ok(copied)
}

/// The rows from `begin` on, as many as are a page; none if there are none.
fn page(view: &View, begin: &[u8], progress: Progress<'_>) -> Result<Vec<Mutation>, Ended> {
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
            // What has come so far is enough: the next page gets the rest.
            Err(Code::MISSING) if !rows.is_empty() => {
                drop(view.missing());
                return Ok(rows);
            }
            Err(Code::MISSING) => fetch(view, progress)?,
            Err(code) => return Err(refused(code).into()),
        }
    }
}

/// Reads the whole copy from the disk.
fn check(path: &Path, rows: u64) -> Result<(), BackupError> {
    let report = doctor::check(path);
    let unsound = |text: String| BackupError::Unsound { path: path.to_path_buf(), text };
    if let Some(found) = report.findings.iter().find(|finding| finding.verdict == Verdict::Problem) {
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
