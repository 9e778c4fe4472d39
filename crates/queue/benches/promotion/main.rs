//! How fast items that are all due at once become ready: items a second, with one process that sweeps, and with several.
//!
//! ```sh
//! cargo bench -p kvqueue-queue --bench promotion -- [--items N] [--processes N]
//! KVQUEUE_TEST_CLUSTER_FILE=FILE FDB_CLIENT_LIB=LIB cargo bench -p kvqueue-queue --bench promotion
//! ```
//!
//! Schedules items of 100 bytes for one second, lets that pass, and then sweeps until none is scheduled any more. Prints a table in Markdown.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says why and ends")]

// The client library's symbols, for the linker.
use fdb_embedded as _;

use std::process::{Child, Command};
use std::time::{Duration, Instant, SystemTime};

use fdb_embedded::Network;
use foundationdb::{Database, FdbBindingError};
use kvqueue_queue::{NewItem, PushOptions, Queue, Session, SweepRules, Sweeper, VersionHistory};

/// Tells a process that it sweeps: database, prefix.
const SWEEP: &str = "--sweep";

/// The most items of one push.
const PUSH: usize = 500;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let _network = Network::start().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if let [SWEEP, database, prefix] = &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return runtime.block_on(sweep(&Database::from_path(database).unwrap(), &queue(prefix)));
    }
    let value = |flag: &str| arguments.iter().skip_while(|argument| *argument != flag).nth(1);
    let items = value("--items").map_or(100_000, |text| text.parse().unwrap());
    let processes: Option<usize> = value("--processes").map(|text| text.parse().unwrap());
    let scratch = tempfile::tempdir().unwrap();
    let database = std::env::var("KVQUEUE_TEST_CLUSTER_FILE")
        .unwrap_or_else(|_| format!("embedded:{}", scratch.path().join("db").display()));
    println!("| processes | items | items/s |\n|---|---|---|");
    for processes in [1, 2].into_iter().filter(|n| processes.is_none_or(|only| only == *n)) {
        let took = runtime.block_on(promote(&database, items, processes));
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = items as f64 / took.as_secs_f64();
        println!("| {processes} | {items} | {rate:.0} |");
    }
}

fn queue(prefix: &str) -> Queue {
    Queue::new(prefix.as_bytes(), b"promotion").unwrap()
}

/// How long it takes until all items are ready.
async fn promote(database: &str, items: usize, processes: usize) -> Duration {
    let (db, prefix) =
        (Database::from_path(database).unwrap(), format!("kvqueue-bench/{}/", uuid::Uuid::now_v7()));
    let queue = queue(&prefix);
    // Longer than the pushes take.
    let due = SystemTime::now() + Duration::from_secs(2 + items as u64 / 5_000);
    let items: Vec<_> = (0..items).map(|_| NewItem::new(vec![b'x'; 100]).with_due(due)).collect();
    let mut session = Session::new(queue.clone());
    for page in items.chunks(PUSH) {
        session.push_items(&db, page, &PushOptions::default()).await.unwrap();
    }
    tokio::time::sleep(due.duration_since(SystemTime::now()).unwrap_or_default()).await;
    let begun = Instant::now();
    let sweepers: Vec<_> = (0..processes).map(|_| start(database, &prefix)).collect();
    while waiting(&db, &queue).await > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let took = begun.elapsed();
    for mut sweeper in sweepers {
        assert!(sweeper.wait().unwrap().success(), "a sweeper failed");
    }
    took
}

fn start(database: &str, prefix: &str) -> Child {
    Command::new(std::env::current_exe().unwrap()).args([SWEEP, database, prefix]).spawn().unwrap()
}

/// Sweeps until nothing is scheduled any more.
async fn sweep(db: &Database, queue: &Queue) {
    let begun = Instant::now();
    let mut sweeper = Sweeper::new(queue.clone(), VersionHistory::new(move || begun.elapsed()));
    while waiting(db, queue).await > 0 {
        let swept = sweeper.sweep(db, &SystemTime::now, &SweepRules::default()).await.unwrap();
        assert!(swept.trouble.is_none(), "{:?}", swept.trouble);
        if !swept.next.is_zero() {
            tokio::time::sleep(swept.next.min(Duration::from_millis(20))).await;
        }
    }
}

/// How many items wait for their time.
async fn waiting(db: &Database, queue: &Queue) -> i64 {
    let counted =
        db.run(async |tr, _| queue.counts(&tr).await.map_err(FdbBindingError::from).map(|it| it.waiting));
    counted.await.unwrap()
}
