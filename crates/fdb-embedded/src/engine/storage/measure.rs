//! Measures the cost of the checksums and the gain of the log: redb on a plain file, on ours, and with the log, side by side.
//!
//! `cargo test --release -p fdb-embedded --lib storage::measure -- --ignored --nocapture`

use crate::engine::directory::private_options;
use std::time::{Duration, Instant};

use super::*;

const COMMITS: u32 = 2_000;
const KEYS: u32 = 1_000_000;

fn set(n: u32) -> Mutation {
    // Multiplied so that neighbours in time are not neighbours in the file.
    Mutation::Set { key: n.wrapping_mul(2_654_435_761).to_be_bytes().to_vec(), value: vec![7; 100] }
}

/// redb alone, every commit durable; redb alone on pages with checksums; and with the log in front of that.
enum Kind {
    Redb(Tree),
    Whole(Box<Storage>),
}

impl Kind {
    fn plain(file: &Path) -> Kind {
        let db = redb::Database::builder().set_cache_size(CACHE_BYTES).create(file).unwrap();
        let tree = Tree::plain(db, Arc::new(FailureLatch::new(file)));
        tree.create_tables().unwrap();
        Kind::Redb(tree)
    }

    fn checked(file: &Path) -> Kind {
        if !file.exists() {
            Storage::create(file).unwrap();
        }
        let latch = Arc::new(FailureLatch::new(file));
        let disk = private_options().open(file).unwrap();
        let pages = Pages::open(Box::new(disk), Arc::clone(&latch)).unwrap();
        Kind::Redb(Tree::open(pages, latch, || ()).unwrap())
    }

    fn whole(file: &Path) -> Kind {
        if !file.exists() {
            Storage::create(file).unwrap();
        }
        Kind::Whole(Box::new(Storage::open(file, &file.with_extension("log")).unwrap().0))
    }

    fn open(name: &str, file: &Path) -> Kind {
        match name {
            "plain" => Kind::plain(file),
            "checked" => Kind::checked(file),
            _ => Kind::whole(file),
        }
    }

    fn apply(&self, mutations: &[Mutation], ceiling: Option<i64>) -> Result<(), StorageError> {
        let batch = WriteBatch { version: 1, ceiling, mutations: mutations.to_vec() };
        match self {
            Kind::Redb(tree) => {
                tree.apply(TreeWrites::of(&batch.mutations), ceiling, 1, TreeCommit::Durable).map(drop)
            }
            Kind::Whole(storage) => storage.apply(batch, Durability::Flushed).map(drop),
        }
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        match self {
            Kind::Redb(tree) => Arc::new(tree.snapshot().unwrap()),
            Kind::Whole(storage) => {
                storage.checkpoint().unwrap();
                storage.superversion().snapshot().unwrap()
            }
        }
    }
}

fn per(time: Duration, count: u32) -> f64 {
    time.as_secs_f64() * 1e6 / f64::from(count)
}

fn all(dir: &Path) -> [(&'static str, std::path::PathBuf, Kind); 3] {
    ["plain", "checked", "whole"].map(|name| (name, dir.join(name), Kind::open(name, &dir.join(name))))
}

/// How long a flush of an append of 512 bytes takes on this disk, microseconds.
fn flush_of_an_append(dir: &Path) -> f64 {
    use std::io::Write;
    let mut file = File::create(dir.join("append")).unwrap();
    let started = Instant::now();
    for _ in 0..2_000 {
        file.write_all(&[7; 512]).unwrap();
        file.sync_data().unwrap();
    }
    per(started.elapsed(), 2_000)
}

#[test]
#[ignore = "a measurement"]
fn what_a_commit_costs() {
    let dir = tempfile::tempdir().unwrap();
    let storages = all(dir.path());
    for round in 0..6 {
        println!("  append: {:6.1} us per flush of 512 bytes", flush_of_an_append(dir.path()));
        for (name, _, storage) in &storages {
            let started = Instant::now();
            for n in 0..COMMITS {
                storage.apply(&[set(round * COMMITS + n)], None).unwrap();
            }
            println!("{name:>8}: {:6.1} us per commit of one key", per(started.elapsed(), COMMITS));
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn what_reads_cost() {
    let dir = tempfile::tempdir().unwrap();
    let storages = all(dir.path());
    for (_, _, storage) in &storages {
        for n in 0..KEYS / 10_000 {
            let batch: Vec<_> = (n * 10_000..(n + 1) * 10_000).map(set).collect();
            storage.apply(&batch, Some(n.into())).unwrap();
        }
    }
    for _ in 0..3 {
        for (name, _, storage) in &storages {
            let snapshot = storage.snapshot();
            let started = Instant::now();
            for n in 0..200_000_u32 {
                let key = (n.wrapping_mul(7_919) % KEYS).wrapping_mul(2_654_435_761).to_be_bytes();
                snapshot.get(&key).unwrap().unwrap();
            }
            println!("{name:>8}: {:6.2} us per random read of {KEYS}", per(started.elapsed(), 200_000));
            let started = Instant::now();
            let rows = snapshot.range(b"", b"\xff").unwrap().map(Result::unwrap).count();
            println!("{name:>8}: {:6.3} us per row of {rows}", per(started.elapsed(), KEYS));
        }
    }
    for (name, file, storage) in storages {
        drop(storage);
        let started = Instant::now();
        let reopened = Kind::open(name, &file);
        println!("{name:>8}: {:.2?} to open, {} bytes", started.elapsed(), file.metadata().unwrap().len());
        crashed(name, &file, &reopened);
    }
}

#[test]
#[ignore = "a measurement"]
fn what_a_durable_commit_of_all_costs_and_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let storage = Kind::open("whole", &at("data"));
    let mut n = 0;
    for keys in [10_000, 100_000, 1_000_000] {
        while n < keys {
            let batch: Vec<_> = (n..n + 10_000).map(set).collect();
            storage.apply(&batch, None).unwrap();
            n += 10_000;
        }
        println!("{n} keys, {} MB", at("data").metadata().unwrap().len() / 1_000_000);
        let (mut longest, started) = (Duration::ZERO, Instant::now());
        for i in 0..60_000 {
            let begun = Instant::now();
            storage.apply(&[set(i * 7_919 % keys)], None).unwrap();
            longest = longest.max(begun.elapsed());
        }
        println!("  commit of one key {:.0} us, the longest {longest:.1?}", per(started.elapsed(), 60_000));
        for name in ["data", "data.log"] {
            std::fs::copy(at(name), at(&name.replace("data", "copy"))).unwrap();
        }
        let started = Instant::now();
        let copy = Kind::open("whole", &at("copy"));
        println!("  {:.1?} to open after a kill", started.elapsed());
        drop(copy);
    }
}

/// Opens a copy made while the file was open, as after a crash.
fn crashed(name: &str, file: &Path, open: &Kind) {
    open.apply(&[set(1)], None).unwrap();
    let copy = file.with_file_name("copy");
    std::fs::copy(file, &copy).unwrap();
    let _ = std::fs::copy(file.with_extension("log"), copy.with_extension("log"));
    let started = Instant::now();
    let reopened = Kind::open(name, &copy);
    println!("{name:>8}: {:.2?} to open after a crash", started.elapsed());
    drop(reopened);
}
