//! Pullers, one for each queue that workers lease from over HTTP.

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use kvqueue_queue::{Item, ItemOutcome, Lease, LeaseId, Millis, Queue};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc::UnboundedSender, oneshot};

use super::{
    acknowledging::{Acknowledging, Change, Written},
    fetching::{Fetched, Fetching, Request},
    kept::{KeptLeases, Known},
};
use crate::{
    base::{answer::answer, clock},
    config::QueueConfig,
    consumer::fetch::VersionClock,
    http::{api_request::ApiRequest, app_state::AppState, error::ApiError},
};

/// The most queues with a puller. When there are more, the ones at which nobody waits are dropped.
const MOST: usize = 1_024;

/// The most transactions that change leases at a time. Further ones wait.
const CHANGES: usize = 64;

/// The pullers there are, by their queues' names; and the leases that workers have from them.
#[derive(Debug)]
pub(in crate::http) struct Pullers {
    pullers: Mutex<HashMap<String, Arc<Puller>>>,
    leases: Mutex<KeptLeases>,
    permits: Semaphore,
}

impl Default for Pullers {
    fn default() -> Self {
        Self { pullers: Mutex::default(), leases: Mutex::default(), permits: Semaphore::new(CHANGES) }
    }
}

/// The way to the fetches from one queue, and to its acknowledgements.
#[derive(Debug)]
pub(super) struct Puller {
    queue: Queue,
    /// The time that belongs to a version of the database.
    clock: Arc<VersionClock>,
    requests: UnboundedSender<Request>,
    changes: UnboundedSender<Change>,
}

impl Pullers {
    /// The puller of a queue, made if there is none for its layout in the configuration.
    pub(super) fn puller(&self, app: &Arc<AppState>, name: &str) -> Result<Arc<Puller>, ApiError> {
        let kind = app.config().queues.get(name).map(QueueConfig::layout).unwrap_or_default();
        let mut pullers = self.pullers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_usable = |puller: &&Arc<Puller>| {
            // A task that has panicked is replaced.
            let has_tasks = !puller.requests.is_closed() && !puller.changes.is_closed();
            puller.queue.kind() == kind && has_tasks
        };
        if let Some(puller) = pullers.get(name).filter(is_usable) {
            return Ok(puller.clone());
        }
        if pullers.len() >= MOST {
            pullers.retain(|_, puller| Arc::strong_count(puller) > 1);
        }
        let queue = app.queue(name)?;
        let clock = Arc::<VersionClock>::default();
        let (fetching, requests) = Fetching::new(app, queue.clone(), clock.clone());
        let (acknowledging, changes) = Acknowledging::new(app, name);
        drop((app.spawn(fetching.run()), app.spawn(acknowledging.run())));
        let puller = Arc::new(Puller { queue, clock, requests, changes });
        pullers.insert(name.to_owned(), puller.clone());
        Ok(puller)
    }

    /// Waits for a database permit for a change of leases.
    pub(super) async fn permit(&self) -> SemaphorePermit<'_> {
        self.permits.acquire().await.expect("nothing closes the semaphore")
    }

    /// Removes a lease of a queue from the kept leases, and returns it.
    pub(super) fn take(&self, queue: &str, id: LeaseId) -> Known {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).take(queue.as_bytes(), id)
    }

    /// Whether all items of a lease were acknowledged through this daemon.
    pub(super) fn is_over(&self, id: LeaseId) -> bool {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).is_over(id)
    }

    /// Lets their tasks end.
    pub(in crate::http) fn clear(&self) {
        self.pullers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Keeps a lease of a queue.
    pub(super) fn keep(&self, queue: &str, lease: Lease) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).put(queue.as_bytes(), lease);
    }
}

impl Puller {
    /// When an item of the queue was pushed: as its producer wrote it down, or by its id.
    pub(super) fn enqueued_at(&self, item: &Item) -> Option<Millis> {
        let written = item.meta.as_ref().and_then(|meta| meta.enqueued_at);
        written.or_else(|| {
            let age = self.clock.since(item.id.stamp()?.version(), Instant::now())?;
            Some(clock::now().saturating_sub(u64::try_from(age.as_millis()).ok()?))
        })
    }

    /// Leases up to `max` items for the worker that sends a request. It waits for them.
    pub(super) async fn lease(
        &self,
        request: &ApiRequest,
        max: NonZeroUsize,
        length: Duration,
        wait: Duration,
    ) -> Fetched {
        let (place, answered) = oneshot::channel();
        let until = Instant::now() + wait;
        let asked = Request { max, length, until, peer: request.peer().cloned(), answer: place };
        // Both fail when the daemon stops.
        match self.requests.send(asked) {
            Ok(()) => answer(answered, self.requests.closed()).await.unwrap_or(Ok(None)),
            Err(_) => Ok(None),
        }
    }

    /// Writes outcomes of a lease, by the indexes of its items, for a worker's request.
    pub(super) async fn acknowledge(
        &self,
        request: &ApiRequest,
        lease: Lease,
        outcomes: Vec<(usize, ItemOutcome)>,
    ) -> Written {
        let stopping = || Err(ApiError::Unavailable("the daemon is stopping".to_owned()));
        let (place, answered) = oneshot::channel();
        match self.changes.send(Change { lease, outcomes, answer: place, held: request.held.clone() }) {
            Ok(()) => answer(answered, self.changes.closed()).await.unwrap_or_else(stopping),
            Err(_) => stopping(),
        }
    }
}
