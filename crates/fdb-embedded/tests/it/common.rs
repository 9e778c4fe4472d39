//! What the tests of this crate share: one network per process, an empty database per test.
//!
//! With `KVQUEUE_TEST_CLUSTER_FILE` set the tests run on that cluster instead of the embedded engine, one after
//! the other, and **each clears the whole cluster first**: the same expectations then hold for FoundationDB itself.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use fdb_embedded::Network;
use foundationdb::Database;
use futures::executor::block_on;
use tempfile::TempDir;

/// A throw-away database.
pub struct Scratch {
    /// Its handle.
    pub db: Arc<Database>,
    /// What keeps it: a directory that is removed with the value, or the turn at the cluster.
    pub place: Place,
}

/// Where a throw-away database is.
pub enum Place {
    /// In a temporary directory.
    Directory(TempDir),
    /// On the cluster that the environment names.
    Cluster {
        /// Ends with the value.
        _turn: MutexGuard<'static, ()>,
    },
}

impl Place {
    /// The database's URL, if it is an embedded one; tests of the engine alone end early without.
    pub fn embedded_url(&self) -> Option<String> {
        match self {
            Place::Directory(dir) => Some(format!("embedded:{}", dir.path().display())),
            Place::Cluster { .. } => None,
        }
    }
}

/// Starts the network, once in the process.
pub fn network() {
    static NETWORK: OnceLock<Network> = OnceLock::new();
    NETWORK.get_or_init(|| Network::start().unwrap());
}

/// Opens an empty database.
pub fn scratch() -> Scratch {
    static TURN: Mutex<()> = Mutex::new(());
    network();
    if let Ok(cluster) = std::env::var("KVQUEUE_TEST_CLUSTER_FILE") {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let db = Database::from_path(&cluster).unwrap();
        let tr = db.create_trx().unwrap();
        tr.clear_range(b"", b"\xff");
        block_on(tr.commit()).unwrap();
        return Scratch { db: Arc::new(db), place: Place::Cluster { _turn: turn } };
    }
    let dir = tempfile::tempdir().unwrap();
    let db = Database::from_path(&format!("embedded:{}", dir.path().display())).unwrap();
    Scratch { db: Arc::new(db), place: Place::Directory(dir) }
}
