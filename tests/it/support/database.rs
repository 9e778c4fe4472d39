//! A database of the test's own.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, sync::OnceLock};

use fdb_embedded::testing::{NetworkUse, network};
use tempfile::TempDir;

use super::kvqueue;

/// Where a test keeps its queues.
pub(crate) struct Database {
    /// For `--database`.
    pub(crate) url: String,
    /// For `KVQUEUE_PREFIX`.
    pub(crate) prefix: String,
    /// Holds the directory of an embedded database.
    pub(crate) directory: TempDir,
    /// Once it is open in this process.
    network: OnceLock<NetworkUse>,
}

impl Database {
    /// An empty one: embedded, or a prefix on the cluster that the environment names.
    pub(crate) fn new() -> Self {
        match std::env::var("KVQUEUE_TEST_CLUSTER_FILE") {
            Ok(url) => Self::at(url, format!("test-{}/", uuid::Uuid::now_v7())),
            Err(_) => Self::embedded(),
        }
    }

    /// Any other.
    pub(crate) fn at(url: String, prefix: String) -> Self {
        Self { url, prefix, directory: tempfile::tempdir().unwrap(), network: OnceLock::new() }
    }

    /// An empty embedded one.
    pub(crate) fn embedded() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("embedded:{}", directory.path().join("data").display());
        Self { url, prefix: String::new(), directory, network: OnceLock::new() }
    }

    /// Opens an embedded database in this process.
    pub(crate) fn open(&self) -> foundationdb::Database {
        self.network.get_or_init(network);
        foundationdb::Database::from_path(&self.url).unwrap()
    }

    /// A path for a file of the test, next to the database.
    pub(crate) fn file(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }
}

/// On a cluster, the queues would stay.
impl Drop for Database {
    fn drop(&mut self) {
        if self.prefix.is_empty() {
            return;
        }
        let list = kvqueue(self, &["list"]).output().map(|output| output.stdout).unwrap_or_default();
        for name in list.split(|byte| *byte == b'\n').filter(|name| !name.is_empty()) {
            // What is left does no harm: no other test has this prefix.
            let _ = kvqueue(self, &["delete", "--yes"]).arg(OsStr::from_bytes(name)).status();
        }
    }
}
