//! Storage against files that are damaged, cut off, half written, or on a disk that fails.
//!
//! `KVQUEUE_TEST_SEEDS=N` runs N seeds of the random ones.

mod env;
mod golden;
mod log;
mod once;
mod pinned;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::ControlFlow;

use std::sync::atomic::AtomicUsize;

use self::env::{SimEnv, begin};
use super::sim::{Atomic, SimDisk};
use super::*;
use crate::engine::atomic::AtomicOp;
use crate::engine::delta::Delta;
use crate::engine::faults::SplitMix;
use crate::rows::Direction;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

thread_local! {
    /// The version of the last batch.
    static VERSION: Cell<i64> = const { Cell::new(0) };
}

/// Atomic operations that a batch may have.
const ATOMIC: [AtomicOp; 6] = [
    AtomicOp::Add,
    AtomicOp::Xor,
    AtomicOp::AppendIfFits,
    AtomicOp::Max,
    AtomicOp::ByteMin,
    AtomicOp::CompareAndClear,
];

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
        begin(seed);
        test(named.0);
    }
}

/// redb's file and the log.
#[derive(Debug, Clone)]
struct Files {
    data: SimDisk,
    log: SimDisk,
}

/// What the two hold.
type Bytes = [Vec<u8>; 2];

impl Files {
    fn new(bytes: &Bytes) -> Files {
        let [data, log] = SimDisk::several(bytes);
        Files { data, log }
    }

    fn bytes(&self) -> Bytes {
        [self.data.bytes(), self.log.bytes()]
    }

    fn moments(&self) -> usize {
        self.data.moments()
    }

    fn has_failed_flush(&self) -> bool {
        self.data.has_failed_flush() || self.log.has_failed_flush()
    }

    fn after_kill(&self, moment: usize) -> Bytes {
        [self.data.after_kill(moment), self.log.after_kill(moment)]
    }

    /// One of many states that a power failure may leave, on a disk that writes sectors, or blocks, or nothing at once.
    fn after_power_failure(&self, moment: usize, random: &mut SplitMix) -> Bytes {
        let atomic = [Atomic::Sector, Atomic::Block, Atomic::Nothing][(random.next() % 3) as usize];
        // The log never writes to a block that holds what was flushed. The other file does; there a block that is torn holds
        // what was written and what was there.
        let of_log = if atomic == Atomic::Nothing { Atomic::Destroyed } else { atomic };
        [
            self.data.after_power_failure(moment, atomic, random),
            self.log.after_power_failure(moment, of_log, random),
        ]
    }
}

/// So short that it is filled, and grows, and is too short for some batches, within a few of them.
const SHORT: Bounds = Bounds { first: 16 << 10, step: 16 << 10, most: 96 << 10 };

fn health() -> Arc<Health> {
    Arc::new(Health::new(Path::new("sim")))
}

/// A file with tables and nothing in them, and no log yet.
fn created() -> Files {
    let data = SimDisk::default();
    let health = health();
    let pages = Pages::create(Box::new(data.clone()), Arc::clone(&health));
    Tree::open(pages, health, || ()).unwrap().create_tables().unwrap();
    Files::new(&[data.bytes(), Vec::new()])
}

fn create() -> (Files, Storage) {
    let files = created();
    let (storage, ceiling) = open(&files).unwrap();
    assert_eq!(ceiling, 0);
    (files, storage)
}

fn open(files: &Files) -> Result<(Storage, i64), StorageError> {
    let health = health();
    let pages = Pages::open(Box::new(files.data.clone()), Arc::clone(&health))?;
    let of_log = Arc::new(health.beside(Path::new("sim-log")));
    Storage::with(pages, health, &of_log, SHORT, Box::new(SimEnv::new()), |_| Ok(Box::new(files.log.clone())))
}

fn apply(storage: &Storage, mutations: &[Mutation], ceiling: Option<i64>) -> Result<Changed, StorageError> {
    apply_as(storage, mutations, ceiling, Durability::Flushed)
}

fn apply_as(
    storage: &Storage,
    mutations: &[Mutation],
    ceiling: Option<i64>,
    durability: Durability,
) -> Result<Changed, StorageError> {
    let version = VERSION.get() + 1;
    VERSION.set(version);
    storage.apply(Batch { version, ceiling, mutations: mutations.to_vec() }, durability)
}

