//! Signs of life of tasks.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

/// Counts an event that repeats, and has the time of the last one. The task that does it and the tasks that
/// check on it share one.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    count: AtomicU64,
    last: Mutex<Instant>,
}

impl Heartbeat {
    /// Counts one more.
    pub(crate) fn beat(&self) {
        *self.last.lock().expect("nothing panics while it holds the lock") = Instant::now();
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// When the last one was, or when this was made.
    pub(crate) fn last(&self) -> Instant {
        *self.last.lock().expect("nothing panics while it holds the lock")
    }
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self { count: AtomicU64::new(0), last: Mutex::new(Instant::now()) }
    }
}
