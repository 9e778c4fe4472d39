//! Storage against files that are damaged, cut off, half written, or on a disk that fails.
//!
//! `KVQUEUE_TEST_SEEDS=N` runs N seeds of the random ones.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use super::sim::SimDisk;
use super::*;
use crate::engine::atomic::AtomicOp;
use crate::engine::faults::SplitMix;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn set(key: &[u8], value: &[u8]) -> Mutation {
    Mutation::Set { key: key.to_vec(), value: value.to_vec() }
}

/// Runs `test` with fresh seeds, and names the one that fails.
fn seeds(test: impl Fn(u64)) {
    struct Named(u64);
    impl Drop for Named {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("failed with KVQUEUE_TEST_SEED={}", self.0);
            }
        }
    }
    let variable = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = variable("KVQUEUE_TEST_SEED");
    let count = if first.is_some() { 1 } else { variable("KVQUEUE_TEST_SEEDS").unwrap_or(1) };
    for _ in 0..count {
        let seed = first.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let named = Named(seed);
        test(named.0);
    }
}

fn create(disk: &SimDisk) -> Storage {
    let health = Arc::new(Health::new(Path::new("sim")));
    let pages = Pages::create(Box::new(disk.clone()), Arc::clone(&health));
    let storage = Storage::with(pages, health, || ()).unwrap();
    storage.create_tables().unwrap();
    storage
}

fn open(disk: &SimDisk) -> Result<(Storage, i64), StorageError> {
    Storage::open_on(Box::new(disk.clone()), Arc::new(Health::new(Path::new("sim"))))
}

fn rows(storage: &Storage) -> Result<Model, StorageError> {
    let mut found = Model::new();
    for row in storage.snapshot()?.range(b"", b"\xff")? {
        let (key, value) = row?;
        found.insert(key.value().to_vec(), value.value().to_vec());
    }
    Ok(found)
}

/// Some mutations, and what they make of `model`.
fn batch(model: &mut Model, random: &mut SplitMix) -> Vec<Mutation> {
    let mut mutations = Vec::new();
    for _ in 0..=random.next() % 6 {
        let key = format!("{:03}", random.next() % 400).into_bytes();
        if random.next().is_multiple_of(5) {
            let end = format!("{:03}", random.next() % 400).into_bytes();
            if key < end {
                model.retain(|k, _| *k < key || *k >= end);
                mutations.push(Mutation::ClearRange { begin: key, end });
            }
        } else {
            let len = [9, 100, 3_000, 40_000][(random.next() % 37 / 12) as usize];
            let value = random.next().to_le_bytes().repeat(len / 8 + 1);
            mutations.push(set(&key, &value));
            model.insert(key, value);
        }
    }
    mutations
}

/// What was acknowledged when: the number of disk operations, the ceiling, and the keys.
type History = Vec<(usize, i64, Model)>;

/// Commits `batches` batches, and does not close the file.
fn history(disk: &SimDisk, batches: i64, random: &mut SplitMix) -> (Storage, History) {
    let storage = create(disk);
    let mut history = vec![(disk.moments(), 0, Model::new())];
    for ceiling in 1..=batches {
        let mut model = history.last().unwrap().2.clone();
        let mutations = batch(&mut model, random);
        storage.apply(&mutations, Some(ceiling)).unwrap();
        history.push((disk.moments(), ceiling, model));
        if random.next().is_multiple_of(5) {
            storage.settle().unwrap();
        }
    }
    (storage, history)
}

/// Opens what a crash after `moment` operations left: nothing that was acknowledged may be missing.
fn check_crash(bytes: Vec<u8>, moment: usize, history: &History, what: &str) -> SimDisk {
    let disk = SimDisk::new(bytes);
    let (storage, ceiling) = open(&disk).unwrap_or_else(|error| panic!("{what} at {moment}: {error}"));
    let acknowledged = history.iter().rposition(|(at, ..)| *at <= moment).unwrap();
    let candidates = history.iter().skip(acknowledged).take(2);
    let found = rows(&storage).unwrap();
    let is_one = |(_, c, model): &(usize, i64, Model)| *c == ceiling && *model == found;
    assert!(
        candidates.into_iter().any(is_one),
        "{what} at {moment}: ceiling {ceiling}, {acknowledged} batches"
    );
    storage.apply(&[set(b"more", b"1")], None).unwrap();
    drop(storage);
    open(&disk).unwrap_or_else(|error| panic!("{what} at {moment}, again: {error}"));
    disk
}

