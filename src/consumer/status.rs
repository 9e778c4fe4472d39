//! A consumer's state, and since when.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::{Duration, Instant},
};

use kvqueue_queue::Item;
use serde::Serialize;

use crate::consumer::heartbeat::Heartbeat;

/// The state of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ConsumerState {
    /// It waits for a fetch.
    Fetching,
    /// Its queue is paused.
    Paused,
    /// It waits for a push.
    Idle,
    /// Its handler has items, or their outcomes are being acknowledged.
    Handling,
    /// It waits after a fetch that failed.
    Backoff,
    /// It waits until its handler can work again.
    Unavailable,
    /// It acknowledges its last items, and ends.
    Closing,
}

impl ConsumerState {
    /// All of them.
    pub(crate) const ALL: [Self; 7] = [
        Self::Fetching,
        Self::Paused,
        Self::Idle,
        Self::Handling,
        Self::Backoff,
        Self::Unavailable,
        Self::Closing,
    ];
}

/// The status of a consumer. The consumer, its fetcher and its dispatcher write it.
#[derive(Debug)]
pub(crate) struct ConsumerStatus {
    /// The consumer's number; a consumer that replaces another has the same.
    pub(crate) id: u64,
    /// Its queue.
    pub(crate) queue: Arc<str>,
    /// The most items of a batch.
    pub(crate) k: NonZeroUsize,
    /// How many failed before it under this number.
    pub(crate) restarts: u64,
    activity: Mutex<Activity>,
    answered: Mutex<Instant>,
}

/// A consumer's current state.
#[derive(Clone, Debug)]
pub(crate) struct Activity {
    pub(crate) state: ConsumerState,
    /// When the state began.
    pub(crate) since: Instant,
    /// When its handler was called last in this state.
    pub(crate) called: Option<Instant>,
    /// The items that its handler has.
    pub(crate) items: Option<Arc<[Item]>>,
    /// When the handler was done with all its items: the rest of this state is up to the consumer.
    pub(crate) handled: Option<Instant>,
    /// The heartbeat of the lease keeper of the handler's items; gone when the lease is.
    pub(crate) lease_keeper: Weak<Heartbeat>,
    /// Why its last fetch failed, until one succeeds.
    pub(crate) fetch_error: Option<String>,
}

impl Activity {
    fn begin(state: ConsumerState) -> Self {
        Self {
            state,
            since: Instant::now(),
            called: None,
            items: None,
            handled: None,
            lease_keeper: Weak::new(),
            fetch_error: None,
        }
    }
}

impl ConsumerStatus {
    pub(crate) fn new(id: u64, queue: Arc<str>, k: NonZeroUsize, restarts: u64) -> Self {
        let activity = Mutex::new(Activity::begin(ConsumerState::Fetching));
        Self { id, queue, k, restarts, activity, answered: Mutex::new(Instant::now()) }
    }

    /// Starts a state, or the same one again.
    pub(crate) fn set(&self, state: ConsumerState) {
        let mut activity = self.lock();
        let fetch_error = match state {
            ConsumerState::Fetching | ConsumerState::Backoff => activity.fetch_error.take(),
            _ => None,
        };
        *activity = Activity { fetch_error, ..Activity::begin(state) };
    }

    /// Notes that a fetch failed, for this reason.
    pub(crate) fn fetch_failed(&self, error: String) {
        self.lock().fetch_error = Some(error);
    }

    /// Notes the heartbeat of the lease keeper of the handler's items.
    pub(crate) fn set_lease_keeper(&self, heartbeat: Weak<Heartbeat>) {
        self.lock().lease_keeper = heartbeat;
    }

    /// Notes that the handler is called for these items.
    pub(crate) fn called(&self, items: Arc<[Item]>) {
        let mut activity = self.lock();
        activity.called = Some(Instant::now());
        activity.items = Some(items);
    }

    /// Notes that the handler is done with all its items.
    pub(crate) fn handled(&self) {
        let mut activity = self.lock();
        activity.handled = Some(Instant::now());
        activity.items = None;
    }

    /// Its state.
    pub(crate) fn activity(&self) -> Activity {
        self.lock().clone()
    }

    /// The state, and how long it has lasted.
    pub(crate) fn state(&self) -> (ConsumerState, Duration) {
        let activity = self.lock();
        (activity.state, activity.since.elapsed())
    }

    /// Notes that the consumer has answered a ping: its actor reads its mailbox.
    pub(crate) fn answer(&self) {
        *self.answered.lock().expect("nothing panics while it holds the lock") = Instant::now();
    }

    /// When it answered last, or began.
    pub(crate) fn answered(&self) -> Instant {
        *self.answered.lock().expect("nothing panics while it holds the lock")
    }

    fn lock(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().expect("nothing panics while it holds the lock")
    }
}
