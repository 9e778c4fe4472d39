//! How takes that go on at the same time get along: throughput, and conflicts per take.
//!
//! ```sh
//! cargo bench -p kvqueue-queue --bench contention -- [--seconds S] [--dir DIR] [--only APPROACH] [--processes N] [--consumers N]
//!     [--k K] [--partitions N] [--bytes N] [--producer yes|no] [--items N] [--settle S]
//! KVQUEUE_TEST_CLUSTER_FILE=FILE FDB_CLIENT_LIB=LIB cargo bench -p kvqueue-queue --bench contention
//! ```
//!
//! Every cell processes a queue of 100-byte items for a few seconds: consumers in one, four or sixteen processes, K items per take, by
//! each approach, with and without a producer next to them. A consumer takes on a lease and finishes the batch. Consumers of one process
//! share a session and take turns, as the daemon's do. The column `partitions` is a queue with 8 partitions and a max-disorder of a second, or
//! with twice as many partitions as processes if these are more, 64 at most. Prints a table in Markdown.
//!
//! Other numbers of processes have to be asked for, with a consumer in each. `--settle` waits before the consumers begin and after they
//! have ended, and prints both moments to standard error, so that a script can read the cluster's status at both.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says why and ends")]

// The client library's symbols, for the linker.
use fdb_embedded as _;

mod cell;
mod worker;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cell::{Cell, approaches};
use fdb_embedded::Network;
use foundationdb::Database;
use kvqueue_queue::{Partitions, Queue, Session};
use worker::{Tally, work};

/// Tells a process that it is a worker of the benchmark: database, prefix, cell.
const WORKER: &str = "--worker";

/// Items per process and second that are there to be taken, with 10 to a take and more.
const PLENTY: usize = 150_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let _network = Network::start().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if let [WORKER, database, prefix, cell @ ..] =
        &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..]
    {
        runtime.block_on(be_worker(database, prefix, &Cell::parse(cell)));
        return;
    }
    let value = |flag: &str| arguments.iter().skip_while(|argument| *argument != flag).nth(1);
    let seconds = value("--seconds").map_or(2.0, |text| text.parse().unwrap());
    let chosen = Chosen {
        approach: value("--only").cloned(),
        processes: value("--processes").map(|text| text.parse().unwrap()),
        consumers: value("--consumers").map(|text| text.parse().unwrap()),
        k: value("--k").map(|text| text.parse().unwrap()),
        partitions: value("--partitions").map(|text| text.parse().unwrap()),
        producer: value("--producer").map(|text| text == "yes"),
        items: value("--items").map(|text| text.parse().unwrap()),
        settle: value("--settle").map(|text| Duration::from_secs_f64(text.parse().unwrap())),
        bytes: value("--bytes").map_or(100, |text| text.parse().unwrap()),
    };
    let above = value("--dir").map_or(std::env::temp_dir(), Into::into);
    std::fs::create_dir_all(&above).unwrap();
    let scratch = tempfile::tempdir_in(above).unwrap();
    let database = std::env::var("KVQUEUE_TEST_CLUSTER_FILE")
        .unwrap_or_else(|_| format!("embedded:{}", scratch.path().join("db").display()));
    runtime.block_on(bench(&database, Duration::from_secs_f64(seconds), &chosen));
}

/// What to measure; `None` is all there is.
struct Chosen {
    approach: Option<String>,
    processes: Option<usize>,
    /// In each process.
    consumers: Option<usize>,
    k: Option<usize>,
    partitions: Option<usize>,
    producer: Option<bool>,
    /// In a queue that is full from the start.
    items: Option<usize>,
    settle: Option<Duration>,
    bytes: usize,
}

