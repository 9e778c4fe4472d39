//! The database directory: what is in it, and who holds it.
//!
//! | file | what |
//! |---|---|
//! | `data.redb` | the keys ([`super::storage`]) |
//! | `data.new` | the same, while it is being made for the first time |
//! | `log` | batches of commits that are not in `data.redb` yet |
//! | `reserve` | space of the disk for when that is full |
//! | `lock` | locked by the process that has the directory open; holds that process's id as text |

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::faults::FaultPlanError;
use super::file_guard::{GuardedFile, LostFile, NETWORK_VARIABLE, network_file_system};
use super::storage::{LockFile, Storage, StorageError, is_full};
use crate::fork::{Forked, Own};

/// The file of the keys.
pub const DATA_FILE: &str = "data.redb";
/// What was committed since that was last brought up to date.
pub const LOG_FILE: &str = "log";

/// Why a directory could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path after `embedded:` is empty.
    #[error("\"embedded:\" names no directory; write embedded:DIR, for example embedded:./kvqueue-data")]
    NoDirectory,
    /// The directory cannot be created or its files cannot be opened.
    #[error("cannot open {path}: {source}; check that it is a directory that this user may write", path = path.display())]
    Io {
        /// The file or directory at fault.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Another process has the directory open.
    #[error("{path} is held by the process with pid {pid}, which lets no other process in; stop it, or use another directory", path = path.display())]
    Held {
        /// The directory.
        path: PathBuf,
        /// The process, as it wrote itself into the lock file.
        pid: String,
    },
    /// The directory lies on a file system that other machines may see.
    #[error(
        "cannot use {path}: it is on {system}, a network file system, where another machine may use it at the same time; use a \
         directory on a local disk, or set {NETWORK_VARIABLE}=allow if only this machine uses it",
        path = path.display()
    )]
    Network {
        /// The directory.
        path: PathBuf,
        /// The file system.
        system: &'static str,
    },
    /// The directory that this process worked on is not there any more.
    #[error("cannot open the database again: {0}")]
    Lost(#[from] LostFile),
    /// Another process hosts the directory, and this one cannot be its guest.
    #[error("cannot use the database at {path} through the process that hosts it: {reason}", path = path.display())]
    Host {
        /// The directory.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// This process is a forked child of one that had a database open.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// The environment asks for faults on purpose in a way that cannot be understood.
    #[error(transparent)]
    Faults(#[from] FaultPlanError),
    /// There is a log without the file that it belongs to.
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
        /// What is wrong with it.
        source: StorageError,
    },
}

/// A directory that this process holds until the value is dropped.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// How many directories were made, this one and those above it.
    made: usize,
    /// The directory itself.
    own: GuardedFile,
    lock: GuardedFile,
    /// The files that are written; they are locked too.
    data: OnceLock<GuardedFile>,
    log: OnceLock<GuardedFile>,
    lost: OnceLock<LostFile>,
}

type OpenStorage = fn(&Path, &Path, &LockFile<'_>) -> Result<(Storage, i64), StorageError>;

impl Directory {
    /// Creates the directory if need be, for this user alone, and takes its lock.
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
        let lock_path = path.join("lock");
        let lock = Own::open(|| open_or_create(&lock_path)).map_err(io(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::Held { pid: read_holder(&lock), path }),
            Err(TryLockError::Error(source)) => return Err(OpenError::Io { path: lock_path, source }),
        }
        write_holder(&lock).map_err(io(&lock_path))?;
        let lock = GuardedFile::new(&lock_path, lock);
        let own = GuardedFile::new(&path, Own::open(|| File::open(&path)).map_err(io(&path))?);
        let (data, log, lost) = Default::default();
        Ok(Directory { path, made, own, lock, data, log, lost })
    }

    /// Looks whether all names still lead to the files that this process works on. The first that does not is remembered.
    pub fn check(&self) -> Result<(), LostFile> {
        let files = [Some(&self.own), self.data.get(), self.log.get()];
        let files = files.into_iter().flatten().try_for_each(|file| file.check(true));
        self.note(files.and_then(|()| self.lock.check(false)))
    }

    /// Looks whether the files that are written have names, which is quick.
    pub fn check_links(&self) -> Result<(), LostFile> {
        let mut files = [self.data.get(), self.log.get()].into_iter().flatten();
        self.note(files.find(|file| !file.is_linked()).map_or(Ok(()), |file| Err(file.unlinked_error())))
    }

    fn note(&self, checked: Result<(), LostFile>) -> Result<(), LostFile> {
        checked.inspect_err(|lost| drop(self.lost.set(lost.clone())))
    }

    /// What was found to be lost.
    pub fn lost(&self) -> Option<&LostFile> {
        self.lost.get()
    }

    /// Lets another process have the directory.
    pub fn release(&self) {
        let files = [self.log.get(), self.data.get(), Some(&self.lock)];
        files.into_iter().flatten().for_each(GuardedFile::unlock);
    }

    /// Opens the storage, and returns with it the version ceiling that it holds.
    pub fn open_storage(&self) -> Result<(Storage, i64), OpenError> {
        self.open_with(Storage::open_locked)
    }

    /// Opens the storage to be read, where the disk has no space.
    pub fn open_read_only(&self) -> Result<(Storage, i64), OpenError> {
        self.open_with(Storage::open_read_only)
    }

    fn open_with(&self, open: OpenStorage) -> Result<(Storage, i64), OpenError> {
        let (file, log) = (self.data_file(), self.path.join(LOG_FILE));
        let exists = |file: &Path| exists(file).map_err(|source| OpenError::Io { path: file.into(), source });
        if !exists(&file)? {
            // It is made after the file, so somebody has taken that away.
            if exists(&log)? {
                return Err(OpenError::OrphanedLog { path: file });
            }
            self.create_storage(&file)?;
        }
        // A file whose name is lost with the power is lost, however often it was flushed itself. Whoever gave it the name
        // may have been killed before this.
        sync(&self.path).map_err(|source| OpenError::Io { path: self.path.clone(), source })?;
        let lock = |path: &Path, opened: &File| {
            let slot = if path == log { &self.log } else { &self.data };
            if slot.get().is_some() {
                // It is opened again, to be read.
                return Ok(());
            }
            match GuardedFile::lock(path, opened) {
                Ok(Some(guarded)) => slot.set(guarded).map_err(|_| StorageError::Held),
                Ok(None) => Err(StorageError::Held),
                Err(source) => Err(StorageError::Unopened(source)),
            }
        };
        open(&file, &log, &lock).map_err(|source| match source {
            // By a process whose file "lock" was removed.
            StorageError::Held => OpenError::Held { path: self.path.clone(), pid: UNKNOWN.to_owned() },
            source => OpenError::Storage { path: file.clone(), source },
        })
    }

    /// Makes an empty file. It gets its name when it is whole, and the names that lead to it are durable: one that a kill
    /// left half made is never taken for a database.
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
                // One that may be passed through but not opened is not ours to look after.
                Err(source) if source.kind() != ErrorKind::PermissionDenied => {
                    return Err(OpenError::Io { path: above.to_path_buf(), source });
                }
                _ => {}
            }
        }
        std::fs::rename(&unfinished, file).map_err(io)
    }

    /// The directories whose entries may not be durable yet: the parent, and above it up to the first that was there
    /// before.
    fn unsynced_parents(&self) -> impl Iterator<Item = &Path> {
        self.path.ancestors().skip(1).take(self.made.max(1))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file of the keys.
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

/// How a file is opened to be written, or made: for its user alone, whatever the directory lets others do.
pub fn private_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).truncate(false).mode(0o600);
    options
}

