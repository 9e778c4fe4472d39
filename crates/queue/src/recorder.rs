//! Who records the ends of items, and when.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::history::MAX_WORKER;
use crate::meta::Millis;
use crate::time::millis;

/// When a [`Recorder`] records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    /// Never.
    Off,
    /// Always. For a program that knows the queue's setting.
    On,
    /// If the queue has a setting that says so, which each transaction that ends items reads.
    AsStored,
}

/// Records the ends of items, for the handle of a queue ([`Queue::with_recorder`](crate::Queue::with_recorder)) and all that is made from it.
///
/// It can be turned on and off while sessions and leases use it.
#[derive(Debug, Clone)]
pub struct Recorder(Arc<Inner>);

struct Inner {
    mode: AtomicU8,
    /// The index of the queue, as it was read last.
    index: Mutex<Option<SeenIndex>>,
    clock: Box<dyn Fn() -> SystemTime + Send + Sync>,
    worker: Option<String>,
}

/// The index of a queue's history at a version.
#[derive(Debug)]
struct SeenIndex {
    /// The keys of the queue.
    queue: Vec<u8>,
    version: u64,
    names: Arc<[String]>,
}

/// For how many versions an index that was read holds: a minute. Readers use a new index ten minutes later, see
/// [`Queue::index_history`](crate::Queue::index_history).
const SEEN_FOR: u64 = 60_000_000;

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("mode", &self.mode)
            .field("worker", &self.worker)
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// A recorder with this clock, whose records name this process, with at most [`MAX_WORKER`] bytes.
    pub fn new(
        recording: Recording,
        worker: Option<String>,
        clock: impl Fn() -> SystemTime + Send + Sync + 'static,
    ) -> Recorder {
        let (mode, worker) = (AtomicU8::new(recording as u8), worker.map(cut));
        Recorder(Arc::new(Inner { mode, index: Mutex::default(), clock: Box::new(clock), worker }))
    }

    /// Sets when it records, from the next transaction on.
    pub fn set(&self, recording: Recording) {
        self.0.mode.store(recording as u8, Ordering::Relaxed);
    }

    pub(crate) fn recording(&self) -> Recording {
        match self.0.mode.load(Ordering::Relaxed) {
            mode if mode == Recording::On as u8 => Recording::On,
            mode if mode == Recording::AsStored as u8 => Recording::AsStored,
            _ => Recording::Off,
        }
    }

    /// Whether anything is recorded, if the queue's setting says so.
    pub(crate) fn may_record(&self) -> bool {
        self.recording() != Recording::Off
    }

    pub(crate) fn now(&self) -> Millis {
        millis((self.0.clock)())
    }

    /// The names by which the history of the queue with these keys is indexed, if they were read within a minute, by the database's versions.
    pub(crate) fn seen_index(&self, queue: &[u8], version: u64) -> Option<Arc<[String]>> {
        let seen = self.0.index.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = seen.as_ref().filter(|seen| seen.queue == queue)?;
        (seen.version.abs_diff(version) <= SEEN_FOR).then(|| seen.names.clone())
    }

    /// Notes which names these are, as a transaction at this version has read them.
    pub(crate) fn see_index(&self, queue: &[u8], version: u64, names: Arc<[String]>) {
        let seen = SeenIndex { queue: queue.to_vec(), version, names };
        *self.0.index.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    }

    /// How many names there were when they were read last.
    pub(crate) fn indexed(&self, queue: &[u8]) -> usize {
        let seen = self.0.index.lock().unwrap_or_else(PoisonError::into_inner);
        seen.as_ref().filter(|seen| seen.queue == queue).map_or(0, |seen| seen.names.len())
    }

    pub(crate) fn worker(&self) -> Option<&str> {
        self.0.worker.as_deref()
    }
}

/// What the records of a lease's items have of the lease.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    /// When it was fetched, by the recorder's clock.
    pub(crate) started: Option<Millis>,
    /// The worker of another program that has it.
    pub(crate) worker: Option<String>,
}

impl Holding {
    /// Of a lease that is fetched now; `None` if nothing is recorded. Boxed, so that other leases are not longer for it.
    pub(crate) fn begun(recorder: Option<&Recorder>) -> Option<Box<Holding>> {
        let recorder = recorder.filter(|recorder| recorder.may_record())?;
        Some(Box::new(Holding { started: Some(recorder.now()), worker: None }))
    }
}

/// A worker's name, not longer than records have it.
pub(crate) fn cut(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(MAX_WORKER));
    name
}

/// Handles of a queue are equal whatever they record.
impl PartialEq for Recorder {
    fn eq(&self, _: &Recorder) -> bool {
        true
    }
}

impl Eq for Recorder {}
