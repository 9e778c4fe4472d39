//! The handle through which the rest of the daemon starts, stops and awaits consumers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use actix::{Actor, Addr};
use tokio::{runtime::Handle, sync::mpsc};
use tokio_util::task::TaskTracker;

use super::{
    messages::{Drain, End, Observer, Spec, Start, Stop},
    supervisor::Supervisor,
};
use crate::consumer::{contention::Contention, signals::Signals};

/// What all consumers of a process share.
pub(crate) struct Shared {
    /// Where handlers run.
    pub(crate) pool: Handle,
    pub(crate) signals: Arc<Signals>,
    /// Batches that are being handled or settled. They go on when their consumer panics.
    pub(crate) work: TaskTracker,
    pub(crate) observer: Option<Observer>,
    pub(crate) contention: Arc<Contention>,
    consumers: AtomicUsize,
}

impl Shared {
    pub(crate) fn new(pool: Handle, observer: Option<Observer>, contention: Arc<Contention>) -> Arc<Self> {
        Arc::new(Self {
            pool,
            signals: Arc::default(),
            work: TaskTracker::new(),
            observer,
            contention,
            consumers: AtomicUsize::new(0),
        })
    }

    /// The supervisor says how many consumers there are.
    pub(super) fn left(&self, consumers: usize) {
        self.consumers.store(consumers, Ordering::Relaxed);
    }

    /// How many consumers there are.
    pub(crate) fn consumers(&self) -> usize {
        self.consumers.load(Ordering::Relaxed)
    }
}

/// The supervisor and its consumers, from outside. Made on the actors' thread.
pub(crate) struct Crew {
    supervisor: Addr<Supervisor>,
    ends: mpsc::UnboundedReceiver<End>,
}

impl Crew {
    /// Starts a supervisor, without consumers.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let (tell, ends) = mpsc::unbounded_channel();
        Self { supervisor: Supervisor::new(shared, tell).start(), ends }
    }

    /// Starts consumers and returns their ids. Those that run dry at once do not end a crew whose others have yet to begin, so
    /// start all of them in one go.
    pub(crate) async fn start(&self, specs: Vec<Spec>) -> Result<Vec<u64>, End> {
        self.supervisor.send(Start(specs)).await.map_err(|_| End::SupervisorDied)
    }

    /// Lets one consumer finish what it has in hand and stop; false if there is none of that id.
    pub(crate) async fn stop(&self, id: u64) -> Result<bool, End> {
        self.supervisor.send(Stop(id)).await.map_err(|_| End::SupervisorDied)
    }

    /// Lets all consumers finish what they have in hand and stop, and no new ones take.
    pub(crate) fn drain(&self) {
        self.supervisor.do_send(Drain);
    }

    /// Waits for the end: after a drain, when all consumers of `until_empty` specs have run dry, or after too many
    /// failures. After failures the other consumers go on until they are drained, which ends the crew once more.
    pub(crate) async fn ended(&mut self) -> End {
        self.ends.recv().await.unwrap_or(End::SupervisorDied)
    }
}
