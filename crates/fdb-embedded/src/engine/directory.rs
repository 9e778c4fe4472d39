//! The database directory: its files, and the lock that keeps other processes out.
//!
//! | file | contents |
//! |---|---|
//! | `data.redb` | the keys ([`super::storage`]) |
//! | `data.new` | a `data.redb` that is not complete yet |
//! | `log` | batches of commits that `data.redb` does not have yet |
//! | `reserve` | disk space in reserve |
//! | `lock` | locked by the process that has the directory open; contains its process id as text |

use std::fs::{DirBuilder, File, TryLockError};
use std::io::{ErrorKind, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

#[cfg(feature = "testing")]
use super::faults::FaultPlanError;
use super::file_guard::{GuardedFile, Loss, LostFile, NETWORK_VARIABLE, network_file_system};
use super::lock_holder::LockHolder;
use super::storage::{KnownLength, LockFile, Storage, StorageError};
use crate::files::{DATA_FILE, FIX_ORPHANED_LOG, LOCK_FILE, LOG_FILE, exists, is_full, open_or_create};
use crate::fork::{CloseOnFork, ForkedError};

/// The reason why a directory could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path after `embedded:` is empty.
    #[error("\"embedded:\" names no directory; write embedded:DIR, for example embedded:./kvqueue-data")]
    NoDirectory,
    /// The path after `embedded:` begins with two slashes.
    #[error(
        "cannot open {url:?}: a directory follows \"embedded:\", without the two slashes of a URL; write {instead}"
    )]
    TwoSlashes {
        /// The database's name.
        url: String,
        /// What to write.
        instead: String,
    },
    /// The directory cannot be created or its files cannot be opened.
    #[error("cannot open {path}: {source}; check that it is a directory that this user may write", path = path.display())]
    Io {
        /// The file or directory at fault.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Another process has the directory open.
    #[error("{path} is held by {holder}, which lets no other process in; stop it, or use another directory", path = path.display())]
    Held {
        /// The directory.
        path: PathBuf,
        /// The process that has it open.
        holder: LockHolder,
    },
    /// The directory is on a file system that other machines may use.
    #[error(
        "cannot use {path}: it is on {system}, a network file system, where another machine may use it at the same time; use a \
         directory on a local disk, or set {NETWORK_VARIABLE}=allow if only this machine uses it",
        path = path.display()
    )]
    Network {
        /// The directory.
        path: PathBuf,
        /// The name of the file system.
        system: &'static str,
    },
    /// The directory that this process had open is gone.
    #[error("cannot open the database again: {0}")]
    Lost(#[from] LostFile),
    /// Another process hosts the directory, and this process cannot become its guest.
    #[error("cannot use the database at {path} through the process that hosts it: {reason}", path = path.display())]
    Host {
        /// The directory.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// This process is a forked child of one that had the database open.
    #[error(transparent)]
    Forked(#[from] ForkedError),
    /// The environment variable for faults has a malformed value.
    #[cfg(feature = "testing")]
    #[error(transparent)]
    Faults(#[from] FaultPlanError),
    /// The log exists without its data file.
    #[error(
        "{path} is missing, and its log is there; {FIX_ORPHANED_LOG}",
        path = path.display()
    )]
    OrphanedLog {
        /// The database file.
        path: PathBuf,
    },
    /// The database file cannot be used.
    #[error("cannot use {path}: {source}", path = path.display())]
    Storage {
        /// The database file.
        path: PathBuf,
        /// The error of the storage.
        source: StorageError,
    },
}

/// A directory that this process has locked until the value is dropped.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// How many directories were created: this one and parents.
    made: usize,
    /// The directory as a file.
    own: GuardedFile,
    lock: GuardedFile,
    /// The data file and the log, which are locked too.
    data: OnceLock<GuardedFile>,
    log: OnceLock<GuardedFile>,
    /// The data file and the log, with the lengths that this process gave them.
    lengths: OnceLock<[(PathBuf, Arc<KnownLength>); 2]>,
    lost: OnceLock<LostFile>,
}

