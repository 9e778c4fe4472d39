//! A sign that something goes on.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

/// Something that happens again and again: how often it has, and when last. It is shared by the task that does it and by those that look whether it goes
/// on.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    count: AtomicU64,
    last: Mutex<Instant>,
}

impl Heartbeat {
    /// It happens once more.
    pub(crate) fn beat(&self) {
        *self.last.lock().expect("nothing panics while it holds the lock") = Instant::now();
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it has happened.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// When it happened last, or when this was made.
    pub(crate) fn last(&self) -> Instant {
        *self.last.lock().expect("nothing panics while it holds the lock")
    }
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self { count: AtomicU64::new(0), last: Mutex::new(Instant::now()) }
    }
}
