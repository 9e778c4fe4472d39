//! Pullers, one for each queue that workers lease from over HTTP.

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use kvqueue_queue::{Item, ItemOutcome, Lease, Queue};
use tokio::sync::{mpsc::UnboundedSender, oneshot};

use super::{
    acknowledging::{Acknowledging, Change, Written},
    fetching::{Fetching, LeaseAnswer, LeaseRequest},
    kept::Leases,
};
use crate::{
    base::{answer::answer, clock, times::before},
    config::QueueConfig,
    consumer::fetch::VersionClock,
    http::{backend::Backend, error::ApiError, peer::Peer, room::Place},
};

/// The most queues with a puller. When there are more, the ones at which nobody waits are dropped.
const MOST: usize = 1_024;

/// The pullers there are, by their queues' names; and the leases that workers have from them.
#[derive(Debug, Default)]
pub(in crate::http) struct Pullers {
    pullers: Mutex<HashMap<String, Arc<Puller>>>,
    pub(super) leases: Arc<Leases>,
}

/// The way to the fetches from one queue, and to its acknowledgements.
#[derive(Debug)]
pub(super) struct Puller {
    queue: Queue,
    /// The time that belongs to a version of the database.
    clock: Arc<VersionClock>,
    requests: UnboundedSender<LeaseRequest>,
    changes: UnboundedSender<Change>,
}

impl Pullers {
    /// The puller of a queue, made if there is none for its layout in the configuration.
    pub(super) fn puller(&self, backend: &Arc<Backend>, name: &str) -> Result<Arc<Puller>, ApiError> {
        let kind = backend.config().queues.get(name).map(QueueConfig::layout).unwrap_or_default();
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
        let queue = backend.queue(name)?;
        let clock = Arc::<VersionClock>::default();
        let (fetching, requests) = Fetching::new(backend, queue.clone(), clock.clone());
        let (acknowledging, changes) = Acknowledging::new(backend, &self.leases, name);
        drop((backend.spawn(fetching.run()), backend.spawn(acknowledging.run())));
        let puller = Arc::new(Puller { queue, clock, requests, changes });
        pullers.insert(name.to_owned(), puller.clone());
        Ok(puller)
    }

    /// Lets their tasks end.
    pub(in crate::http) fn clear(&self) {
        self.pullers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Puller {
    /// When an item of the queue was pushed: as its producer wrote it down, or by its id.
    pub(super) fn enqueued_at(&self, item: &Item) -> Option<SystemTime> {
        let written = item.meta.as_ref().and_then(|meta| meta.enqueued_at);
        written.or_else(|| {
            let age = self.clock.since(item.id.stamp()?.version(), Instant::now())?;
            Some(before(clock::now(), age))
        })
    }

    /// Leases up to `max` items for the worker at this connection. It waits for them.
    pub(super) async fn lease(
        &self,
        peer: Option<Arc<Peer>>,
        max: NonZeroUsize,
        length: Duration,
        wait: Duration,
    ) -> LeaseAnswer {
        let (place, answered) = oneshot::channel();
        let until = Instant::now() + wait;
        let asked = LeaseRequest { max, length, until, peer, answer: place };
        // Both fail when the daemon stops.
        match self.requests.send(asked) {
            Ok(()) => answer(answered, self.requests.closed()).await.unwrap_or(Ok(None)),
            Err(_) => Ok(None),
        }
    }

    /// Writes outcomes of a lease, by the indexes of its items. `held` is the memory of the request's body.
    pub(super) async fn acknowledge(
        &self,
        lease: Lease,
        outcomes: Vec<(usize, ItemOutcome)>,
        held: Option<Arc<Place>>,
    ) -> Written {
        let stopping = || Err(ApiError::Unavailable("the daemon is stopping".to_owned()));
        let (place, answered) = oneshot::channel();
        match self.changes.send(Change { lease, outcomes, answer: place, held }) {
            Ok(()) => answer(answered, self.changes.closed()).await.unwrap_or_else(stopping),
            Err(_) => stopping(),
        }
    }
}
