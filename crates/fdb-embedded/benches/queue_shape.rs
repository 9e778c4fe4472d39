//! Items through a queue: does the cost of one stay flat as the total and the backlog grow?
//!
//! `cargo bench -p fdb-embedded --bench queue_shape -- ITEMS BACKLOG [DIR]` fills a queue in DIR/db to BACKLOG items of
//! 100 bytes, then moves ITEMS through it: one durable commit puts 100 in at the tail, one takes 100 out at the head.
//! A line for each tenth, then file size, memory and the time to open the directory again, after a clean close and
//! after a crash (a copy of the files while they were open). Next to it, on the same disk: how often a second an append
//! of 512 bytes is flushed.

#![expect(clippy::unwrap_used, reason = "a benchmark that fails should stop")]

mod disk;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fdb_embedded::Network;
use foundationdb::options::{MutationType, StreamingMode};
use foundationdb::{Database, RangeOption};
use futures::executor::block_on;

const FLUSHES: u32 = 2_000;
const BATCH: usize = 100;
const VALUE: [u8; 100] = [b'v'; 100];
/// The tuple prefix of the items of queue "q", as the queue layer writes it.
const ITEMS: &[u8] = b"\x01q\0\x01val\0\x33";
const ITEMS_END: &[u8] = b"\x01q\0\x01val\0\x34";
const PUSHED: &[u8] = b"\x01q\0\x01npush\0";
const POPPED: &[u8] = b"\x01q\0\x01npop\0";

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let mut number = |default| arguments.next().map_or(default, |n| n.parse::<usize>().unwrap());
    let (items, backlog) = (number(200_000), number(10_000));
    let scratch = tempfile::tempdir().unwrap();
    let place = arguments.next().map_or_else(|| scratch.path().to_owned(), PathBuf::from);
    std::fs::create_dir_all(&place).unwrap();
    let dir = place.join("db");
    let url = format!("embedded:{}", dir.display());

    println!("fdatasync of a 512-byte append: {:.0}/s", disk::flushes_per_second(&place, FLUSHES));
    let _network = Network::start().unwrap();
    let db = Database::from_path(&url).unwrap();
    println!("single-key commits, one client: {:.0}/s", single_commits(&db));
    for _ in 0..backlog / BATCH {
        block_on(push(&db));
    }
    println!(
        "{:>12} {:>10} {:>10} {:>10} {:>9} {:>8}",
        "items", "push us", "take us", "items/s", "file MB", "rss MB"
    );
    let tenth = (items / 10).max(BATCH);
    for part in 1..=10 {
        let (pushing, taking) = move_items(&db, tenth);
        let commits = tenth / BATCH;
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / commits as f64;
        println!(
            "{:>12} {:>10.0} {:>10.0} {:>10.0} {:>9.1} {:>8.0}",
            part * tenth,
            micros(pushing),
            micros(taking),
            tenth as f64 / (pushing + taking).as_secs_f64(),
            file_size(&dir) / 1e6,
            resident_megabytes(),
        );
    }
    let crashed = tempfile::tempdir_in(&place).unwrap();
    for file in ["data.redb", "log"] {
        std::fs::copy(dir.join(file), crashed.path().join(file)).unwrap();
    }
    let closing = Instant::now();
    drop(db);
    println!("close: {:?}", closing.elapsed());
    println!("open after a clean close: {:?}", open(&dir));
    println!("open after a crash: {:?}", open(crashed.path()));
}

async fn push(db: &Database) {
    let tr = db.create_trx().unwrap();
    for user_version in 0..BATCH {
        let mut key = ITEMS.to_vec();
        key.extend([0xff; 10]);
        key.extend(u16::try_from(user_version).unwrap().to_be_bytes());
        key.extend(u32::try_from(ITEMS.len()).unwrap().to_le_bytes());
        tr.atomic_op(&key, &VALUE, MutationType::SetVersionstampedKey);
    }
    tr.atomic_op(PUSHED, &(BATCH as u64).to_le_bytes(), MutationType::Add);
    tr.commit().await.unwrap();
}

async fn take(db: &Database) {
    let tr = db.create_trx().unwrap();
    let whole = RangeOption::from((ITEMS, ITEMS_END));
    let range = RangeOption { limit: Some(BATCH), mode: StreamingMode::WantAll, ..whole };
    let rows = tr.get_range(&range, 1, false).await.unwrap();
    assert_eq!(rows.len(), BATCH);
    let end = [rows.last().unwrap().key(), b"\0"].concat();
    tr.clear_range(rows.first().unwrap().key(), &end);
    tr.atomic_op(POPPED, &(BATCH as u64).to_le_bytes(), MutationType::Add);
    tr.commit().await.unwrap();
}

fn move_items(db: &Database, items: usize) -> (Duration, Duration) {
    let (mut pushing, mut taking) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..items / BATCH {
        let start = Instant::now();
        block_on(push(db));
        let middle = Instant::now();
        block_on(take(db));
        pushing += middle - start;
        taking += middle.elapsed();
    }
    (pushing, taking)
}

fn single_commits(db: &Database) -> f64 {
    let (count, start) = (2_000, Instant::now());
    for n in 0u32..count {
        let tr = db.create_trx().unwrap();
        tr.set(b"single", &n.to_le_bytes());
        block_on(tr.commit()).unwrap();
    }
    f64::from(count) / start.elapsed().as_secs_f64()
}

fn open(dir: &Path) -> Duration {
    let start = Instant::now();
    let db = Database::from_path(&format!("embedded:{}", dir.display())).unwrap();
    let tr = db.create_trx().unwrap();
    block_on(tr.get(PUSHED, false)).unwrap().unwrap();
    start.elapsed()
}

fn file_size(dir: &Path) -> f64 {
    File::open(dir.join("data.redb")).unwrap().metadata().unwrap().len() as f64
}

fn resident_megabytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0.0);
    pages * 4096.0 / 1e6
}
