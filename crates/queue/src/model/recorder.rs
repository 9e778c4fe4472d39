//! Who records the ends of items, and when.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::model::history::MAX_WORKER;
use crate::model::time::{Millis, millis};

/// When a [`Recorder`] records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    /// Never.
    Off,
    /// Always. For a program that knows how long the queue keeps its history. It reads the setting once a minute, for the index.
    On,
    /// If the queue has a setting that says so, which each transaction that ends items reads.
    AsStored,
}

/// Records the ends of items, for the handle of a queue ([`Queue::with_recorder`](crate::Queue::with_recorder)) and all that is made from it.
///
/// One recorder is for one queue of one database: it remembers for a minute by which attributes the queue's history is indexed. It can be turned on and off
/// while sessions and leases use it.
#[derive(Debug, Clone)]
pub struct Recorder(Arc<Inner>);

struct Inner {
    mode: AtomicU8,
    /// The index of the queue, as it was read last.
    index: Mutex<Option<KnownIndex>>,
    /// Whether that has any names. So a queue without an index does not wait for the lock.
    has_index: AtomicBool,
    clock: Box<dyn Fn() -> SystemTime + Send + Sync>,
    worker: Option<String>,
}

/// The index of a queue's history at a version.
#[derive(Debug)]
struct KnownIndex {
    /// The keys of the queue.
    queue: Vec<u8>,
    version: u64,
    /// By the recorder's clock.
    at: Millis,
    names: Arc<[String]>,
}

/// An index that was read is used for this many versions: a minute, as a version is a microsecond. A new index is complete only after that, see
/// [`Queue::index_history`](crate::Queue::index_history).
const FRESH_FOR: u64 = 60_000_000;

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
        Recorder(Arc::new(Inner {
            mode,
            index: Mutex::default(),
            has_index: AtomicBool::default(),
            clock: Box::new(clock),
            worker,
        }))
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

    /// The names by which the history of the queue with these keys is indexed, if they were read within a minute, by the database's versions and by the clock. Versions stand
    /// still while a machine sleeps, and a clock may be set.
    pub(crate) fn fresh_index(&self, queue: &[u8], version: u64, now: Millis) -> Option<Arc<[String]>> {
        let seen = self.0.index.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = seen.as_ref().filter(|seen| seen.queue == queue)?;
        let is_new =
            seen.version.abs_diff(version) <= FRESH_FOR && seen.at.abs_diff(now) <= FRESH_FOR / 1_000;
        is_new.then(|| seen.names.clone())
    }

    /// Notes which names these are, as a transaction at this version has read them.
    pub(crate) fn remember_index(&self, queue: &[u8], version: u64, at: Millis, names: Arc<[String]>) {
        self.0.has_index.store(!names.is_empty(), Ordering::Relaxed);
        let seen = KnownIndex { queue: queue.to_vec(), version, at, names };
        *self.0.index.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    }

    /// The names that were read last, however long ago, if there are any: to estimate what a transaction costs.
    pub(crate) fn remembered_index(&self, queue: &[u8]) -> Option<Arc<[String]>> {
        if !self.0.has_index.load(Ordering::Relaxed) {
            return None;
        }
        let seen = self.0.index.lock().unwrap_or_else(PoisonError::into_inner);
        seen.as_ref().filter(|seen| seen.queue == queue).map(|seen| seen.names.clone())
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
