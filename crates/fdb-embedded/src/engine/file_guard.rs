//! Guards the open files of a directory: they are locked, and their names still lead to them.
//!
//! A lock belongs to a file, not to its name. A program that removes `DIR/lock` and opens the
//! directory locks a new file of that name, so the data file and the log are locked too. A removed
//! or replaced file still accepts writes, which are lost, so a host has to check the names.

use std::fs::{File, Metadata, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FsWord, StatxFlags, statx};
use rustix::io::Errno;

use crate::fork::CloseOnFork;

/// The environment variable that allows directories on network file systems.
pub const NETWORK_VARIABLE: &str = "FDB_EMBEDDED_NETWORK_FS";
/// The value that allows them.
const ALLOW: &str = "allow";

/// An open file, and the name by which it was opened.
#[derive(Debug)]
pub struct GuardedFile {
    path: PathBuf,
    /// Open, so that its inode is not reused.
    file: CloseOnFork<File>,
}

/// The name of an open file no longer leads to it, or another program has cut the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} has been {loss} while this process worked on it{fix}", path = path.display(), loss = loss.text(), fix = self.fix())]
pub struct LostFile {
    /// The file or directory.
    pub path: PathBuf,
    /// How it was lost.
    pub loss: Loss,
    /// The database is gone and cannot be opened again.
    pub is_final: bool,
}

/// How a file was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The name does not exist.
    Removed,
    /// The name leads to another file.
    Replaced,
    /// The file is shorter than this process made it.
    Cut,
}

impl Loss {
    fn text(self) -> &'static str {
        match self {
            Loss::Removed => "removed or moved",
            Loss::Replaced => "replaced",
            Loss::Cut => "cut",
        }
    }
}

impl LostFile {
    fn fix(&self) -> &'static str {
        if self.is_final {
            "; put the directory back, or restore it from a backup, before a program uses it again: a program that finds no directory makes an \
             empty database"
        } else {
            "; it is made again, but nobody should remove it"
        }
    }
}

impl GuardedFile {
    /// Guards a file that is open already.
    pub fn new(path: &Path, file: impl Into<CloseOnFork<File>>) -> GuardedFile {
        GuardedFile { path: path.to_path_buf(), file: file.into() }
    }

