//! Free disk space for a database directory, and how much of it has to stay free.
//!
//! While less than [`Space::min_free`] is free, the host of a directory refuses transactions that
//! only add data. The limit belongs to the directory, so that every process applies the same one.
//! The first of these counts:
//!
//! 1. the environment variable [`VARIABLE`] of the host process,
//! 2. the file [`FILE`] in the directory,
//! 3. [`DEFAULT`], or 5 % of the file system if that is less.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use baton::Mutex;
use rustix::fs::statvfs;

use crate::files::{DATA_FILE, RESERVE_FILE, open_or_create};

/// The environment variable that overrides the directory's limit, in bytes, as `536870912` or
/// `512MiB`.
pub const VARIABLE: &str = "FDB_EMBEDDED_MIN_FREE_SPACE";

/// The file in the directory that contains its limit, in the same form.
pub const FILE: &str = "min-free-space";

/// The default limit in bytes.
pub const DEFAULT: u64 = 1 << 30;

/// The free space for a directory at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes of the file system that this user can still use.
    pub free: u64,
    /// Size of the file system in bytes.
    pub total: u64,
    /// Bytes that have to stay free; 0 if there is no limit.
    pub min_free: u64,
    /// The source of that limit in this process.
    pub origin: Origin,
    /// Free bytes inside the data file, which count as free space. An estimate of the host; 0 if
    /// another process hosts the directory.
    pub own: u64,
    /// The host has found the disk full. False if another process hosts the directory.
    pub is_full: bool,
    /// Whether the host refuses transactions that only add data. `None` if another process hosts
    /// the directory.
    pub refuses: Option<bool>,
    /// The disk is full and the database has no reserve, so nothing can be committed. If another
    /// process hosts the directory, this is derived from the disk and the size of the reserve.
    pub is_read_only: bool,
}

/// The source of a directory's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The environment variable [`VARIABLE`].
    Variable,
    /// The file [`FILE`] in the directory.
    File,
    /// Neither is set.
    Default,
    /// The variable is set to something that is not a size, so the default applies.
    BadVariable,
    /// The file contains something that is not a size, so the default applies.
    BadFile,
}

impl Origin {
    /// The problem with the variable or the file, and the fix; `None` if there is none.
    #[must_use]
    pub fn problem(self, directory: &Path) -> Option<String> {
        let (what, fix) = match self {
            Origin::Variable | Origin::File | Origin::Default => return None,
            Origin::BadVariable => (format!("the environment variable {VARIABLE}"), "set"),
            Origin::BadFile => (directory.join(FILE).display().to_string(), "write"),
        };
        Some(format!(
            "cannot read a size from {what}: the default limit of free space applies; {fix} one such as 512MiB there"
        ))
    }
}

/// The host's knowledge about space, in addition to the file system. The committer writes it.
#[derive(Debug, Default)]
pub(crate) struct HostSpace {
    own: AtomicU64,
    is_full: AtomicBool,
    refuses: AtomicBool,
    is_read_only: AtomicBool,
}

/// The directories that this process hosts, or has hosted.
static HOSTED: Mutex<Vec<(PathBuf, Weak<HostSpace>)>> = Mutex::new(Vec::new());

impl HostSpace {
    /// For a directory that this process starts to host.
    pub(crate) fn begin(directory: &Path) -> Arc<HostSpace> {
        let (hosted, directory) = (Arc::<HostSpace>::default(), name(directory));
        let mut all = HOSTED.lock();
        all.retain(|(other, known)| *other != directory && known.strong_count() > 0);
        all.push((directory, Arc::downgrade(&hosted)));
        hosted
    }

    /// Sets the free bytes inside the file, whether the disk is full, and whether transactions are
    /// refused.
    pub(crate) fn set(&self, own: u64, is_full: bool, refuses: bool) {
        self.own.store(own, Ordering::Relaxed);
        self.is_full.store(is_full, Ordering::Relaxed);
        self.refuses.store(refuses, Ordering::Relaxed);
    }

