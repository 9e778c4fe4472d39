//! Facts about the database and the client, for status documents.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Database;

/// The FoundationDB release of this client API.
pub const RELEASE: &str = "7.3.79";
/// Facts about an open database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseFacts {
    /// Its directory.
    pub directory: PathBuf,
    /// The process that has the directory open.
    pub host_pid: u32,
    /// Identifies the database: 32 hexadecimal digits.
    pub cluster_id: String,
    /// Bytes of its files on the disk.
    pub disk_bytes: u64,
}

impl Database {
    /// Facts about the database.
    pub(super) fn facts(&self) -> DatabaseFacts {
        let directory = self.link().directory();
        let disk_bytes = std::fs::read_dir(directory)
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.metadata().ok())
            .map(|file| file.len())
            .sum();
        let host_pid = std::fs::read_to_string(directory.join("lock")).ok();
        let host_pid = host_pid.and_then(|pid| pid.trim().parse().ok()).unwrap_or_else(std::process::id);
        DatabaseFacts {
            directory: directory.to_path_buf(),
            host_pid,
            cluster_id: self.cluster_id(),
            disk_bytes,
        }
    }

    /// Identifies the database: 32 hexadecimal digits.
    pub(super) fn cluster_id(&self) -> String {
        cluster_id(self.link().directory())
    }
}

/// An id for a directory: a hash of its path, so it changes if the directory is moved.
fn cluster_id(directory: &Path) -> String {
    // FNV-1a with 128 bits, which is short and the same in every build.
    let hash = directory
        .as_os_str()
        .as_bytes()
        .iter()
        .fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| {
            (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        });
    format!("{hash:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_id() {
        assert_eq!(cluster_id(Path::new("")), "6c62272e07bb014262b821756295c58d");
        assert_eq!(cluster_id(Path::new("a")), "d228cb696f1a8caf78912b704e4a8964", "a published test vector");
        assert_ne!(cluster_id(Path::new("/a")), cluster_id(Path::new("/b")));
    }
}