    /// Locks a file for this process while the guard lives; `None` if another process has locked
    /// it.
    pub fn lock(path: &Path, file: &File) -> io::Result<Option<GuardedFile>> {
        let file = CloseOnFork::open(|| file.try_clone())?;
        match file.try_lock() {
            Ok(()) => Ok(Some(GuardedFile::new(path, file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Releases the lock at once, even if other descriptors of this process refer to the file.
    pub fn unlock(&self) {
        // It fails only for a file that was not locked.
        let _ = self.file.unlock();
    }

    /// True if the file has a name. A file without one is deleted when it is closed.
    ///
    /// This runs after each flush and asks only for the number of links. Asking for a file's times
    /// too makes Linux 6.13 and later update them at the next write, whose flush then takes half as
    /// long again.
    pub fn is_linked(&self) -> bool {
        let names = match statx(&*self.file, "", AtFlags::EMPTY_PATH, StatxFlags::NLINK) {
            Ok(found) => u64::from(found.stx_nlink),
            // An old kernel or a sandbox lacks the call.
            Err(_) => self.file.metadata().map_or(0, |file| file.nlink()),
        };
        names > 0
    }

    /// How the file's name was lost, if it was.
    pub fn loss(&self) -> Option<Loss> {
        if !self.is_linked() {
            let is_replaced = std::fs::symlink_metadata(&self.path).is_ok();
            return Some(if is_replaced { Loss::Replaced } else { Loss::Removed });
        }
        match std::fs::metadata(&self.path) {
            Ok(found) => match self.file.metadata() {
                Ok(own) if id_of(&own) != id_of(&found) => Some(Loss::Replaced),
                _ => None,
            },
            Err(error) if means_missing(&error) => Some(Loss::Removed),
            // Errors such as missing permissions or descriptors do not mean that the file is gone.
            Err(_) => None,
        }
    }

    /// The same as an error.
    pub fn check(&self, is_final: bool) -> Result<(), LostFile> {
        let lost = |loss| LostFile { path: self.path.clone(), loss, is_final };
        self.loss().map_or(Ok(()), |loss| Err(lost(loss)))
    }

    /// The error for a file without a name.
    pub fn unlinked_error(&self) -> LostFile {
        LostFile { path: self.path.clone(), loss: self.loss().unwrap_or(Loss::Removed), is_final: true }
    }
}

fn means_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::StaleNetworkFileHandle)
}

/// Identifies a file by device and inode.
pub type FileId = (u64, u64);

/// The id of the file that this metadata describes.
pub fn id_of(file: &Metadata) -> FileId {
    (file.dev(), file.ino())
}

/// The file that a name leads to.
pub fn file_id(path: &Path) -> io::Result<FileId> {
    std::fs::metadata(path).map(|file| id_of(&file))
}

/// Network and cluster file systems, by Linux's magic numbers.
const NETWORK: &[(u32, &str)] = &[
    (0x0000_6969, "NFS"),
    (0x0000_517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0xAAD7_AAEA, "PanFS"),
    (0x2003_0528, "OrangeFS"),
    (0x7375_7245, "Coda"),
    (0x0000_564C, "NCP"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
    (0xBACB_ACBC, "a shared folder of VMware"),
    (0x786F_4256, "a shared folder of VirtualBox"),
];

/// The name of a network file system, where locks and sockets may not work between machines; `None`
/// for others.
fn network_file_system_name(kind: FsWord) -> Option<&'static str> {
    // Some systems sign-extend the number.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the numbers have 32 bits")]
    let kind = kind as u32;
    NETWORK.iter().find_map(|(number, name)| (*number == kind).then_some(*name))
}

/// The network file system that a directory lies on, unless the environment allows it.
pub fn network_file_system(directory: &Path) -> io::Result<Option<&'static str>> {
    let kind = match rustix::fs::statfs(directory) {
        Ok(system) => system.f_type,
        // The call is not supported.
        Err(Errno::NOSYS) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let is_allowed = std::env::var_os(NETWORK_VARIABLE).is_some_and(|value| value == ALLOW);
    Ok(network_file_system_name(kind).filter(|_| !is_allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_recognised_and_local_ones_not() {
        assert_eq!(network_file_system_name(0x6969), Some("NFS"));
        assert_eq!(network_file_system_name(0x6573_5546), Some("FUSE"));
        assert_eq!(network_file_system_name(0xFF53_4D42), Some("CIFS"));
        // Sign-extended.
        assert_eq!(network_file_system_name(FsWord::from(-0x00AC_B2BE_i32)), Some("CIFS"));
        // ext4, tmpfs, btrfs, xfs, zfs, overlay.
        for local in [0xEF53, 0x0102_1994, 0x9123_683E, 0x5846_5342, 0x2FC1_2FC1, 0x794C_7630] {
            assert_eq!(network_file_system_name(local), None, "{local:x}");
        }
    }

    #[test]
    fn a_moved_or_replaced_file_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let keep = || GuardedFile::new(&path, File::create(&path).unwrap());
        let kept = keep();
        assert_eq!(kept.check(true), Ok(()));
        std::fs::rename(&path, dir.path().join("moved")).unwrap();
        assert!(kept.is_linked());
        assert_eq!(kept.loss(), Some(Loss::Removed));
        let other = keep();
        assert_eq!(kept.loss(), Some(Loss::Replaced));
        assert_eq!(other.loss(), None);
        std::fs::remove_file(&path).unwrap();
        assert!(!other.is_linked());
        assert_eq!(other.unlinked_error().loss, Loss::Removed);
        File::create(&path).unwrap();
        assert_eq!(other.unlinked_error().loss, Loss::Replaced);
    }

    #[test]
    fn a_file_is_locked_once_until_unlocked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let open = || File::create(&path).unwrap();
        let first = open();
        let kept = GuardedFile::lock(&path, &first).unwrap().unwrap();
        assert!(GuardedFile::lock(&path, &open()).unwrap().is_none());
        kept.unlock();
        // The file is still open twice.
        assert!(GuardedFile::lock(&path, &open()).unwrap().is_some());
    }
}