fn rows(storage: &Storage) -> Result<Model, StorageError> {
    let mut found = Model::new();
    let _all = storage.state().newest(|at| {
        at.scan(b"", b"\xff", Direction::Forward, &mut |key, value| {
            found.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        })
    })?;
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
        } else if random.next().is_multiple_of(3) {
            let op = ATOMIC[(random.next() % 6) as usize];
            // Small numbers, so that what is compared is equal now and then.
            let operand = (random.next() % 3).to_le_bytes().to_vec();
            match op.apply(model.get(&key).map(Vec::as_slice), &operand) {
                Some(value) => drop(model.insert(key.clone(), value)),
                None => drop(model.remove(&key)),
            }
            mutations.push(Mutation::Atomic { op, key, operand });
        } else {
            let len = [9, 100, 3_000, 40_000][(random.next() % 37 / 12) as usize];
            let value = random.next().to_le_bytes().repeat(len / 8 + 1);
            mutations.push(set(&key, &value));
            model.insert(key, value);
        }
    }
    mutations
}

/// A batch that was acknowledged.
#[derive(Debug, Clone)]
struct Acknowledged {
    /// After how many disk operations.
    at: usize,
    /// After how many of them it had been flushed, too.
    flushed: usize,
    ceiling: i64,
    model: Model,
}

impl Acknowledged {
    /// Of one that was flushed.
    fn new(at: usize, ceiling: i64, model: Model) -> Acknowledged {
        Acknowledged { at, flushed: at, ceiling, model }
    }
}

type History = Vec<Acknowledged>;

/// How a process ends that has not closed its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Crash {
    Kill,
    PowerFailure,
}

/// Commits `batches` batches, some of them without waiting for the disk, and does not close the files.
fn history(batches: i64, random: &mut SplitMix) -> (Files, Storage, History) {
    let (files, storage) = create();
    let mut history = vec![Acknowledged::new(files.moments(), 0, Model::new())];
    for ceiling in 1..=batches {
        let mut model = history.last().unwrap().model.clone();
        let mutations = batch(&mut model, random);
        let is_flushed = random.unit() < 0.6;
        let durability = if is_flushed { Durability::Flushed } else { Durability::Written };
        apply_as(&storage, &mutations, Some(ceiling), durability).unwrap();
        let mut acknowledged = Acknowledged::new(files.moments(), ceiling, model);
        acknowledged.flushed = usize::MAX;
        history.push(acknowledged);
        let what_else = random.next() % 10;
        if is_flushed || what_else < 3 {
            match what_else {
                0 | 1 => drop(storage.settle().unwrap()),
                2 => drop(storage.rest().unwrap()),
                _ => {}
            }
            history.iter_mut().for_each(|batch| batch.flushed = batch.flushed.min(files.moments()));
        }
    }
    (files, storage, history)
}

/// Opens what a crash after `moment` operations left: nothing that was acknowledged may be missing.
fn check_crash(bytes: &Bytes, moment: usize, history: &History, what: Crash) -> (Files, Model) {
    let files = Files::new(bytes);
    let (storage, ceiling) = open(&files).unwrap_or_else(|error| panic!("{what:?} at {moment}: {error}"));
    let written = history.iter().rposition(|batch| batch.at <= moment).unwrap();
    let acknowledged = match what {
        Crash::Kill => written,
        Crash::PowerFailure => history.iter().rposition(|batch| batch.flushed <= moment).unwrap(),
    };
    let found = rows(&storage).unwrap();
    // And perhaps the one that was under way.
    let candidates = &history[acknowledged..history.len().min(written + 2)];
    assert!(
        candidates.iter().any(|batch| batch.ceiling == ceiling && batch.model == found),
        "{what:?} at {moment}: ceiling {ceiling}, {acknowledged} batches"
    );
    for more in [b"1", b"2", b"3"] {
        apply(&storage, &[set(b"more", more)], None).unwrap();
    }
    drop(storage);
    let (storage, _) = open(&files).unwrap_or_else(|error| panic!("{what:?} at {moment}, again: {error}"));
    let mut expected = found.clone();
    expected.insert(b"more".to_vec(), b"3".to_vec());
    assert!(rows(&storage).unwrap() == expected, "{what:?} at {moment}, again");
    (files, found)
}

