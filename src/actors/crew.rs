//! The handle through which the rest of the daemon starts, stops and awaits consumers.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use actix::{Actor, Addr};
use kvqueue_queue::VersionHistory;
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
};
use tokio_util::task::TaskTracker;

use super::{
    messages::{Census, Converge, Drain, End, Observer, Present, Spec, Start, Stop, Wanted},
    supervisor::Supervisor,
};
use crate::{
    board::Board,
    consumer::{ambient::version_history, contention::Contention, signals::Signals, suspects::Suspects},
};

/// What all consumers of a process share.
pub(crate) struct Shared {
    /// Where handlers run.
    pub(crate) pool: Handle,
    pub(crate) signals: Arc<Signals>,
    /// Batches that are being handled or settled. They go on when their consumer panics.
    pub(crate) work: TaskTracker,
    pub(crate) observer: Option<Observer>,
    pub(crate) contention: Arc<Contention>,
    pub(crate) suspects: Arc<Suspects>,
    pub(crate) board: Arc<Board>,
    /// What all sweepers of this process have seen of the database's versions.
    pub(crate) history: VersionHistory,
    consumers: AtomicUsize,
    finishing: watch::Sender<BTreeSet<String>>,
}

impl Shared {
    pub(crate) fn new(
        pool: Handle,
        observer: Option<Observer>,
        contention: Arc<Contention>,
        board: Arc<Board>,
    ) -> Arc<Self> {
        Arc::new(Self {
            pool,
            signals: Arc::default(),
            work: TaskTracker::new(),
            observer,
            contention,
            suspects: Arc::default(),
            board,
            history: version_history(),
            consumers: AtomicUsize::new(0),
            finishing: watch::Sender::default(),
        })
    }

    /// The supervisor says how many consumers there are.
    pub(super) fn left(&self, consumers: usize) {
        self.consumers.store(consumers, Ordering::Relaxed);
    }

    /// The supervisor says whether a queue has consumers that are to leave, or that wait for others to have left.
    pub(super) fn finishing(&self, queue: &str, is_finishing: bool) {
        let changed = self.finishing.send_if_modified(|finishing| {
            let changed = finishing.contains(queue) != is_finishing;
            if !changed {
                return false;
            }
            if is_finishing { finishing.insert(queue.to_owned()) } else { finishing.remove(queue) }
        });
        if changed {
            self.board.finishing(queue, is_finishing);
        }
    }

    /// The queues where consumers of an earlier configuration still run.
    pub(crate) fn still_finishing(&self) -> watch::Receiver<BTreeSet<String>> {
        self.finishing.subscribe()
    }

    /// How many consumers there are.
    pub(crate) fn consumers(&self) -> usize {
        self.consumers.load(Ordering::Relaxed)
    }
}

/// Asks which consumers there are.
#[derive(Clone, Debug)]
pub(crate) struct Roll(Addr<Supervisor>);

impl Roll {
    /// All consumers; each is asked to say on its pulse that it reads its mailbox. Resolves for as long as the supervisor reads its own.
    pub(crate) async fn call(&self) -> Result<Vec<Present>, End> {
        self.0.send(Census).await.map_err(|_| End::SupervisorDied)
    }
}

/// Says which consumers there are to be, while somebody else waits for the crew's end.
#[derive(Clone)]
pub(crate) struct Helm(Addr<Supervisor>);

impl Helm {
    /// Has the consumers of all queues become these, the sooner the more of them are quick. What they have in hand, those that are to
    /// leave finish first; one that is new takes nothing before. Returns when all are told. A crew that is drained stays as it is.
    pub(crate) async fn converge(&self, wanted: Wanted) -> Result<(), End> {
        self.0.send(Converge(wanted)).await.map_err(|_| End::SupervisorDied)
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

    /// The means to ask which consumers there are, while somebody else waits for the crew's end.
    pub(crate) fn roll(&self) -> Roll {
        Roll(self.supervisor.clone())
    }

    /// The means to say which consumers there are to be.
    pub(crate) fn helm(&self) -> Helm {
        Helm(self.supervisor.clone())
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