async fn bench(database: &str, time: Duration, chosen: &Chosen) {
    let approaches: Vec<_> = approaches()
        .into_iter()
        .filter(|name| chosen.approach.as_ref().is_none_or(|only| only == name))
        .collect();
    println!("| processes x consumers | K | producer | {} |", approaches.join(" | "));
    println!("|---|---|---|{}", "---|".repeat(approaches.len()));
    let db = Arc::new(Database::from_path(database).unwrap());
    let mut crews = vec![(1, 1), (1, 4), (1, 16), (4, 1), (4, 4), (16, 1)];
    crews.extend(chosen.processes.filter(|n| crews.iter().all(|crew| crew.0 != *n)).map(|n| (n, 1)));
    crews.retain(|crew| chosen.processes.is_none_or(|n| n == crew.0));
    crews.retain(|crew| chosen.consumers.is_none_or(|n| n == crew.1));
    for (processes, consumers) in crews {
        for k in [1, 10, 100].into_iter().filter(|k| chosen.k.is_none_or(|only| only == *k)) {
            for producer in
                [false, true].into_iter().filter(|yes| chosen.producer.is_none_or(|only| only == *yes))
            {
                print!("| {processes} x {consumers} | {k} | {} |", if producer { "yes" } else { "no" });
                for approach in &approaches {
                    let approach = (*approach).to_owned();
                    let bytes = chosen.bytes;
                    let cell = Cell { processes, consumers, k, producer, approach, time, bytes };
                    print!(" {} |", run(database, &db, &cell, chosen).await);
                    std::io::stdout().flush().unwrap();
                }
                println!();
            }
        }
    }
}

/// Runs one cell on a queue of its own; the first process is this one.
async fn run(database: &str, db: &Arc<Database>, cell: &Cell, chosen: &Chosen) -> Tally {
    let prefix = format!("kvqueue-contention/{}/", uuid::Uuid::now_v7());
    let queue = Queue::new(prefix.as_bytes(), b"q").unwrap();
    if cell.approach == "partitions" {
        divide(db, &queue, chosen.partitions.unwrap_or((2 * cell.processes).clamp(8, 64))).await;
    }
    if !cell.producer {
        fill(db, &queue, cell, chosen.items).await;
    }
    let mut others: Vec<Child> = (1..cell.processes).map(|_| spawn(database, &prefix, cell)).collect();
    let mut outputs: Vec<_> =
        others.iter_mut().map(|other| BufReader::new(other.stdout.take().unwrap()).lines()).collect();
    outputs.iter_mut().for_each(|lines| assert_eq!(lines.next().unwrap().unwrap(), "ready"));
    if let Some(settle) = chosen.settle {
        tokio::time::sleep(settle).await;
        eprintln!("begins");
    }
    others.iter_mut().for_each(|other| writeln!(other.stdin.as_mut().unwrap(), "go").unwrap());
    let mut tally = work(db, &queue, cell, cell.producer).await;
    for (mut other, mut lines) in others.into_iter().zip(outputs) {
        let line = tokio::task::block_in_place(|| lines.next().unwrap().unwrap());
        tally += Tally::parse(&line);
        assert!(other.wait().unwrap().success());
    }
    if let Some(settle) = chosen.settle {
        eprintln!("ends {}", tally.line());
        tokio::time::sleep(settle).await;
    }
    let tr = db.create_trx().unwrap();
    queue.delete(&tr);
    tr.commit().await.unwrap();
    tally
}

async fn divide(db: &Database, queue: &Queue, partitions: usize) {
    let tr = db.create_trx().unwrap();
    let partitions = Partitions::new(partitions, Duration::from_secs(1)).unwrap();
    queue.set_partitions(&tr, partitions).await.unwrap();
    tr.commit().await.unwrap();
}

async fn fill(db: &Database, queue: &Queue, cell: &Cell, items: Option<usize>) {
    let seconds = cell.time.as_secs_f64();
    // Large items are taken more slowly.
    let plenty = if cell.k == 1 { 30_000.0 } else { PLENTY as f64 } / (cell.bytes as f64 / 100.0).max(1.0);
    let items = items.unwrap_or((plenty * seconds) as usize);
    let mut session = Session::new(queue.clone());
    let payloads = vec![vec![7; cell.bytes]; (1_000_000 / cell.bytes.max(100)).clamp(10, 2_000)];
    for _ in 0..items.div_ceil(payloads.len()) {
        session.push(db, &payloads).await.unwrap();
    }
}

fn spawn(database: &str, prefix: &str, cell: &Cell) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([WORKER, database, prefix])
        .args(cell.arguments())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

async fn be_worker(database: &str, prefix: &str, cell: &Cell) {
    let db = Arc::new(Database::from_path(database).unwrap());
    let queue = Queue::new(prefix.as_bytes(), b"q").unwrap();
    // The first transaction connects; that is not what is measured.
    db.create_trx().unwrap().get_read_version().await.unwrap();
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    println!("{}", work(&db, &queue, cell, false).await.line());
}
