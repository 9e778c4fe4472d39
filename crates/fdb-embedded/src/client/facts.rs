//! What the database says of itself.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use super::{Database, status};

/// The release of FoundationDB whose client API this is.
pub const RELEASE: &str = "7.3.79";
/// The protocol version of that release.
pub const PROTOCOL_VERSION: u64 = 0x0FDB_00B0_7300_0000;

/// Facts about an open database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseFacts {
    /// Its directory.
    pub directory: PathBuf,
    /// The process that has the directory open.
    pub host_pid: u32,
    /// Names the database among others: 32 hexadecimal digits.
    pub cluster_id: String,
    /// Bytes of its files on disk.
    pub disk_bytes: u64,
}

impl Database {
    /// What the client says of itself, as JSON.
    #[must_use]
    pub fn client_status(&self) -> String {
        status::client(self)
    }

    /// What part of its time the network thread is busy, from 0 to 1: the engine does no work there.
    #[must_use]
    pub fn main_thread_busyness(&self) -> f64 {
        0.0
    }

    /// The protocol that the "server" speaks.
    #[must_use]
    pub fn server_protocol(&self) -> u64 {
        PROTOCOL_VERSION
    }

    /// What the database says of itself.
    pub(super) fn facts(&self) -> DatabaseFacts {
        let directory = crate::url::directory(self.url()).map(PathBuf::from).unwrap_or_default();
        let directory = directory.canonicalize().unwrap_or(directory);
        let disk_bytes = std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.metadata().ok())
            .map(|file| file.len())
            .sum();
        let hash = |salt: u8| {
            // Its keys are fixed: one directory has one id as long as it stays where it is.
            let mut hasher = DefaultHasher::new();
            (salt, &directory).hash(&mut hasher);
            hasher.finish()
        };
        let cluster_id = format!("{:016x}{:016x}", hash(0), hash(1));
        DatabaseFacts { directory, host_pid: std::process::id(), cluster_id, disk_bytes }
    }
}
