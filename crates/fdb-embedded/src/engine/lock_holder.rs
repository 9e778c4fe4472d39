//! The process that has a directory's lock, as other processes see it.

use std::fmt;
use std::fs::{File, Metadata, TryLockError};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::file_guard::{FileId, id_of};
use crate::files::{DATA_FILE, LOCK_FILE};

/// The process that has a directory's lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockHolder {
    /// Its process id: as the system knows it, or as the lock file has it.
    pub pid: Option<u32>,
    /// The id is of another PID namespace: here it belongs to no process, or to another one.
    pub is_elsewhere: bool,
}

impl LockHolder {
    /// Asks the system for the holder. It shows no locks of other PID namespaces: the id of such a
    /// holder is in the lock file.
    pub(super) fn of(mut lock: &File) -> LockHolder {
        let here = lock.metadata().ok().and_then(|lock| process_with_lock(&lock));
        if let Some(Some(pid)) = here {
            return LockHolder { pid: Some(pid), is_elsewhere: false };
        }
        let mut text = String::new();
        let pid = lock.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
        LockHolder { pid, is_elsewhere: pid.is_some() && here.is_some() }
    }
}

/// The process of this PID namespace that has locked a file; `None` if the system does not list locks.
fn process_with_lock(lock: &Metadata) -> Option<Option<u32>> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let holders = locks.lines().filter_map(|line| flock_of(line, lock.ino()));
    // Files of other file systems may have the same number.
    let mut holders = holders.filter(|pid| has_open(*pid, &id_of(lock)) != Some(false));
    Some(holders.next())
}

/// The process that holds this lock, if it is one of a whole file with this inode number, as in
/// `1: FLOCK  ADVISORY  WRITE 4711 fe:00:131 0 EOF`.
fn flock_of(line: &str, inode: u64) -> Option<u32> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, "FLOCK", _, _, pid, file, ..] = fields[..] else { return None };
    let (_, number) = file.rsplit_once(':')?;
    (number.parse() == Ok(inode)).then(|| pid.parse().ok())?
}

/// Whether a process has a file open; `None` if that cannot be found out.
fn has_open(pid: u32, file: &FileId) -> Option<bool> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    // A descriptor may be closed meanwhile.
    let is_it =
        |entry: std::fs::DirEntry| std::fs::metadata(entry.path()).is_ok_and(|it| id_of(&it) == *file);
    Some(descriptors.flatten().any(is_it))
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, self.is_elsewhere) {
            (None, _) => f.write_str("a process with an unknown pid"),
            (Some(pid), false) => write!(f, "the process with pid {pid}"),
            (Some(pid), true) => {
                write!(f, "a process of another container or PID namespace, where its pid is {pid}")
            }
        }
    }
}

/// Who has a directory's lock.
#[derive(Debug)]
pub enum LockState {
    /// Nobody. The directory stays locked while this value lives.
    Free(Vec<File>),
    /// The process that has the lock.
    Held(LockHolder),
}

/// Looks up the holder of a directory's lock, without changing anything.
pub fn probe_lock(path: &Path) -> std::io::Result<LockState> {
    let mut locked = Vec::new();
    for name in [LOCK_FILE, DATA_FILE] {
        let file = match File::open(path.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) if name == LOCK_FILE => return Err(error),
            // Reading the file's contents will report the reason.
            Err(_) => continue,
        };
        match file.try_lock() {
            Ok(()) => locked.push(file),
            Err(TryLockError::WouldBlock) if name == LOCK_FILE => {
                return Ok(LockState::Held(LockHolder::of(&file)));
            }
            Err(TryLockError::WouldBlock) => return Ok(LockState::Held(LockHolder::default())),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(LockState::Free(locked))
}

#[cfg(test)]
mod tests {
    use super::super::directory::Directory;
    use super::*;

    #[test]
    fn the_holder_is_the_process_with_the_lock_whatever_the_file_says() {
        let dir = tempfile::tempdir().unwrap();
        let _held = Directory::acquire(dir.path()).unwrap();
        let lock = dir.path().join("lock");
        let holder = || match probe_lock(dir.path()).unwrap() {
            LockState::Held(holder) => holder,
            LockState::Free(_) => panic!("it is held"),
        };
        let this = LockHolder { pid: Some(std::process::id()), is_elsewhere: false };
        assert_eq!(holder(), this);
        for text in ["1\n", "5000000\n", ""] {
            std::fs::write(&lock, text).unwrap();
            assert_eq!(holder(), this);
        }
    }

    #[test]
    fn a_lock_is_read_from_the_systems_list() {
        assert_eq!(flock_of("1: FLOCK  ADVISORY  WRITE 4711 fe:00:131 0 EOF", 131), Some(4711));
        for other in [
            "1: FLOCK  ADVISORY  WRITE 4711 fe:00:1310 0 EOF",
            "1: POSIX  ADVISORY  WRITE 4711 fe:00:131 0 EOF",
            "1: -> FLOCK  ADVISORY  WRITE 4711 fe:00:131 0 EOF",
            "1: FLOCK  ADVISORY  WRITE -1 fe:00:131 0 EOF",
            "",
        ] {
            assert_eq!(flock_of(other, 131), None, "{other}");
        }
    }
}