type OpenStorage = fn(&Path, &Path, &LockFile<'_>) -> Result<(Storage, i64), StorageError>;

impl Directory {
    /// Creates the directory if it does not exist, for this user only, and locks it.
    pub fn acquire(path: &Path) -> Result<Directory, OpenError> {
        let io = |at: &Path| {
            let path = at.to_path_buf();
            move |source| OpenError::Io { path, source }
        };
        if path.as_os_str().is_empty() {
            return Err(OpenError::NoDirectory);
        }
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && matches!(exists(path), Ok(false));
        let made = path.ancestors().take_while(is_missing).count();
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io(path))?;
        let path = path.canonicalize().map_err(io(path))?;
        if let Some(system) = network_file_system(&path).map_err(io(&path))? {
            return Err(OpenError::Network { path, system });
        }
        let lock_path = path.join(LOCK_FILE);
        let lock = CloseOnFork::open(|| open_or_create(&lock_path)).map_err(io(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::Held { holder: LockHolder::of(&lock), path });
            }
            Err(TryLockError::Error(source)) => return Err(OpenError::Io { path: lock_path, source }),
        }
        write_holder(&lock).map_err(io(&lock_path))?;
        let lock = GuardedFile::new(&lock_path, lock);
        let own = GuardedFile::new(&path, CloseOnFork::open(|| File::open(&path)).map_err(io(&path))?);
        let (data, log, lengths, lost) = Default::default();
        Ok(Directory { path, made, own, lock, data, log, lengths, lost })
    }

    /// Checks that all names still lead to the open files, and that nobody has cut these. Remembers the first that fails.
    pub fn check(&self) -> Result<(), LostFile> {
        let files = [Some(&self.own), self.data.get(), self.log.get()];
        let files = files.into_iter().flatten().try_for_each(|file| file.check(true));
        self.note(files.and_then(|()| self.lock.check(false)).and_then(|()| self.check_lengths()))
    }

    fn check_lengths(&self) -> Result<(), LostFile> {
        let mut lengths = self.lengths.get().into_iter().flatten();
        let cut = lengths.find(|(_, file)| file.is_cut());
        cut.map_or(Ok(()), |(path, _)| Err(LostFile { path: path.clone(), loss: Loss::Cut, is_final: true }))
    }

    /// Checks that the data file and the log have names and their lengths. This is cheap.
    pub fn check_links(&self) -> Result<(), LostFile> {
        let mut files = [self.data.get(), self.log.get()].into_iter().flatten();
        let names = files.find(|file| !file.is_linked()).map_or(Ok(()), |file| Err(file.unlinked_error()));
        self.note(names.and_then(|()| self.check_lengths()))
    }

    fn note(&self, checked: Result<(), LostFile>) -> Result<(), LostFile> {
        checked.inspect_err(|lost| drop(self.lost.set(lost.clone())))
    }

    /// The first file whose name was lost.
    pub fn lost(&self) -> Option<&LostFile> {
        self.lost.get()
    }

    /// Unlocks the directory.
    pub fn release(&self) {
        let files = [self.log.get(), self.data.get(), Some(&self.lock)];
        files.into_iter().flatten().for_each(GuardedFile::unlock);
    }

    /// Opens the storage, and returns its version ceiling.
    pub fn open_storage(&self) -> Result<(Storage, i64), OpenError> {
        self.open_with(Storage::open_locked)
    }

    /// Opens the storage read-only, on a full disk.
    pub fn open_read_only(&self) -> Result<(Storage, i64), OpenError> {
        self.open_with(Storage::open_read_only)
    }

    fn open_with(&self, open: OpenStorage) -> Result<(Storage, i64), OpenError> {
        let (file, log) = (self.data_file(), self.path.join(LOG_FILE));
        let exists = |file: &Path| exists(file).map_err(|source| OpenError::Io { path: file.into(), source });
        if !exists(&file)? {
            // The log is created after the data file, so the data file was removed.
            if exists(&log)? {
                return Err(OpenError::OrphanedLog { path: file });
            }
            self.create_storage(&file)?;
        }
        // The directory's entries must be durable. The process that created the files may have been
        // killed before its own sync.
        sync(&self.path).map_err(|source| OpenError::Io { path: self.path.clone(), source })?;
        let lock = |path: &Path, opened: &File| {
            let slot = if path == log { &self.log } else { &self.data };
            if slot.get().is_some() {
                // The read-only opening follows a failed one, which has locked the file.
                return Ok(());
            }
            match GuardedFile::lock(path, opened) {
                Ok(Some(guarded)) => slot.set(guarded).map_err(|_| StorageError::Held),
                Ok(None) => Err(StorageError::Held),
                Err(source) => Err(StorageError::Unopened(source)),
            }
        };
        let opened = open(&file, &log, &lock).map_err(|source| match source {
            // A process whose `lock` file was removed holds it.
            StorageError::Held => OpenError::Held { path: self.path.clone(), holder: LockHolder::default() },
            source => OpenError::Storage { path: file.clone(), source },
        })?;
        if let [Some(data), Some(of_log)] = opened.0.lengths() {
            let _ = self.lengths.set([(file, Arc::clone(data)), (log, Arc::clone(of_log))]);
        }
        Ok(opened)
    }

    /// Creates an empty data file. It gets its name when it is complete and its directory's entry
    /// is durable, so that a half-written file is never taken for a database.
    fn create_storage(&self, file: &Path) -> Result<(), OpenError> {
        let unfinished = file.with_extension("new");
        let io = |source| OpenError::Io { path: unfinished.clone(), source };
        match std::fs::remove_file(&unfinished) {
            Err(source) if source.kind() != ErrorKind::NotFound => return Err(io(source)),
            _ => {}
        }
        let created = Storage::create(&unfinished);
        created.map_err(|source| OpenError::Storage { path: unfinished.clone(), source })?;
        for above in self.unsynced_parents() {
            match sync(above) {
                // A parent that this user may not open is not ours to sync.
                Err(source) if source.kind() != ErrorKind::PermissionDenied => {
                    return Err(OpenError::Io { path: above.to_path_buf(), source });
                }
                _ => {}
            }
        }
        std::fs::rename(&unfinished, file).map_err(io)
    }

    /// The directories whose entries may not be durable: the parent, and those above it that were
    /// created.
    fn unsynced_parents(&self) -> impl Iterator<Item = &Path> {
        self.path.ancestors().skip(1).take(self.made.max(1))
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the data file.
    #[must_use]
    pub fn data_file(&self) -> PathBuf {
        self.path.join(DATA_FILE)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.release();
    }
}

