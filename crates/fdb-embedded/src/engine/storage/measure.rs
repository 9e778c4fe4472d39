//! What the checksums cost: redb on a plain file and on ours, side by side.
//!
//! `cargo test --release -p fdb-embedded --lib storage::measure -- --ignored --nocapture`

use std::time::{Duration, Instant};

use super::*;

const COMMITS: u32 = 2_000;
const KEYS: u32 = 1_000_000;

fn set(n: u32) -> Mutation {
    // Multiplied so that neighbours in time are not neighbours in the file.
    Mutation::Set { key: n.wrapping_mul(2_654_435_761).to_be_bytes().to_vec(), value: vec![7; 100] }
}

fn plain(file: &Path) -> Storage {
    let db = Database::builder().set_cache_size(CACHE_BYTES).create(file).unwrap();
    let storage = Storage { db, health: Arc::new(Health::new(file)), meter: Arc::default() };
    storage.create_tables().unwrap();
    storage
}

fn per(time: Duration, count: u32) -> f64 {
    time.as_secs_f64() * 1e6 / f64::from(count)
}

fn both(dir: &Path) -> [(&'static str, std::path::PathBuf, Storage); 2] {
    let (a, b) = (dir.join("plain"), dir.join("checked"));
    let (plain, checked) = (plain(&a), Storage::create(&b).unwrap());
    [("plain", a, plain), ("checked", b, checked)]
}

/// How long a flush of an append of 512 bytes takes on this disk, microseconds.
fn flush_of_an_append(dir: &Path) -> f64 {
    use std::io::Write;
    let mut file = std::fs::File::create(dir.join("append")).unwrap();
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
    let storages = both(dir.path());
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
    let storages = both(dir.path());
    for (_, _, storage) in &storages {
        for n in 0..KEYS / 10_000 {
            let batch: Vec<_> = (n * 10_000..(n + 1) * 10_000).map(set).collect();
            storage.apply(&batch, Some(n.into())).unwrap();
        }
    }
    for _ in 0..3 {
        for (name, _, storage) in &storages {
            let snapshot = storage.snapshot().unwrap();
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
        let reopened = if name == "plain" { plain(&file) } else { Storage::open(&file).unwrap().0 };
        println!("{name:>8}: {:.2?} to open, {} bytes", started.elapsed(), file.metadata().unwrap().len());
        crashed(name, &file, &reopened);
    }
}

#[test]
#[ignore = "a measurement"]
fn what_settling_costs_and_gains() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data");
    let storage = Storage::create(&file).unwrap();
    let mut n = 0;
    for keys in [10_000, 100_000, 1_000_000] {
        while n < keys {
            let batch: Vec<_> = (n..n + 10_000).map(set).collect();
            storage.apply(&batch, None).unwrap();
            n += 10_000;
        }
        println!("{n} keys, {} MB", file.metadata().unwrap().len() / 1_000_000);
        for round in 0..3 {
            let started = Instant::now();
            (0..200).for_each(|i| drop(storage.apply(&[set(round * 200 + i)], None).unwrap()));
            let plain = per(started.elapsed(), 200);
            let started = Instant::now();
            (0..50).for_each(|_| storage.settle().unwrap());
            println!("  commit {plain:.0} us, settle {:.0} us", per(started.elapsed(), 50));
        }
        for settle in [false, true] {
            storage.apply(&[set(1)], None).unwrap();
            if settle {
                storage.settle().unwrap();
            }
            let copy = dir.path().join("copy");
            std::fs::copy(&file, &copy).unwrap();
            let started = Instant::now();
            drop(Storage::open(&copy).unwrap());
            println!("  settled {settle}: {:.1?} to open after a kill, and to close", started.elapsed());
        }
    }
}

/// Opens a copy made while the file was open, as after a crash.
fn crashed(name: &str, file: &Path, open: &Storage) {
    open.apply(&[set(1)], None).unwrap();
    let copy = file.with_extension("copy");
    std::fs::copy(file, &copy).unwrap();
    let started = Instant::now();
    let reopened = if name == "plain" { plain(&copy) } else { Storage::open(&copy).unwrap().0 };
    println!("{name:>8}: {:.2?} to open after a crash", started.elapsed());
    drop(reopened);
}
