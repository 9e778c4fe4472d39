//! What the tests of this crate share: one network per process, an empty database per test.
//!
//! With `KVQUEUE_TEST_CLUSTER_FILE` set the tests run on that cluster instead of the embedded engine, one after
//! the other, and **each clears the whole cluster first**: the same expectations then hold for FoundationDB itself.
//!
//! With `KVQUEUE_TEST_GUEST` set each embedded database is hosted by a process of its own, and the tests are its guests:
//! the same expectations then hold over the socket.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fdb_embedded::testing::NetworkUse;
pub use fdb_embedded::testing::network;
use foundationdb::{Database, FdbError, Transaction};
use futures::executor::block_on;
use tempfile::TempDir;

pub use crate::helper::Helper;

/// A throw-away database.
pub struct Scratch {
    /// Its handle.
    pub db: Arc<Database>,
    /// What keeps it: a directory that is removed with the value, or the turn at the cluster.
    pub place: Place,
    _network: NetworkUse,
}

/// Where a throw-away database is.
pub enum Place {
    /// In a temporary directory, perhaps with the process that hosts it.
    Directory(TempDir, Option<Helper>),
    /// On the cluster that the environment names.
    Cluster {
        /// Ends with the value.
        _turn: MutexGuard<'static, ()>,
    },
}

impl Place {
    /// Is it a cluster?
    pub fn is_cluster(&self) -> bool {
        matches!(self, Place::Cluster { .. })
    }

    /// The database's URL, if this process hosts it; tests of the engine alone end early without.
    pub fn embedded_url(&self) -> Option<String> {
        match self {
            Place::Directory(_, Some(_)) => None,
            Place::Directory(dir, None) => Some(format!("embedded:{}", dir.path().display())),
            Place::Cluster { .. } => None,
        }
    }
}

/// Opens the embedded database in a directory.
pub fn open(directory: &Path) -> Database {
    network();
    Database::from_path(&format!("embedded:{}", directory.display())).unwrap()
}

/// A directory that another process hosts, and a handle of this one on it.
pub fn guest() -> (TempDir, Helper, Database) {
    let directory = tempfile::tempdir().unwrap();
    let host = Helper::start("hosts", directory.path());
    let db = open(directory.path());
    (directory, host, db)
}

/// One key's value, in a transaction of its own.
pub fn get(db: &Database, key: &[u8]) -> Result<Option<Vec<u8>>, FdbError> {
    block_on(async { Ok(db.create_trx()?.get(key, false).await?.map(|value| value.to_vec())) })
}

/// Sets one key, in a transaction of its own; the version of its commit.
pub fn set(db: &Database, key: &[u8], value: &[u8]) -> Result<i64, FdbError> {
    let tr = db.create_trx()?;
    tr.set(key, value);
    block_on(tr.commit())?.committed_version()
}

/// Sets rows, in one transaction.
pub async fn put(db: &Database, rows: &[(&[u8], &[u8])]) {
    let tr = db.create_trx().unwrap();
    rows.iter().for_each(|(key, value)| tr.set(key, value));
    tr.commit().await.unwrap();
}

/// The cluster on which tests run, if the environment names one.
pub fn cluster_file() -> Option<String> {
    std::env::var("KVQUEUE_TEST_CLUSTER_FILE").ok()
}

/// Opens an empty database.
pub fn scratch() -> Scratch {
    static TURN: Mutex<()> = Mutex::new(());
    let _network = network();
    if let Some(cluster) = cluster_file() {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let db = Database::from_path(&cluster).unwrap();
        let tr = db.create_trx().unwrap();
        tr.clear_range(b"", b"\xff");
        block_on(tr.commit()).unwrap();
        return Scratch { db: Arc::new(db), place: Place::Cluster { _turn: turn }, _network };
    }
    let dir = tempfile::tempdir().unwrap();
    let host = std::env::var_os("KVQUEUE_TEST_GUEST").map(|_| Helper::start("hosts", dir.path()));
    let db = open(dir.path());
    Scratch { db: Arc::new(db), place: Place::Directory(dir, host), _network }
}

pub fn helper_hosts(directory: &Path) {
    let _db = open(directory);
    Helper::ready_until_told();
}

/// An embedded database and a cluster, both empty, for tests that compare the two.
pub struct Twins {
    embedded: Database,
    cluster: Scratch,
    _directory: TempDir,
}

impl Twins {
    /// The embedded database and the cluster.
    pub fn dbs(&self) -> [&Database; 2] {
        [&self.embedded, &self.cluster.db]
    }
}

/// Both kinds of database at once; `None` unless `KVQUEUE_TEST_CLUSTER_FILE` names a cluster.
pub fn twins() -> Option<Twins> {
    let cluster = scratch();
    if !cluster.place.is_cluster() {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let embedded = open(directory.path());
    Some(Twins { embedded, cluster, _directory: directory })
}

/// Commits, and says with which error if that fails.
pub async fn commit(tr: Transaction) -> Result<(), i32> {
    tr.commit().await.map(drop).map_err(|error| error.code())
}

/// The code of an error, without the value of a success.
pub fn code<T>(result: Result<T, FdbError>) -> Result<(), i32> {
    result.map(drop).map_err(|error| error.code())
}

/// SplitMix64: random numbers that a seed repeats.
pub struct Rng(pub u64);

impl Rng {
    /// A seed: the environment's, or one of the clock's.
    pub fn seed() -> u64 {
        let clock = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos().into();
        std::env::var("KVQUEUE_TEST_SEED").map_or_else(|_| clock(), |seed| seed.parse().unwrap())
    }

    /// A time below `bound`.
    pub fn time_below(&mut self, bound: std::time::Duration) -> std::time::Duration {
        let micros = usize::try_from(bound.as_micros()).unwrap();
        std::time::Duration::from_micros(self.below(micros) as u64)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).unwrap()
    }
}
