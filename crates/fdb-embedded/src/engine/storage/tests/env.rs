//! The environment of the simulation: a clock that stands still until it is read, and an flusher on the test's own thread. The seed decides
//! how far the clock goes, and when the flusher works.

use std::io;
use std::time::{Duration, Instant};

use super::super::memtable_flusher::{FlushJob, MemtableFlusher, flush_job};
use super::*;

thread_local! {
    /// The environment's random numbers, apart from those of the test.
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

/// The environment's behaviour in this thread follows from `seed` from now on.
pub fn begin(seed: u64) {
    RANDOM.set(!seed);
    VERSION.set(0);
}

fn draw() -> u64 {
    let mut random = SplitMix(RANDOM.get());
    let drawn = random.next();
    RANDOM.set(random.0);
    drawn
}

/// The environment.
#[derive(Debug)]
pub struct SimEnv {
    began: Instant,
    elapsed: Mutex<Duration>,
}

impl SimEnv {
    pub fn new() -> SimEnv {
        SimEnv { began: baton::now(), elapsed: Mutex::default() }
    }
}

impl StorageEnv for SimEnv {
    fn now(&self) -> Instant {
        let millis = [0, 0, 0, 1, 2, 6][(draw() % 6) as usize];
        let mut elapsed = self.elapsed.lock();
        *elapsed += Duration::from_millis(millis);
        self.began + *elapsed
    }

    fn random(&self) -> u64 {
        draw()
    }

    fn start_flusher(&self, tree: &Arc<Tree>) -> io::Result<Box<dyn MemtableFlusher>> {
        Ok(Box::new(Stepped { tree: Arc::clone(tree), job: None, done: None }))
    }
}

/// An flusher that works when it gets a job, when it is asked for the outcome, or when it is dropped.
#[derive(Debug)]
struct Stepped {
    tree: Arc<Tree>,
    job: Option<FlushJob>,
    done: Option<Result<FlushedTree, StorageError>>,
}

impl Stepped {
    fn work(&mut self) {
        if let Some(job) = self.job.take() {
            self.done = Some(flush_job(&self.tree, &job));
        }
    }
}

impl MemtableFlusher for Stepped {
    fn begin(&mut self, job: FlushJob) -> Result<(), StorageError> {
        assert!(self.job.is_none() && self.done.is_none(), "it has one job at a time");
        self.job = Some(job);
        if draw().is_multiple_of(2) {
            self.work();
        }
        Ok(())
    }

    fn poll(&mut self) -> Option<Result<FlushedTree, StorageError>> {
        if !draw().is_multiple_of(3) {
            self.work();
        }
        self.done.take()
    }

    fn wait(&mut self) -> Result<FlushedTree, StorageError> {
        self.work();
        self.done.take().expect("it has a job")
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        self.work();
    }
}

/// Everything that is done to the disk in a run: batches, a close, an opening after a power failure.
fn trace(batches: u64, environment: u64) -> (u64, usize) {
    begin(environment);
    let mut random = SplitMix(batches);
    let (files, storage, _) = history(60, &mut random);
    drop(storage);
    let moment = usize::try_from(random.next() >> 8).unwrap() % (files.moments() + 1);
    let crashed = Files::new(&files.after_power_failure(moment, &mut random));
    let (storage, _) = open(&crashed).unwrap();
    apply(&storage, &[set(b"k", b"v")], None).unwrap();
    drop(storage);
    (files.data.trace() ^ crashed.data.trace().rotate_left(1), files.moments() + crashed.moments())
}

#[test]
fn the_same_seed_is_the_same_sequence_of_disk_operations() {
    seeds(|seed| assert_eq!(trace(seed, seed), trace(seed, seed)));
    // The batches differ with the seed, and so does what becomes of the same batches in another environment.
    let other_batches: BTreeSet<_> = (0..5).map(|seed| trace(seed, 0)).collect();
    let other_environment: BTreeSet<_> = (0..5).map(|seed| trace(0, seed)).collect();
    assert_eq!((other_batches.len(), other_environment.len()), (5, 5));
}
