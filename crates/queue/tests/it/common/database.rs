//! A database for one test.

use crate::common::fetch_options;
use std::sync::Arc;
use std::time::Duration;

use fdb_embedded::{Faults, Gate};
use foundationdb::options::DatabaseOption;
use foundationdb::{Database, RangeOption, Transaction};
use futures::TryStreamExt;
use futures::future::LocalBoxFuture;
use kvqueue_queue::{
    Approach, ItemOutcome, Lease, NewItem, PushOptions, Pushed, Queue, QueueError, RetryPolicy, Session,
    retry,
};
use tempfile::TempDir;

/// Longer than any transaction of a test takes. A test whose cluster has gone ends with an error, and does not wait for ever.
const PATIENCE_MS: i32 = 60_000;

/// The longest pause between two looks at the version.
const LOOK: Duration = Duration::from_millis(20);

/// A database, and a part of it that belongs to one test alone.
pub(crate) struct TestDb {
    pub(crate) db: Database,
    pub(crate) prefix: Vec<u8>,
    path: String,
    /// The embedded database's path; `None` on a cluster.
    url: Option<String>,
    _dir: Option<TempDir>,
}

/// What a transaction does. An object, since the compiler would translate `retry::run` again for each closure of a test.
trait Body<T> {
    fn on<'a>(&'a self, tr: &'a Transaction) -> LocalBoxFuture<'a, Result<T, QueueError>>;
}

impl<T, F: AsyncFn(&Transaction) -> Result<T, QueueError>> Body<T> for F {
    fn on<'a>(&'a self, tr: &'a Transaction) -> LocalBoxFuture<'a, Result<T, QueueError>> {
        Box::pin(self(tr))
    }
}

/// Runs a test on a database of its own, and clears what it wrote.
pub(crate) fn on_database(test: impl AsyncFnOnce(&TestDb)) {
    on_shared_database(async |t| test(&t).await);
}

/// The same for a test whose tasks use the database too.
pub(crate) fn on_shared_database(test: impl AsyncFnOnce(Arc<TestDb>)) {
    on_boxed_database(Box::new(|t| Box::pin(test(t))));
}

/// The same without type parameters: otherwise the compiler would translate it again for each test.
fn on_boxed_database<'a>(test: Box<dyn FnOnce(Arc<TestDb>) -> LocalBoxFuture<'a, ()> + 'a>) {
    let _network = fdb_embedded::testing::network();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let t = Arc::new(TestDb::open());
        test(Arc::clone(&t)).await;
        t.end_faults();
        let mut end = t.prefix.clone();
        end.push(0xff);
        t.run(async |tr| {
            tr.clear_range(&t.prefix, &end);
            Ok(())
        })
        .await;
    });
}

fn open(path: &str) -> Database {
    let db = Database::from_path(path).unwrap();
    // Back-off is not what is tested, and waiting it out is most of what a test with faults would do.
    db.set_option(DatabaseOption::TransactionMaxRetryDelay(2)).unwrap();
    db.set_option(DatabaseOption::TransactionTimeout(PATIENCE_MS)).unwrap();
    db
}

impl TestDb {
    fn open() -> TestDb {
        let prefix = format!("kvqueue-test/{}/", uuid::Uuid::now_v7()).into_bytes();
        let (url, dir) = match std::env::var("KVQUEUE_TEST_CLUSTER_FILE") {
            Ok(cluster) => (cluster, None),
            Err(_) => {
                let dir = tempfile::tempdir().unwrap();
                (format!("embedded:{}", dir.path().join("db").display()), Some(dir))
            }
        };
        TestDb { db: open(&url), prefix, path: url.clone(), url: dir.is_some().then_some(url), _dir: dir }
    }

    /// The embedded database's path. `None` on a cluster.
    pub(crate) fn embedded_url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// Another handle on the database.
    pub(crate) fn handle(&self) -> Arc<Database> {
        Arc::new(open(&self.path))
    }

    /// The queue `name` in this test's part.
    pub(crate) fn queue(&self, name: impl AsRef<[u8]>) -> Queue {
        Queue::new(&self.prefix, name.as_ref()).unwrap()
    }

    /// A new session at a queue.
    pub(crate) fn session(&self, queue: &Queue) -> Session {
        Session::new(queue.clone())
    }

    /// Lets commits from now on meet these faults. `false` on a cluster, which has only its own.
    pub(crate) fn install(&self, faults: Faults) -> bool {
        let Some(url) = &self.url else {
            println!("skipped: faults are injected into the embedded engine only");
            return false;
        };
        faults.install(url).unwrap();
        true
    }

    /// Closes a gate before all commits. `None` on a cluster, which has none.
    pub(crate) fn close_gate(&self) -> Option<Gate> {
        let Some(url) = &self.url else {
            println!("skipped: only the embedded engine has a gate");
            return None;
        };
        Some(Gate::close(url).unwrap())
    }