fn sync(directory: &Path) -> std::io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Writes this process's id over the previous holder's. Does not truncate first: on a full disk the
/// file might get no space again. A directory can be opened without the id.
fn write_holder(mut lock: &File) -> std::io::Result<()> {
    let text = format!("{}\n", std::process::id());
    let written = lock.rewind().and_then(|()| lock.write_all(text.as_bytes()));
    match written.and_then(|()| lock.set_len(text.len() as u64)) {
        Err(error) if is_full(&error) => lock.set_len(0),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_directory_names_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let held = Directory::acquire(dir.path()).unwrap();
        let error = Directory::acquire(dir.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("pid {}", std::process::id())), "{error}");
        drop(held);
        Directory::acquire(dir.path()).unwrap();
    }

    #[test]
    fn a_new_directory_is_for_its_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        Directory::acquire(&path).unwrap().open_storage().unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn all_names_that_lead_to_a_new_database_are_made_durable() {
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().canonicalize().unwrap();
        let above = |held: &Directory| held.unsynced_parents().map(Path::to_path_buf).collect::<Vec<_>>();
        let path = there.join("a/b/c");
        let held = Directory::acquire(&path).unwrap();
        assert_eq!(above(&held), [there.join("a/b"), there.join("a"), there.clone()]);
        held.open_storage().unwrap();
        drop(held);
        assert_eq!(above(&Directory::acquire(&path).unwrap()), [there.join("a/b")]);
        // The path is the real one, whichever way it was reached.
        std::os::unix::fs::symlink(there.join("a"), there.join("link")).unwrap();
        let held = Directory::acquire(&there.join("link/d")).unwrap();
        assert_eq!(above(&held), [there.join("a")]);
        held.open_storage().unwrap();
    }

    #[test]
    fn an_unfinished_data_file_is_created_again() {
        let dir = tempfile::tempdir().unwrap();
        let held = Directory::acquire(dir.path()).unwrap();
        let unfinished = dir.path().join("data.new");
        std::fs::write(&unfinished, vec![0; 1 << 20]).unwrap();
        let (_storage, ceiling) = held.open_storage().unwrap();
        assert_eq!(ceiling, 0);
        assert!(held.data_file().exists() && !unfinished.exists());
    }

    #[test]
    fn no_database_is_made_in_the_place_of_a_link_that_leads_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join(DATA_FILE);
        std::os::unix::fs::symlink(dir.path().join("not mounted"), &link).unwrap();
        let error = Directory::acquire(dir.path()).unwrap().open_storage().unwrap_err().to_string();
        assert!(error.contains(&link.display().to_string()), "{error}");
        assert!(link.symlink_metadata().unwrap().is_symlink());
    }

    #[test]
    fn a_path_that_cannot_be_a_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = Directory::acquire(&file).unwrap_err().to_string();
        assert!(error.contains(&file.display().to_string()), "{error}");
        assert!(matches!(Directory::acquire(Path::new("")), Err(OpenError::NoDirectory)));
    }
}