#[test]
fn mutations_apply_in_order_and_survive_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let (file, log) = (dir.path().join("data.redb"), dir.path().join("log"));
    Storage::create(&file).unwrap();
    let (storage, _) = Storage::open(&file, &log).unwrap();
    let before = storage.state().snapshot().unwrap();
    let clear = Mutation::ClearRange { begin: b"a".to_vec(), end: b"c".to_vec() };
    let add = Mutation::Atomic { op: AtomicOp::Add, key: b"n".to_vec(), operand: vec![2] };
    let batch =
        [set(b"a", b"1"), set(b"b", b"2"), set(b"c", b"3"), clear, add.clone(), add.clone(), set(b"a", b"4")];
    // The first goes to redb's file, the second to the log.
    apply(&storage, &batch, Some(76)).unwrap();
    apply(&storage, &[add, set(b"a", b"5")], Some(77)).unwrap();
    assert_eq!(before.get(b"c").unwrap(), None, "a snapshot does not move");
    drop(before);
    let expected = [(b"a", b"5".to_vec()), (b"c", b"3".to_vec()), (b"n", vec![6])];
    let expected = expected.map(|(k, v)| (k.to_vec(), v)).into();
    let check = |file: &Path, log: &Path| {
        let (storage, ceiling) = Storage::open(file, log).unwrap();
        assert_eq!((ceiling, rows(&storage).unwrap()), (77, Model::clone(&expected)));
    };
    let copy = [dir.path().join("copy"), dir.path().join("copied log")];
    std::fs::copy(&file, &copy[0]).unwrap();
    std::fs::copy(&log, &copy[1]).unwrap();
    drop(storage);
    check(&file, &log);
    check(&copy[0], &copy[1]);
}

#[test]
fn other_files_are_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data.redb");
    let error = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        Storage::open(&file, &dir.path().join("log")).unwrap_err().to_string()
    };
    assert!(error(&b"not a database, but long enough to look at".repeat(400)).contains("another directory"));
    let old = dir.path().join("old.redb");
    drop(redb::Database::create(&old).unwrap());
    let plain = error(&std::fs::read(&old).unwrap());
    assert!(plain.contains("format 1") && plain.contains("version that wrote it"), "{plain}");
    assert!(error(b"").contains("0 bytes long"), "an emptied file is not a new database");
    assert!(!dir.path().join("log").exists(), "nothing was made beside it");
}

#[test]
fn a_file_of_format_2_is_brought_up_to_date_whenever_it_is_cut_off() {
    let disk = SimDisk::default();
    let health = health();
    let tree = Tree::open(Pages::create(Box::new(disk.clone()), Arc::clone(&health)), health, || ()).unwrap();
    tree.create_like_format_2(&[(b"k", b"v")], 12);
    drop(tree);
    let mut old = disk.bytes();
    superblock::set_format(&mut old, 2);
    let files = Files::new(&[old.clone(), Vec::new()]);
    let (storage, ceiling) = open(&files).unwrap();
    apply(&storage, &[set(b"l", b"w")], Some(13)).unwrap();
    apply(&storage, &[set(b"m", b"x")], Some(14)).unwrap();
    drop(storage);
    assert_eq!(ceiling, 12);
    let mut random = SplitMix(2);
    for moment in 0..=files.moments() {
        let lost = [files.after_kill(moment), files.after_power_failure(moment, &mut random)];
        for (bytes, what) in lost.into_iter().zip(["kill", "power failure"]) {
            let format = bytes[0][8];
            let (storage, _) =
                open(&Files::new(&bytes)).unwrap_or_else(|e| panic!("{what} at {moment}: {e}"));
            let found = rows(&storage).unwrap();
            assert_eq!(found.get(&b"k"[..]).map(Vec::as_slice), Some(&b"v"[..]), "{what} at {moment}");
            assert!(
                found.len() == 1 || u32::from(format) == FORMAT,
                "{what} at {moment}: an older version would lose commits"
            );
        }
    }
}