    /// Lets versions jump ahead, as they do when a cluster recovers. `false` on a cluster, where it does nothing.
    pub(crate) fn jump(&self, by: u64) -> bool {
        match &self.url {
            Some(url) => Gate::close(url).unwrap().advance(by),
            None => println!(
                "only in part: a test lets the versions of the embedded engine jump, and not a cluster's"
            ),
        }
        self.url.is_some()
    }

    /// Removes the claim of a sweeper that swept this queue before, as if its time was over, so that another one can sweep.
    pub(crate) async fn end_claim(&self, queue: &Queue) {
        let claim = super::record(queue, "sweep", b"");
        self.run(async |tr| {
            tr.clear(&claim);
            Ok(())
        })
        .await;
    }

    /// Ends all faults.
    pub(crate) fn end_faults(&self) {
        if let Some(url) = &self.url {
            Faults::remove(url).unwrap();
        }
    }

    /// The version that a transaction reads now.
    pub(crate) async fn version(&self) -> u64 {
        self.run(async |tr| Ok(tr.get_read_version().await?)).await.cast_unsigned()
    }

    /// Waits until transactions read a version above this one: as long as it takes a database to get there by itself.
    pub(crate) async fn until_past(&self, version: u64) {
        loop {
            let now = self.version().await;
            if now > version {
                return;
            }
            // A version is about a microsecond.
            tokio::time::sleep(Duration::from_micros(version - now + 1).min(LOOK)).await;
        }
    }

    /// Runs a body that may commit twice with the same result, until it has committed.
    pub(crate) async fn run<T>(&self, body: impl AsyncFn(&Transaction) -> Result<T, QueueError>) -> T {
        self.run_boxed(&body).await
    }

    async fn run_boxed<T>(&self, body: &dyn Body<T>) -> T {
        let policy = RetryPolicy::default();
        let done = retry::run(&self.db, &policy, |tr| async move {
            let value = body.on(&tr).await;
            (tr, value)
        });
        done.await.unwrap().value
    }

    /// Pushes in a transaction of its own.
    pub(crate) async fn push(&self, queue: &Queue, payloads: &[&str]) {
        self.session(queue).push(&self.db, payloads).await.unwrap();
    }

    /// Pushes items in a transaction of its own.
    pub(crate) async fn push_items(&self, queue: &Queue, items: &[NewItem]) -> Pushed {
        self.session(queue).push_items(&self.db, items, &PushOptions::default()).await.unwrap()
    }

    /// All rows of this test's part, the prefix taken off.
    pub(crate) async fn rows(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let end = [self.prefix.as_slice(), &[0xff]].concat();
        let row = |key: &[u8], value: &[u8]| (key[self.prefix.len()..].to_vec(), value.to_vec());
        self.run(async |tr| {
            let range = RangeOption::from((self.prefix.as_slice(), end.as_slice()));
            let pages: Vec<_> = tr.get_ranges(range, true).try_collect().await?;
            Ok(pages.iter().flatten().map(|found| row(found.key(), found.value())).collect())
        })
        .await
    }

    /// What follows (q, `second`) in the keys that begin so, and their values.
    pub(crate) async fn records(&self, queue: &Queue, second: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
        super::records(&self.rows().await, queue, second)
    }

    /// A counter of the queue.
    pub(crate) async fn counter(&self, queue: &Queue, name: &str) -> i64 {
        let records = self.records(queue, name).await;
        records.first().map_or(0, |(_, value)| i64::from_le_bytes(value[..].try_into().unwrap()))
    }

    /// Takes up to `n` items on a lease; `None` if there are none.
    pub(crate) async fn lease(&self, queue: &Queue, n: usize) -> Option<Lease> {
        let mut approach = Approach::Front;
        let mut take = fetch_options(n, 30_000_000, &mut approach, false);
        self.session(queue).fetch(&self.db, &mut take).await.unwrap().got
    }

    /// Settles all that is left of a lease alike.
    pub(crate) async fn acknowledge(&self, lease: &mut Lease, outcome: &ItemOutcome) {
        let all: Vec<_> = lease.open().map(|index| (index, outcome.clone())).collect();
        lease.acknowledge(&self.db, &RetryPolicy::default(), &all).await.unwrap();
    }

    /// The payloads in the queue, as text.
    pub(crate) async fn list(&self, queue: &Queue) -> Vec<String> {
        super::payloads(&self.run(async |tr| queue.list(tr).await).await)
    }

    /// The queue's length by its counters.
    pub(crate) async fn len(&self, queue: &Queue) -> i64 {
        self.run(async |tr| queue.len(tr).await).await
    }
}