#[test]
fn mutations_apply_in_order_and_survive_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data.redb");
    let storage = Storage::create(&file).unwrap();
    let before = storage.snapshot().unwrap();
    let clear = Mutation::ClearRange { begin: b"a".to_vec(), end: b"c".to_vec() };
    let add = Mutation::Atomic { op: AtomicOp::Add, key: b"n".to_vec(), operand: vec![2] };
    let batch = [set(b"a", b"1"), set(b"b", b"2"), set(b"c", b"3"), clear, add.clone(), add, set(b"a", b"4")];
    storage.apply(&batch, Some(77)).unwrap();
    assert_eq!(before.get(b"c").unwrap(), None, "a snapshot does not move");
    drop(before);
    drop(storage);

    let (storage, ceiling) = Storage::open(&file).unwrap();
    assert_eq!(ceiling, 77);
    let expected = [(b"a", b"4".to_vec()), (b"c", b"3".to_vec()), (b"n", vec![4])];
    assert_eq!(rows(&storage).unwrap(), expected.map(|(k, v)| (k.to_vec(), v)).into());
}

#[test]
fn other_files_are_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data.redb");
    let error = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        Storage::open(&file).unwrap_err().to_string()
    };
    assert!(error(&b"not a database, but long enough to look at".repeat(400)).contains("another directory"));
    let old = dir.path().join("old.redb");
    drop(Database::create(&old).unwrap());
    let plain = error(&std::fs::read(&old).unwrap());
    assert!(plain.contains("format 1") && plain.contains("version that wrote it"), "{plain}");
    assert!(error(b"").contains("0 bytes long"), "an emptied file is not a new database");
}

#[test]
fn a_crash_at_any_moment_keeps_what_was_acknowledged() {
    seeds(|seed| {
        let mut random = SplitMix(seed);
        let disk = SimDisk::default();
        let (storage, history) = history(&disk, 40, &mut random);
        let first = history[0].0;
        drop(storage);
        for round in 0..150 {
            let moment = first + usize::try_from(random.next()).unwrap() % (disk.moments() - first + 1);
            let left = if round % 3 == 0 {
                check_crash(disk.after_kill(moment), moment, &history, "kill")
            } else {
                let bytes = disk.after_power_failure(moment, &mut random);
                check_crash(bytes, moment, &history, "power failure")
            };
            // And once more while that was being opened and written to.
            let again = usize::try_from(random.next()).unwrap() % (left.moments() + 1);
            let bytes = left.after_power_failure(again, &mut random);
            open(&SimDisk::new(bytes))
                .unwrap_or_else(|error| panic!("second failure at {moment}, {again}: {error}"));
        }
    });
}

/// Opens and reads a damaged file. An error has to name the file; rows have to be right.
fn check_damage(bytes: Vec<u8>, right: &[&Model], what: &str) -> bool {
    let read = open(&SimDisk::new(bytes)).and_then(|(storage, _)| rows(&storage));
    match read {
        Ok(found) => {
            assert!(right.contains(&&found), "{what}: wrong data was served");
            false
        }
        Err(StorageError::Panicked) => panic!("{what}: redb panicked"),
        Err(_) => true,
    }
}

fn flip_bits(bytes: &[u8], right: &[&Model], random: &mut SplitMix, what: &str) -> usize {
    let used: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    let mut found = 0;
    for round in 0..600_usize {
        let draw = usize::try_from(random.next() >> 8).unwrap();
        // A third of them where something is, a third in the first page, a third anywhere.
        let at = match round % 3 {
            0 => used[draw % used.len()],
            1 => draw % 2048,
            _ => draw % bytes.len(),
        };
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 1 << (random.next() % 8);
        found += usize::from(check_damage(damaged, right, &format!("{what}, byte {at}")));
    }
    found
}

#[test]
fn no_flipped_bit_is_served_as_data() {
    seeds(|seed| {
        let mut random = SplitMix(seed);
        let disk = SimDisk::default();
        let (storage, history) = history(&disk, 60, &mut random);
        let [.., before, newest] = &history[..] else { unreachable!("60 batches") };
        let crashed = disk.bytes();
        let in_flight = disk.after_kill(before.0 + (newest.0 - before.0) / 2);
        drop(storage);
        let found = [
            flip_bits(&disk.bytes(), &[&newest.2], &mut random, "closed"),
            flip_bits(&crashed, &[&newest.2], &mut random, "crashed"),
            flip_bits(&in_flight, &[&before.2, &newest.2], &mut random, "in flight"),
        ];
        assert!(found.iter().sum::<usize>() > 60, "too few were found for this to be a test: {found:?}");
    });
}