    /// Records that the database was opened read-only.
    pub(crate) fn set_read_only(&self) {
        self.set(0, true, true);
        self.is_read_only.store(true, Ordering::Relaxed);
    }

    fn of(directory: &Path) -> Option<Arc<HostSpace>> {
        let directory = name(directory);
        HOSTED.lock().iter().find(|(hosted, _)| *hosted == directory)?.1.upgrade()
    }
}

/// A canonical name of a directory.
fn name(directory: &Path) -> PathBuf {
    fs::canonicalize(directory).unwrap_or_else(|_| directory.to_path_buf())
}

impl Space {
    /// Reads a directory's file system and limit.
    pub fn of(directory: &Path) -> io::Result<Space> {
        let (free, total) = free_and_total(directory)?;
        let (min_free, origin) = limit(std::env::var(VARIABLE).ok(), directory)?;
        let min_free = min_free.unwrap_or_else(|| default_of(total));
        Ok(Space {
            free,
            total,
            min_free,
            origin,
            own: 0,
            is_full: false,
            refuses: None,
            is_read_only: false,
        })
    }

    /// The same with the host's knowledge, if this process is the host.
    pub fn known(directory: &Path) -> io::Result<Space> {
        let space = Space::of(directory)?;
        let Some(hosted) = HostSpace::of(directory) else {
            let is_read_only = space.free < LEAST && !has_reserve(directory);
            return Ok(Space { is_full: is_read_only, is_read_only, ..space });
        };
        let (own, is_full) = (hosted.own.load(Ordering::Relaxed), hosted.is_full.load(Ordering::Relaxed));
        Ok(Space {
            own,
            is_full,
            refuses: Some(hosted.refuses.load(Ordering::Relaxed)),
            is_read_only: hosted.is_read_only.load(Ordering::Relaxed),
            ..space
        })
    }

    /// True if less than the limit is free, so that transactions that only add data are refused.
    #[must_use]
    pub fn is_low(&self) -> bool {
        self.free.saturating_add(self.own) < self.min_free
    }
}

/// With less free space, in bytes, a database without a reserve cannot be opened for writing.
const LEAST: u64 = 64 << 10;

/// True if the database has a reserve. A database that does not exist yet needs none.
fn has_reserve(directory: &Path) -> bool {
    let len = |file| fs::metadata(directory.join(file)).map(|found| found.len());
    match len(RESERVE_FILE) {
        Ok(len) => len > 0,
        Err(_) => len(DATA_FILE).is_err(),
    }
}

/// The limit set by the variable or the file.
fn limit(variable: Option<String>, directory: &Path) -> io::Result<(Option<u64>, Origin)> {
    let (found, (good, bad)) = match variable {
        Some(text) => (parse(&text), (Origin::Variable, Origin::BadVariable)),
        None => match stored(directory)? {
            Some(found) => (found, (Origin::File, Origin::BadFile)),
            None => (None, (Origin::Default, Origin::Default)),
        },
    };
    Ok((found, if found.is_some() { good } else { bad }))
}

/// Free bytes for this user, and all bytes, of a directory's file system.
pub(crate) fn free_and_total(directory: &Path) -> io::Result<(u64, u64)> {
    let found = statvfs(directory)?;
    Ok((found.f_bavail.saturating_mul(found.f_frsize), found.f_blocks.saturating_mul(found.f_frsize)))
}

/// The default limit for a file system of `total` bytes.
fn default_of(total: u64) -> u64 {
    DEFAULT.min(total / 20)
}