/// Opens a file to be written, or makes it if it is not there.
pub fn open_or_create(file: &Path) -> std::io::Result<File> {
    match create_file(file) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => private_options().create(true).open(file),
        made => made,
    }
}

/// Makes a file that is not there, for its directory's owner alone: what root makes in a directory of another user goes to that user,
/// whose programs could not open it otherwise.
pub fn create_file(file: &Path) -> std::io::Result<File> {
    // It is new and no link, so no other file is given away.
    let made = private_options().create_new(true).open(file)?;
    // Where root may not give files away, as in some containers, it uses them all the same.
    let _ = give_to_directory_owner(&made, file);
    Ok(made)
}

fn give_to_directory_owner(made: &File, file: &Path) -> std::io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let above = file.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let owner = std::fs::metadata(above)?;
    if owner.uid() == made.metadata()?.uid() {
        return Ok(());
    }
    fchown(made, Some(owner.uid()), Some(owner.gid()))
}

fn sync(directory: &Path) -> std::io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Is there anything by this name? Also when it cannot be used, as a link that leads nowhere: nothing may take its place.
pub fn exists(file: &Path) -> std::io::Result<bool> {
    match file.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Who holds a directory, as far as can be told without taking part.
#[derive(Debug)]
pub enum LockHolder {
    /// Nobody, and nobody can while this value lives.
    Nobody(Vec<File>),
    /// The process with this id.
    Process(String),
}

/// Looks at a directory's locks, and changes nothing.
pub fn probe_lock(path: &Path) -> std::io::Result<LockHolder> {
    let mut locked = Vec::new();
    for name in ["lock", DATA_FILE] {
        let file = match File::open(path.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) if name == "lock" => return Err(error),
            // The read of its contents reports the reason.
            Err(_) => continue,
        };
        match file.try_lock() {
            Ok(()) => locked.push(file),
            Err(TryLockError::WouldBlock) if name == "lock" => {
                return Ok(LockHolder::Process(read_holder(&file)));
            }
            Err(TryLockError::WouldBlock) => return Ok(LockHolder::Process(UNKNOWN.to_owned())),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(LockHolder::Nobody(locked))
}

/// What to do about a log without its data file.
pub const FIX_ORPHANED_LOG: &str = "put data.redb back, or restore the directory from a backup; only if nothing in it is needed any more, remove log as well: the \
                                 next program begins an empty database";

/// The process id of a holder that has not left it.
const UNKNOWN: &str = "unknown";

/// Over what an earlier holder wrote: on a full disk, a file that is cut off first may get no space again. One that says nothing is no
/// reason not to open the directory.
fn write_holder(mut lock: &File) -> std::io::Result<()> {
    let text = format!("{}\n", std::process::id());
    let written = lock.rewind().and_then(|()| lock.write_all(text.as_bytes()));
    match written.and_then(|()| lock.set_len(text.len() as u64)) {
        Err(error) if is_full(&error) => lock.set_len(0),
        other => other,
    }
}

fn read_holder(mut lock: &File) -> String {
    let mut text = String::new();
    match lock.read_to_string(&mut text) {
        Ok(_) if !text.trim().is_empty() => text.trim().to_owned(),
        _ => UNKNOWN.to_owned(),
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
        // Names are those of where it lies, however it was reached.
        std::os::unix::fs::symlink(there.join("a"), there.join("link")).unwrap();
        let held = Directory::acquire(&there.join("link/d")).unwrap();
        assert_eq!(above(&held), [there.join("a")]);
        held.open_storage().unwrap();
    }

    #[test]
    fn a_file_that_was_half_made_is_made_again() {
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
