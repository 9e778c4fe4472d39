//! What one consumer is at, and since when.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::{Duration, Instant},
};

use kvqueue_queue::Item;
use serde::Serialize;

use super::Heartbeat;

/// What a consumer is activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ConsumerState {
    /// A take is under way, or waits for others to end.
    Taking,
    /// Its queue is paused.
    Paused,
    /// It waits for pushes.
    Idle,
    /// Its handler has items, or what it said of them is being settled.
    Handling,
    /// It rests after a take that failed.
    Backoff,
    /// It waits until its handler can work again.
    Unavailable,
    /// It settles what is left, and ends.
    Closing,
}

impl ConsumerState {
    /// All of them.
    pub(crate) const ALL: [Self; 7] = [
        Self::Taking,
        Self::Paused,
        Self::Idle,
        Self::Handling,
        Self::Backoff,
        Self::Unavailable,
        Self::Closing,
    ];
}

/// A consumer as others see it. Written by the consumer and by those that work for it.
#[derive(Debug)]
pub(crate) struct ConsumerStatus {
    /// The consumer's number; a consumer that replaces another has the same.
    pub(crate) id: u64,
    /// Its queue.
    pub(crate) queue: Arc<str>,
    /// Items per take.
    pub(crate) k: NonZeroUsize,
    /// How many failed before it under this number.
    pub(crate) restarts: u64,
    activity: Mutex<Activity>,
    answered: Mutex<Instant>,
}

/// What a consumer does, and what has become of it so far.
#[derive(Clone, Debug)]
pub(crate) struct Activity {
    pub(crate) stage: ConsumerState,
    /// When the stage began.
    pub(crate) since: Instant,
    /// When its handler was called last in this stage.
    pub(crate) called: Option<Instant>,
    /// What its handler was called for.
    pub(crate) items: Option<Arc<[Item]>>,
    /// When the handler was done with all it had: what follows in this stage is for the consumer to do.
    pub(crate) handled: Option<Instant>,
    /// Beats while the lease of what the handler has is held. Gone when it is not.
    pub(crate) holder: Weak<Heartbeat>,
    /// Why its last take failed, until one succeeds.
    pub(crate) take_error: Option<String>,
}

impl Activity {
    fn begin(stage: ConsumerState) -> Self {
        Self {
            stage,
            since: Instant::now(),
            called: None,
            items: None,
            handled: None,
            holder: Weak::new(),
            take_error: None,
        }
    }
}

impl ConsumerStatus {
    pub(super) fn new(id: u64, queue: Arc<str>, k: NonZeroUsize, restarts: u64) -> Self {
        let activity = Mutex::new(Activity::begin(ConsumerState::Taking));
        Self { id, queue, k, restarts, activity, answered: Mutex::new(Instant::now()) }
    }

    /// A stage begins; or the same one anew.
    pub(crate) fn set(&self, stage: ConsumerState) {
        let mut activity = self.lock();
        let take_error = match stage {
            ConsumerState::Taking | ConsumerState::Backoff => activity.take_error.take(),
            _ => None,
        };
        *activity = Activity { take_error, ..Activity::begin(stage) };
    }

    /// A take failed, for this reason.
    pub(crate) fn take_failed(&self, error: String) {
        self.lock().take_error = Some(error);
    }

    /// The handler has items whose lease is held by one whose beat this is.
    pub(crate) fn held_by(&self, holder: Weak<Heartbeat>) {
        self.lock().holder = holder;
    }

    /// The handler is called for these items.
    pub(crate) fn called(&self, items: Arc<[Item]>) {
        let mut activity = self.lock();
        activity.called = Some(Instant::now());
        activity.items = Some(items);
    }

    /// The handler is done with all it had.
    pub(crate) fn handled(&self) {
        let mut activity = self.lock();
        activity.handled = Some(Instant::now());
        activity.items = None;
    }

    /// What it does.
    pub(crate) fn activity(&self) -> Activity {
        self.lock().clone()
    }

    /// The stage, and how long it has lasted.
    pub(crate) fn state(&self) -> (ConsumerState, Duration) {
        let activity = self.lock();
        (activity.stage, activity.since.elapsed())
    }

    /// The consumer has answered: its actor reads its mailbox.
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
