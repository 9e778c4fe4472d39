//! What the tests of this crate share: one network per process, a database of its own per test.

#![allow(dead_code, reason = "each test crate uses its own part of this")]
#![expect(clippy::allow_attributes, reason = "an expectation would fail in a crate that uses all of it")]

use std::sync::{Arc, OnceLock};

use fdb_embedded::Network;
use foundationdb::Database;
use tempfile::TempDir;

/// A throw-away database.
pub struct Scratch {
    /// Its handle.
    pub db: Arc<Database>,
    /// Its path as a database URL.
    pub url: String,
    /// Removed with the value.
    pub _dir: TempDir,
}

/// Starts the network, once.
pub fn network() {
    static NETWORK: OnceLock<Network> = OnceLock::new();
    NETWORK.get_or_init(|| Network::start().expect("nobody else starts it"));
}

/// Opens an empty database.
pub fn scratch() -> Scratch {
    network();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let url = format!("embedded:{}", dir.path().display());
    let db = Arc::new(Database::from_path(&url).expect("an empty directory opens"));
    Scratch { db, url, _dir: dir }
}