/// The limit in the directory's file; `Some(None)` if it is not a size.
fn stored(directory: &Path) -> io::Result<Option<Option<u64>>> {
    match fs::read(directory.join(FILE)) {
        Ok(text) => Ok(Some(std::str::from_utf8(&text).ok().and_then(parse))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Parses a size; `None` if it is malformed.
fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit: u64 = match text[end..].trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return None,
    };
    text[..end].parse::<u64>().ok()?.checked_mul(unit)
}

/// Sets the limit of a directory in bytes. 0 switches it off, and `None` restores the default. A
/// host applies it within a second.
pub fn set_min_free(directory: &Path, bytes: Option<u64>) -> io::Result<()> {
    let file = directory.join(FILE);
    let Some(bytes) = bytes else {
        return match fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    };
    if stored(directory)? == Some(Some(bytes)) {
        return Ok(());
    }
    let new = directory.join(format!("{FILE}.new"));
    let written = open_or_create(&new)
        .and_then(|mut file| {
            file.set_len(0).and_then(|()| writeln!(file, "{bytes}")).and_then(|()| file.sync_all())
        })
        .and_then(|()| fs::rename(&new, &file));
    written.inspect_err(|_| drop(fs::remove_file(&new)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_a_unit() {
        for (text, bytes) in [("0", 0), ("4096\n", 4096), ("512MiB", 512 << 20), (" 1 GB ", 1_000_000_000)] {
            assert_eq!(parse(text), Some(bytes), "{text:?}");
        }
        for text in ["", "MiB", "-1", "1.5GiB", "1XB", "99999999999999999999", "9999999999TiB"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_directory_keeps_its_own_limit() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(stored(dir.path()).unwrap(), None);
        for bytes in [7 << 20, 0] {
            set_min_free(dir.path(), Some(bytes)).unwrap();
            assert_eq!(stored(dir.path()).unwrap(), Some(Some(bytes)));
        }
        for _ in 0..2 {
            set_min_free(dir.path(), None).unwrap();
            assert_eq!(stored(dir.path()).unwrap(), None);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn limit_file_is_private_and_an_unreadable_one_is_a_problem() {
        let dir = tempfile::tempdir().unwrap();
        // Without the variable, which the tests' environment may set.
        let origin = || limit(None, dir.path()).unwrap().1;
        assert_eq!(origin(), Origin::Default);
        set_min_free(dir.path(), Some(7)).unwrap();
        let file = dir.path().join(FILE);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!((origin(), origin().problem(dir.path())), (Origin::File, None));
        for damaged in [&b"12 parsecs"[..], b"\xff\xfe", b""] {
            fs::write(&file, damaged).unwrap();
            assert_eq!(origin(), Origin::BadFile);
            let problem = origin().problem(dir.path()).unwrap();
            assert!(problem.contains(&file.display().to_string()), "{problem}");
        }
        // The next program that sets the limit writes the file again.
        set_min_free(dir.path(), Some(8)).unwrap();
        assert_eq!(limit(None, dir.path()).unwrap(), (Some(8), Origin::File));
        assert_eq!(limit(Some("9B".to_owned()), dir.path()).unwrap(), (Some(9), Origin::Variable));
        assert_eq!(limit(Some("9X".to_owned()), dir.path()).unwrap(), (None, Origin::BadVariable));
    }

    #[test]
    fn space_known_by_the_host_counts_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let known = || Space::known(dir.path()).unwrap();
        assert_eq!((known().own, known().is_full, known().refuses), (0, false, None));
        let first = HostSpace::begin(dir.path());
        first.set(7, true, true);
        assert_eq!((known().own, known().is_full, known().refuses), (7, true, Some(true)));
        // The directory is opened again before the first is gone.
        let second = HostSpace::begin(&dir.path().join("."));
        drop(first);
        second.set(9, false, false);
        assert_eq!((known().own, known().is_full, known().refuses), (9, false, Some(false)));
        drop(second);
        assert_eq!(known().own, 0);
        let space = Space { free: 5, total: 100, min_free: 12, own: 7, ..known() };
        assert!(!space.is_low() && Space { own: 6, ..space }.is_low());
    }

    #[test]
    fn a_small_file_system_has_a_smaller_limit() {
        assert_eq!((default_of(100 << 20), default_of(1 << 40)), (5 << 20, 1 << 30));
    }
}
