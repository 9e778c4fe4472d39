//! Storage against files that are damaged, cut off, half written, or on a disk that fails.
//!
//! `KVQUEUE_TEST_SEEDS=N` runs N seeds of the random ones.

mod budget;
mod crash;
mod damage;
mod env;
mod formats;
mod golden;
mod log;
mod once;
mod pinned;
mod reads;
mod space;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::ControlFlow;

use checked_pages::FORMAT;
use checked_pages::sim::{self, Atomic, SimDisk, SplitMix};
use mutant::{Bounds, DrawnBounds};

use self::damage::check_damage;
use self::env::{SimEnv, begin};
use super::tree::FlushedTree;
use super::*;
use crate::engine::atomic::AtomicOp;
use crate::engine::mutation::Mutation;
use crate::error::Code;
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

/// Runs `test` with fresh seeds: with the bounds of the storage as in production, which long histories need, and with
/// bounds drawn from the seed. Names the one that fails.
fn seeds(test: impl Fn(u64)) {
    struct Named(u64, DrawnBounds);
    impl Drop for Named {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("failed with KVQUEUE_TEST_SEED={}, which draws {}", self.0, self.1.used());
            }
        }
    }
    let variable = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = variable("KVQUEUE_TEST_SEED");
    let count = if first.is_some() { 1 } else { variable("KVQUEUE_TEST_SEEDS").unwrap_or(1) };
    for _ in 0..count {
        let seed = first.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        for bounds in [Bounds::default(), Bounds::drawn(seed)] {
            let named = Named(seed, bounds.enter());
            begin(seed);
            test(named.0);
        }
    }
}

/// redb's file and the log.
#[derive(Debug, Clone)]
struct Files {
    data: SimDisk,
    log: SimDisk,
}

/// The content of both.
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
const SHORT: LogBounds = LogBounds { first: 16 << 10, step: 16 << 10, most: 96 << 10 };

fn latch() -> Arc<FailureLatch> {
    Arc::new(FailureLatch::new(Path::new("sim")))
}

/// A file with tables and nothing in them, and no log yet.
fn created() -> Files {
    let data = SimDisk::default();
    let latch = latch();
    let pages = Pages::create(Box::new(data.clone()), latch.clone());
    Tree::open(pages, latch, || ()).unwrap().create_tables().unwrap();
    Files::new(&[data.bytes(), Vec::new()])
}

fn create() -> (Files, Storage) {
    let files = created();
    let (storage, ceiling) = open(&files).unwrap();
    assert_eq!(ceiling, 0);
    (files, storage)
}

fn open(files: &Files) -> Result<(Storage, i64), StorageError> {
    let latch = latch();
    let pages = open_pages(Box::new(files.data.clone()), &latch)?;
    let of_log = Arc::new(latch.for_file(Path::new("sim-log")));
    Storage::open_with(pages, latch, &of_log, SHORT, Box::new(SimEnv::new()), |_| {
        Ok(Box::new(files.log.clone()))
    })
}

fn apply(
    storage: &Storage,
    mutations: &[Mutation],
    ceiling: Option<i64>,
) -> Result<StorageUpdate, StorageError> {
    apply_as(storage, mutations, ceiling, Durability::Flushed)
}

fn apply_as(
    storage: &Storage,
    mutations: &[Mutation],
    ceiling: Option<i64>,
    durability: Durability,
) -> Result<StorageUpdate, StorageError> {
    let version = VERSION.get() + 1;
    VERSION.set(version);
    storage.apply(WriteBatch { version, ceiling, mutations: mutations.to_vec() }, durability)
}

fn rows(storage: &Storage) -> Result<Model, StorageError> {
    let mut found = Model::new();
    let _all = storage.superversion().read_newest(|at| {
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
        let durability = if is_flushed { Durability::Flushed } else { Durability::Asynchronous };
        apply_as(&storage, &mutations, Some(ceiling), durability).unwrap();
        let mut acknowledged = Acknowledged::new(files.moments(), ceiling, model);
        acknowledged.flushed = usize::MAX;
        history.push(acknowledged);
        let what_else = random.next() % 10;
        if is_flushed || what_else < 3 {
            match what_else {
                0 | 1 => drop(storage.checkpoint().unwrap()),
                2 => drop(storage.flush_idle().unwrap()),
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
    let before = storage.superversion().snapshot().unwrap();
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