#[test]
fn a_page_in_the_place_of_another_is_found() {
    let disk = SimDisk::default();
    let (storage, history) = history(&disk, 60, &mut SplitMix(1));
    drop(storage);
    let bytes = disk.bytes();
    let pages: Vec<usize> = (2..bytes.len() / 4096).filter(|p| bytes[p * 4096] != 0).collect();
    let right = &history.last().unwrap().2;
    let mut found = 0;
    for pair in pages.windows(2) {
        let mut damaged = bytes.clone();
        damaged.copy_within(pair[0] * 4096..(pair[0] + 1) * 4096, pair[1] * 4096);
        found += usize::from(check_damage(damaged, &[right], "swapped"));
    }
    assert!(found > 3, "{found} of {}", pages.len());
}

#[test]
fn a_file_that_was_cut_off_is_refused() {
    seeds(|seed| {
        let mut random = SplitMix(seed);
        let disk = SimDisk::default();
        let (storage, history) = history(&disk, 60, &mut random);
        let crashed = disk.bytes();
        drop(storage);
        let right = &history.last().unwrap().2;
        for (bytes, what) in [(disk.bytes(), "closed"), (crashed, "crashed")] {
            for round in 0..100 {
                let mut len = usize::try_from(random.next() >> 8).unwrap() % bytes.len();
                if round % 2 == 0 {
                    len -= len % 4096;
                }
                check_damage(bytes[..len].to_vec(), &[right], &format!("{what}, {len} bytes"));
            }
        }
    });
}

#[test]
fn a_disk_that_fails_at_any_moment_loses_nothing_acknowledged() {
    let mut random = SplitMix(7);
    for healthy in (0..60).chain([90, 150, 200]) {
        let disk = SimDisk::default();
        let (storage, mut history) = history(&disk, 5, &mut random);
        disk.fail_after(healthy);
        let error = loop {
            let (_, ceiling, mut model) = history.last().unwrap().clone();
            let mutations = batch(&mut model, &mut random);
            match storage.apply(&mutations, Some(ceiling + 1)) {
                Ok(_) => history.push((disk.moments(), ceiling + 1, model)),
                Err(error) => {
                    // Unknown: it may be there.
                    history.push((usize::MAX, ceiling + 1, model));
                    break error;
                }
            }
        };
        let text = error.to_string();
        assert!(text.contains("sim") && text.contains("free space"), "{text}");
        assert_eq!(error.code(), Code::IO_ERROR);
        let again = storage.apply(&[set(b"a", b"b")], None).unwrap_err();
        assert_eq!(again.to_string(), text, "the cause stays the cause");
        drop(storage);
        check_crash(disk.bytes(), disk.moments(), &history, "full disk");
    }
}

#[test]
fn a_settled_file_opens_without_a_walk_until_the_next_batch() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data");
    let storage = Storage::create(&file).unwrap();
    let needs_repair = || {
        let copy = dir.path().join("copy");
        std::fs::copy(&file, &copy).unwrap();
        examine::contents(std::fs::File::open(&copy).unwrap(), &copy).unwrap().needs_repair
    };
    for round in 0..3 {
        storage.apply(&[set(b"k", &[round])], None).unwrap();
        assert!(needs_repair());
        storage.settle().unwrap();
        assert!(!needs_repair());
    }
}

#[test]
fn a_file_that_shrinks_survives_a_crash_at_any_moment() {
    let disk = SimDisk::default();
    let storage = create(&disk);
    let mut history = vec![(disk.moments(), 0, Model::new())];
    let mut most = 0;
    for ceiling in 1..=12_i64 {
        let mut model = history.last().unwrap().2.clone();
        let clear = Mutation::ClearRange { begin: vec![], end: vec![0xff] };
        let mutations: Vec<_> = match ceiling {
            1..=4 => (0..60_u8).map(|n| set(&[n, u8::try_from(ceiling).unwrap()], &[n; 30_000])).collect(),
            5 => vec![clear],
            _ => vec![set(b"k", &ceiling.to_le_bytes())],
        };
        for mutation in &mutations {
            match mutation {
                Mutation::Set { key, value } => drop(model.insert(key.clone(), value.clone())),
                _ => model.clear(),
            }
        }
        storage.apply(&mutations, Some(ceiling)).unwrap();
        history.push((disk.moments(), ceiling, model));
        most = most.max(disk.bytes().len());
    }
    let last = disk.moments();
    drop(storage);
    assert!(disk.bytes().len() < most, "it did not shrink");
    let mut random = SplitMix(5);
    // From the clear on.
    for moment in history[5].0..=last.max(disk.moments()) {
        check_crash(disk.after_kill(moment), moment, &history, "kill");
        check_crash(disk.after_power_failure(moment, &mut random), moment, &history, "power failure");
    }
}