#[test]
fn a_file_of_format_3_is_read_with_what_is_in_its_log_and_brought_up_to_date() {
    let (files, storage) = create();
    apply(&storage, &[set(b"k", b"v")], Some(1)).unwrap();
    apply(&storage, &[set(b"l", b"w")], Some(2)).unwrap();
    let [mut data, log] = files.bytes();
    superblock::set_format(&mut data, 3);
    let files = Files::new(&[data, log]);
    let (storage, ceiling) = open(&files).unwrap();
    let format = u32::from(files.data.bytes()[8]);
    assert_eq!((ceiling, rows(&storage).unwrap().len(), format), (2, 2, FORMAT));
}

#[test]
fn a_crash_at_any_moment_keeps_what_was_acknowledged() {
    seeds(|seed| {
        let mut random = SplitMix(seed);
        let (files, storage, history) = history(40, &mut random);
        let first = history[0].at;
        drop(storage);
        for round in 0..150 {
            let moment = first + usize::try_from(random.next()).unwrap() % (files.moments() - first + 1);
            let (left, found) = if round % 3 == 0 {
                check_crash(&files.after_kill(moment), moment, &history, Crash::Kill)
            } else {
                let bytes = files.after_power_failure(moment, &mut random);
                check_crash(&bytes, moment, &history, Crash::PowerFailure)
            };
            // And once more while that was being opened and written to.
            let again = usize::try_from(random.next()).unwrap() % (left.moments() + 1);
            let bytes = left.after_power_failure(again, &mut random);
            let (storage, _) = open(&Files::new(&bytes))
                .unwrap_or_else(|error| panic!("second failure at {moment}, {again}: {error}"));
            let mut rows = rows(&storage).unwrap();
            rows.remove(&b"more"[..]);
            assert!(rows == found, "second failure at {moment}, {again}");
        }
    });
}

#[test]
fn every_moment_of_some_batches_and_of_what_comes_after_each() {
    let mut random = SplitMix(11);
    let (files, storage, history) = history(12, &mut random);
    drop(storage);
    for moment in history[0].at..=files.moments() {
        let (left, found) = check_crash(&files.after_kill(moment), moment, &history, Crash::Kill);
        for again in (0..=left.moments()).step_by(7) {
            let (storage, _) = open(&Files::new(&left.after_power_failure(again, &mut random)))
                .unwrap_or_else(|error| panic!("second failure at {moment}, {again}: {error}"));
            let mut rows = rows(&storage).unwrap();
            rows.remove(&b"more"[..]);
            assert!(rows == found, "second failure at {moment}, {again}");
        }
        check_crash(&files.after_power_failure(moment, &mut random), moment, &history, Crash::PowerFailure);
    }
}

/// Opens and reads damaged files. An error has to name the file; rows have to be right.
fn check_damage(bytes: &Bytes, right: &[&Model], what: &str) -> bool {
    let read = open(&Files::new(bytes)).and_then(|(storage, _)| rows(&storage));
    match read {
        Ok(found) => {
            assert!(right.contains(&&found), "{what}: wrong data was served");
            false
        }
        Err(StorageError::Panicked) => panic!("{what}: redb panicked"),
        Err(error) => {
            assert!(
                error.to_string().contains("sim") || matches!(error, StorageError::Foreign),
                "{what}: {error}"
            );
            true
        }
    }
}

fn flip_bits(bytes: &Bytes, right: &[&Model], random: &mut SplitMix, what: &str) -> usize {
    let used: Vec<usize> = (0..bytes[0].len()).filter(|at| bytes[0][*at] != 0).collect();
    let mut found = 0;
    for round in 0..600_usize {
        let draw = usize::try_from(random.next() >> 8).unwrap();
        // A third of them where something is, a third in the first page, a third anywhere.
        let at = match round % 3 {
            0 => used[draw % used.len()],
            1 => draw % 2048,
            _ => draw % bytes[0].len(),
        };
        let mut damaged = bytes.clone();
        damaged[0][at] ^= 1 << (random.next() % 8);
        found += usize::from(check_damage(&damaged, right, &format!("{what}, byte {at}")));
    }
    found
}

