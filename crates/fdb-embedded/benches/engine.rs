//! What the engine's parts cost next to what the disk allows, in one run, each measured in turn and the turns repeated.
//!
//! `cargo bench -p fdb-embedded --bench engine -- [ROUNDS] [DIR]` prints medians: how often a second an append of 512
//! bytes is flushed; durable commits of one small write, by one client and by 64, in this process and as a guest of
//! another; a point read; a row of a range read. Ratios are of the same round, then their median is taken.

#![expect(clippy::unwrap_used, reason = "a benchmark that fails should stop")]

mod disk;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use fdb_embedded::Network;
use foundationdb::options::StreamingMode;
use foundationdb::{Database, RangeOption};
use futures::executor::block_on;

const CLIENTS: u32 = 64;
const FLUSHES: u32 = 1_000;
const COMMITS: u32 = 1_000;
const COMMITS_OF_EACH: u32 = 50;
const READS: u32 = 20_000;
const ROWS: usize = 1_000;
const RANGE_READS: u32 = 200;
/// Tells this program to be the host of a directory until its standard input ends.
const HOST: &str = "FDB_EMBEDDED_BENCH_HOST";

fn main() {
    let _network = Network::start().unwrap();
    if let Some(directory) = std::env::var_os(HOST) {
        return host(Path::new(&directory));
    }
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let rounds = arguments.next().map_or(5, |n| n.parse::<usize>().unwrap());
    let scratch = tempfile::tempdir().unwrap();
    let place = arguments.next().map_or_else(|| scratch.path().to_owned(), PathBuf::from);
    let own = open(&place.join("own"));
    let mut hosting = start_host(&place.join("hosted"));
    let hosted = open(&place.join("hosted"));
    fill(&own);
    fill(&hosted);

    let rounds: Vec<Round> = (0..rounds).map(|_| Round::measure(&place, &own, &hosted)).collect();
    report(&rounds);
    drop(hosting.stdin.take());
    hosting.wait().unwrap();
}

/// Rates a second, and nanoseconds.
struct Round {
    flushes: f64,
    own: Costs,
    hosted: Costs,
}

struct Costs {
    one_client: f64,
    many_clients: f64,
    read_ns: f64,
    row_ns: f64,
}

impl Round {
    fn measure(place: &Path, own: &Arc<Database>, hosted: &Arc<Database>) -> Round {
        Round {
            flushes: disk::flushes_per_second(place, FLUSHES),
            own: Costs::measure(own),
            hosted: Costs::measure(hosted),
        }
    }
}

impl Costs {
    fn measure(db: &Arc<Database>) -> Costs {
        Costs {
            one_client: one_client(db),
            many_clients: many_clients(db),
            read_ns: block_on(point_reads(db)),
            row_ns: block_on(range_reads(db)),
        }
    }
}

fn report(rounds: &[Round]) {
    let median = |of: &dyn Fn(&Round) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    println!("{:<46} {:>12} {:>12}", "", "in process", "as a guest");
    let line = |name: &str, unit: &str, of: &dyn Fn(&Round, &Costs) -> f64| {
        let (own, hosted) = (median(&|r| of(r, &r.own)), median(&|r| of(r, &r.hosted)));
        println!("{name:<46} {own:>12.2} {hosted:>12.2} {unit}");
    };
    println!("{:<46} {:>12.0}", "flushes of a 512-byte append, a second", median(&|r| r.flushes));
    line("commits of one write, one client", "/s", &|_, c| c.one_client);
    line("  per flush", "x", &|r, c| c.one_client / r.flushes);
    line("commits of one write, 64 clients", "/s", &|_, c| c.many_clients);
    line("  compared with one client", "x", &|_, c| c.many_clients / c.one_client);
    line("  compared with 64 clients in process", "x", &|r, c| c.many_clients / r.own.many_clients);
    line("a point read", "us", &|_, c| c.read_ns / 1e3);
    line("a row of a range read of 1000", "us", &|_, c| c.row_ns / 1e3);
}

fn open(directory: &Path) -> Arc<Database> {
    Arc::new(Database::from_path(&format!("embedded:{}", directory.display())).unwrap())
}

fn host(directory: &Path) {
    let _db = open(directory);
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn start_host(directory: &Path) -> Child {
    let mut host = Command::new(std::env::current_exe().unwrap());
    let mut host = host.env(HOST, directory).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(host.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    host
}

fn fill(db: &Database) {
    let tr = db.create_trx().unwrap();
    for n in 0..ROWS {
        tr.set(&row(n), &[7; 100]);
    }
    block_on(tr.commit()).unwrap();
}

fn row(n: usize) -> Vec<u8> {
    format!("row/{n:08}").into_bytes()
}

async fn commit(db: &Database, client: u32, n: u32) {
    let tr = db.create_trx().unwrap();
    tr.set(&client.to_be_bytes(), &n.to_be_bytes());
    tr.commit().await.unwrap();
}

fn one_client(db: &Database) -> f64 {
    let start = Instant::now();
    for n in 0..COMMITS {
        block_on(commit(db, 0, n));
    }
    f64::from(COMMITS) / start.elapsed().as_secs_f64()
}

fn many_clients(db: &Arc<Database>) -> f64 {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let start = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let db = Arc::clone(db);
            runtime.spawn(async move {
                for n in 0..COMMITS_OF_EACH {
                    commit(&db, client, n).await;
                }
            })
        })
        .collect();
    for client in clients {
        runtime.block_on(client).unwrap();
    }
    f64::from(CLIENTS * COMMITS_OF_EACH) / start.elapsed().as_secs_f64()
}

async fn point_reads(db: &Database) -> f64 {
    // A guest keeps what it has read: each transaction reads each key once.
    let (mut reads, start) = (0, Instant::now());
    while reads < READS {
        let tr = db.create_trx().unwrap();
        for n in 0..ROWS {
            assert!(tr.get(&row(n), true).await.unwrap().is_some());
            reads += 1;
        }
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(reads)
}

async fn range_reads(db: &Database) -> f64 {
    let start = Instant::now();
    for _ in 0..RANGE_READS {
        let tr = db.create_trx().unwrap();
        let all = RangeOption::from((&b"row/"[..], &b"row0"[..]));
        let all = RangeOption { mode: StreamingMode::WantAll, limit: Some(ROWS), ..all };
        let (mut seen, mut next) = (0, Some(all));
        while let Some(range) = next {
            let rows = tr.get_range(&range, 1, true).await.unwrap();
            seen += rows.len();
            next = range.next_range(&rows);
        }
        assert_eq!(seen, ROWS);
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(RANGE_READS) / ROWS as f64
}
