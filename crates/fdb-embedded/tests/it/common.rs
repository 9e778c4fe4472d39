//! What the tests of this crate share: one network per process, an empty database per test.
//!
//! With `KVQUEUE_TEST_CLUSTER_FILE` set the tests run on that cluster instead of the embedded engine, one after
//! the other, and **each clears the whole cluster first**: the same expectations then hold for FoundationDB itself.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use fdb_embedded::Network;
use foundationdb::{Database, FdbError, Transaction};
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
    if cluster.place.embedded_url().is_some() {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let embedded = Database::from_path(&format!("embedded:{}", directory.path().display())).unwrap();
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

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).unwrap()
    }
}