#[test]
fn no_flipped_bit_is_served_as_data() {
    seeds(|seed| {
        let mut random = SplitMix(seed);
        let (files, storage, history) = history(60, &mut random);
        let [.., before, newest] = &history[..] else { unreachable!("60 batches") };
        let crashed = files.bytes();
        let in_flight = files.after_kill(before.at + (newest.at - before.at) / 2);
        drop(storage);
        let found = [
            flip_bits(&files.bytes(), &[&newest.model], &mut random, "closed"),
            flip_bits(&crashed, &[&newest.model], &mut random, "crashed"),
            flip_bits(&in_flight, &[&before.model, &newest.model], &mut random, "in flight"),
        ];
        assert!(found.iter().sum::<usize>() > 60, "too few were found for this to be a test: {found:?}");
    });
}

#[test]
fn a_page_in_the_place_of_another_is_found() {
    let (files, storage, history) = history(60, &mut SplitMix(1));
    drop(storage);
    let [bytes, log] = files.bytes();
    let pages: Vec<usize> = (2..bytes.len() / 4096).filter(|p| bytes[p * 4096] != 0).collect();
    let right = &history.last().unwrap().model;
    let mut found = 0;
    for pair in pages.windows(2) {
        let mut damaged = bytes.clone();
        damaged.copy_within(pair[0] * 4096..(pair[0] + 1) * 4096, pair[1] * 4096);
        found += usize::from(check_damage(&[damaged, log.clone()], &[right], "swapped"));
    }
    assert!(found > 3, "{found} of {}", pages.len());
}

#[test]
fn a_file_that_was_cut_off_is_refused() {
    seeds(|seed| {
        let mut random = SplitMix(seed);
        let (files, storage, history) = history(60, &mut random);
        let crashed = files.bytes();
        drop(storage);
        let right = &history.last().unwrap().model;
        for ([data, log], what) in [(files.bytes(), "closed"), (crashed, "crashed")] {
            for round in 0..100 {
                let mut len = usize::try_from(random.next() >> 8).unwrap() % data.len();
                if round % 2 == 0 {
                    len -= len % 4096;
                }
                let damaged = [data[..len].to_vec(), log.clone()];
                check_damage(&damaged, &[right], &format!("{what}, {len} bytes"));
            }
        }
    });
}

#[test]
fn a_disk_that_fails_at_any_moment_loses_nothing_acknowledged() {
    let mut random = SplitMix(7);
    let mut in_log = 0;
    for healthy in (0..60).chain([90, 150, 200]) {
        let (files, storage, mut history) = history(5, &mut random);
        files.data.fail_after(healthy);
        let error = loop {
            let Acknowledged { ceiling, mut model, .. } = history.last().unwrap().clone();
            let mutations = batch(&mut model, &mut random);
            match apply(&storage, &mutations, Some(ceiling + 1)) {
                Ok(_) => history.push(Acknowledged::new(files.moments(), ceiling + 1, model)),
                Err(error) => {
                    // Unknown: it may be there.
                    history.push(Acknowledged::new(usize::MAX, ceiling + 1, model));
                    break error;
                }
            }
        };
        let text = error.to_string();
        assert!(text.contains("sim") && text.contains("free space"), "{text}");
        in_log += usize::from(text.contains("sim-log"));
        assert_eq!(error.code(), Code::IO_ERROR);
        let again = apply(&storage, &[set(b"a", b"b")], None).unwrap_err();
        assert_eq!(again.to_string(), text, "the cause stays the cause");
        assert_eq!(storage.settle().unwrap_err().to_string(), text);
        drop(storage);
        check_crash(&files.bytes(), files.moments(), &history, Crash::Kill);
    }
    assert!((10..53).contains(&in_log), "the log failed in {in_log} of 63 rounds");
}

/// A disk that asks before each read whether others could read the newest delta, once it is told which that is.
#[derive(Debug)]
struct Asking {
    file: SimDisk,
    delta: Arc<Mutex<Option<Arc<Delta>>>>,
    reads: Arc<AtomicUsize>,
}

impl Disk for Asking {
    fn len(&self) -> std::io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        if let Some(delta) = &*self.delta.lock() {
            assert!(delta.is_readable(), "a read of the newest state would wait for the disk");
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        self.file.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.file.write_at(offset, data)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.file.sync_data()
    }
}

