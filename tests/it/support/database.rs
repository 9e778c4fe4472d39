//! A database of the test's own.

use tempfile::TempDir;

/// Where a test keeps its queues.
pub(crate) struct Database {
    /// For `--database`.
    pub(crate) url: String,
    /// For `KVQUEUE_PREFIX`.
    pub(crate) prefix: String,
    /// Holds the directory of an embedded database.
    pub(crate) directory: TempDir,
}

impl Database {
    /// An empty one: embedded, or a prefix on the cluster that the environment names.
    pub(crate) fn new() -> Self {
        match std::env::var("KVQUEUE_TEST_CLUSTER_FILE") {
            Ok(url) => Self { url, prefix: format!("test-{}/", uuid::Uuid::now_v7()), ..Self::embedded() },
            Err(_) => Self::embedded(),
        }
    }

    /// An empty embedded one.
    pub(crate) fn embedded() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("embedded:{}", directory.path().join("data").display());
        Self { url, prefix: String::new(), directory }
    }

    /// A path for a file of the test's, beside the database.
    pub(crate) fn file(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }
}
