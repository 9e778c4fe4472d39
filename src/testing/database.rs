//! A throw-away database.

use std::{
    io,
    ops::Deref,
    sync::{Arc, LazyLock},
};

use foundationdb::{Database, FdbError};
use tempfile::TempDir;

/// The client network: one for all databases of a process, and for as long as it runs. None if the
/// program has started one itself.
static NETWORK: LazyLock<Option<fdb_embedded::Network>> =
    LazyLock::new(|| fdb_embedded::Network::start().ok());

/// An embedded database in a temporary directory, empty, and gone with its last clone.
///
/// The process's client network runs from the first one on, to the end of the process, so a
/// [`Store`](crate::database::Store) can be opened before it and not after. It derefs to the
/// `foundationdb` crate's `Database`, for what [`get`](Self::get) and [`set`](Self::set) do not do.
#[derive(Clone)]
pub struct TestDatabase {
    open: Arc<Open>,
}

struct Open {
    /// Before the directory: it is closed first.
    db: Arc<Database>,
    _directory: TempDir,
}

/// There is no room for a test's database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestDatabaseError {
    /// The temporary directory cannot be made.
    #[error("cannot make a temporary directory for the database")]
    Directory(#[from] io::Error),
    /// The database in it cannot be opened.
    #[error("cannot open a database in a temporary directory")]
    Open(#[from] FdbError),
}

impl TestDatabase {
    /// Opens an empty one.
    pub fn new() -> Result<Self, TestDatabaseError> {
        LazyLock::force(&NETWORK);
        let directory = tempfile::tempdir()?;
        let db = Database::from_path(&format!("{}{}", fdb_embedded::SCHEME, directory.path().display()))?;
        let db = Arc::new(db);
        Ok(Self { open: Arc::new(Open { db, _directory: directory }) })
    }

    /// For what wants to share it. It is to be gone before the last clone of this.
    #[cfg(test)]
    pub(crate) fn shared(&self) -> Arc<Database> {
        self.open.db.clone()
    }

    /// The value of `key`.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, FdbError> {
        let mut tr = self.create_trx()?;
        loop {
            tr = match tr.get(key, false).await {
                Ok(value) => return Ok(value.map(|value| value.to_vec())),
                Err(error) => tr.on_error(error).await?,
            };
        }
    }

    /// Stores `value` under `key`.
    pub async fn set(&self, key: &[u8], value: &[u8]) -> Result<(), FdbError> {
        let mut tr = self.create_trx()?;
        loop {
            tr.set(key, value);
            tr = match tr.commit().await {
                Ok(_) => return Ok(()),
                Err(error) => error.on_error().await?,
            };
        }
    }
}

impl Deref for TestDatabase {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.open.db
    }
}

impl std::fmt::Debug for TestDatabase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestDatabase").finish_non_exhaustive()
    }
}