#[test]
fn reads_of_the_newest_state_do_not_wait_while_a_batch_reads_from_the_disk() {
    let (files, storage) = create();
    for n in 0..100_u8 {
        apply(&storage, &[set(&[n], &[n; 3_000])], None).unwrap();
    }
    drop(storage);
    let (health, delta, reads) = (health(), Arc::new(Mutex::new(None)), Arc::new(AtomicUsize::new(0)));
    let disk = Asking { file: files.data.clone(), delta: Arc::clone(&delta), reads: Arc::clone(&reads) };
    let pages = Pages::open(Box::new(disk), Arc::clone(&health)).unwrap();
    let of_log = Arc::new(health.beside(Path::new("sim-log")));
    let (storage, _) = Storage::with(pages, health, &of_log, SHORT, Box::new(SimEnv::new()), |_| {
        Ok(Box::new(files.log.clone()))
    })
    .unwrap();
    // The first goes to redb's file.
    apply(&storage, &[], None).unwrap();
    for n in 0..100_u8 {
        *delta.lock() = Some(storage.state().newest_delta());
        let add = Mutation::Atomic { op: AtomicOp::Add, key: vec![n], operand: vec![1] };
        apply(&storage, &[set(b"k", b"v"), add], None).unwrap();
        *delta.lock() = None;
    }
    assert!(reads.load(Ordering::Relaxed) > 10, "too few went to the disk for this to be a test");
}

#[test]
fn what_was_acknowledged_unflushed_is_flushed_when_the_data_file_fails() {
    for by_closing in [false, true] {
        let (files, storage) = create();
        apply(&storage, &[], Some(1)).unwrap();
        apply_as(&storage, &[set(b"k", b"v")], None, Durability::Written).unwrap();
        let _ = storage.health().damaged("a page, says a test");
        if !by_closing {
            storage.rest().unwrap_err();
        }
        let moment = files.moments();
        drop(storage);
        let moment = if by_closing { files.moments() } else { moment };
        for seed in 0..20 {
            let left = files.after_power_failure(moment, &mut SplitMix(seed));
            let (storage, _) = open(&Files::new(&left)).unwrap();
            assert_eq!(rows(&storage).unwrap().len(), 1, "seed {seed}, by closing: {by_closing}");
        }
    }
}

#[test]
fn after_a_kill_nothing_is_walked_through() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    Storage::create(&at("data")).unwrap();
    let (storage, _) = Storage::open(&at("data"), &at("log")).unwrap();
    let look = || {
        for name in ["data", "log"] {
            std::fs::copy(at(name), at("copied-").with_extension(name)).unwrap();
        }
        let (data, log) = (at("copied-").with_extension("data"), at("copied-").with_extension("log"));
        examine::contents(File::open(&data).unwrap(), &data, &log).unwrap()
    };
    for round in 0..3 {
        // More than redb keeps in memory: some of it lies in the file before anything speaks of it.
        for n in 0..12_u8 {
            let values = (0..40_u8).map(|m| set(&[round, n, m], &[n; 90_000]));
            apply(&storage, &values.collect::<Vec<_>>(), None).unwrap();
        }
        apply(&storage, &[set(b"k", &[round])], None).unwrap();
        let left = look();
        assert!(!left.needs_repair && left.in_log > 0, "{left:?}");
        assert_eq!(left.rows, 1 + 480 * (u64::from(round) + 1));
        storage.settle().unwrap();
        let settled = look();
        assert!(!settled.needs_repair && settled.in_log == 0, "{settled:?}");
        assert_eq!(settled.rows, left.rows);
    }
}

#[test]
fn a_file_that_shrinks_survives_a_crash_at_any_moment() {
    let (files, storage) = create();
    let mut history = vec![Acknowledged::new(files.moments(), 0, Model::new())];
    let mut most = 0;
    for ceiling in 1..=12_i64 {
        let mut model = history.last().unwrap().model.clone();
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
        apply(&storage, &mutations, Some(ceiling)).unwrap();
        if ceiling > 5 {
            storage.settle().unwrap();
        }
        history.push(Acknowledged::new(files.moments(), ceiling, model));
        most = most.max(files.data.bytes().len());
    }
    let last = files.moments();
    drop(storage);
    assert!(files.data.bytes().len() < most, "it did not shrink");
    let mut random = SplitMix(5);
    // From the clear on.
    for moment in history[5].at..=last.max(files.moments()) {
        check_crash(&files.after_kill(moment), moment, &history, Crash::Kill);
        check_crash(&files.after_power_failure(moment, &mut random), moment, &history, Crash::PowerFailure);
    }
}
