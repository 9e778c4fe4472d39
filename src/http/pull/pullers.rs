//! Pullers, one for each queue that workers lease from over HTTP: their fetches come one after the other.

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use kvqueue_queue::{
    Approach, FetchError, FetchOptions, Item, Lease, Millis, Queue, RetryPolicy, Session, Watch,
};
use tokio::{
    sync::{Mutex as AsyncMutex, Notify},
    time::sleep,
};

use crate::{
    consumer::{clock, fetch::VersionClock, identity},
    http::{app_state::AppState, error::ApiError},
};

/// The most queues with a puller. When there are more, the ones at which nobody waits are dropped.
const MOST: usize = 1_024;

/// How often an empty queue is looked at although no push woke anybody.
const LOOK: Duration = Duration::from_secs(30);

/// How long a fetch is tried. What it may have got by then comes with the next fetch.
const FETCH: RetryPolicy = RetryPolicy { timeout: Some(Duration::from_secs(5)), max_attempts: None };

/// The pullers there are, by their queues' names.
#[derive(Debug, Default)]
pub(in crate::http) struct Pullers(Mutex<HashMap<Vec<u8>, Arc<Puller>>>);

/// The fetches of workers from one queue.
#[derive(Debug)]
pub(super) struct Puller {
    queue: Queue,
    session: AsyncMutex<Session>,
    /// Wakes one worker that waits.
    wake: Arc<Notify>,
    /// A watch of the queue is under way, which wakes one worker.
    is_watched: Arc<AtomicBool>,
    /// The time that belongs to a version of the database.
    clock: VersionClock,
}

impl Pullers {
    /// The puller of a queue.
    pub(super) fn puller(&self, app: &AppState, queue: &Queue) -> Arc<Puller> {
        let mut pullers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(puller) = pullers.get(queue.name()).filter(|puller| puller.queue == *queue) {
            return puller.clone();
        }
        if pullers.len() >= MOST {
            pullers.retain(|_, puller| Arc::strong_count(puller) > 1);
        }
        let session = Session::with_id(queue.clone(), identity::session_id())
            .with_policy(FETCH)
            .with_history(&app.daemon.history);
        let puller = Arc::new(Puller {
            queue: queue.clone(),
            session: AsyncMutex::new(session),
            wake: Arc::default(),
            is_watched: Arc::default(),
            clock: VersionClock::default(),
        });
        pullers.insert(queue.name().to_vec(), puller.clone());
        puller
    }
}

/// The turn of a worker to fetch. Unless the queue is empty, the next worker has its turn when this one ends, however it ends.
pub(super) struct Turn<'p> {
    puller: &'p Puller,
    is_last: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.is_last {
            self.puller.wake.notify_one();
        }
    }
}

impl Puller {
    /// The queue.
    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// When an item of the queue was pushed: as its producer wrote it down, or by its id.
    pub(super) fn enqueued_at(&self, item: &Item) -> Option<Millis> {
        let written = item.meta.as_ref().and_then(|meta| meta.enqueued_at);
        written.or_else(|| {
            let age = self.clock.since(item.id.stamp()?.version(), Instant::now())?;
            Some(clock::now().saturating_sub(u64::try_from(age.as_millis()).ok()?))
        })
    }

    /// Waits until something may be ready.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// The turn of a worker, which is to be kept until it has fetched.
    pub(super) fn turn(&self) -> Turn<'_> {
        Turn { puller: self, is_last: false }
    }
}

impl Turn<'_> {
    /// The worker does not fetch, and neither need others.
    pub(super) fn pass(&mut self) {
        self.is_last = true;
    }

    /// Leases up to `max` items. `None` if none are ready: then a push wakes a worker that waits.
    ///
    /// If this is dropped half-way, the next fetch gets what it had got.
    pub(super) async fn fetch(
        &mut self,
        app: &AppState,
        max: NonZeroUsize,
        length: Duration,
    ) -> Result<Option<Lease>, ApiError> {
        let mut session = self.puller.session.lock().await;
        let mut approach = Approach::Front;
        let is_watched = self.puller.is_watched.load(Ordering::Acquire);
        let mut options = FetchOptions::new(max, length, &mut approach).with_watch(!is_watched);
        let fetched = session.fetch(&app.daemon.db, &mut options).await.map_err(failure)?;
        self.puller.clock.learn(fetched.version);
        if fetched.lease.is_none() {
            self.is_last = true;
            if let Some(watch) = fetched.watch {
                self.puller.watch(app, watch);
            }
        }
        Ok(fetched.lease)
    }
}

fn failure(error: FetchError) -> ApiError {
    match error {
        FetchError::Retry(error) => ApiError::of(&error),
        other => ApiError::TooLarge(other.to_string()),
    }
}

impl Puller {
    /// Wakes one worker when the watch fires, or after a while.
    fn watch(&self, app: &AppState, watch: Watch) {
        self.is_watched.store(true, Ordering::Release);
        let (wake, is_watched) = (self.wake.clone(), self.is_watched.clone());
        let stopping = app.stopping.clone();
        drop(app.spawn(async move {
            tokio::select! {
                // An error means that the watch is gone.
                _fired = watch => {}
                () = sleep(LOOK) => {}
                () = stopping.cancelled() => {}
            }
            is_watched.store(false, Ordering::Release);
            wake.notify_one();
        }));
    }
}
