//! The messages among the actors, and to the daemon.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
    num::NonZeroUsize,
    sync::Arc,
    time::Duration,
};

use actix::{Message, Recipient};
use kvqueue_queue::RetryError;
use tokio::sync::oneshot;

use crate::consumer::{
    claimed::Claimed, fetch::Ask, runtime::QueueRuntime, state::Event, status::ConsumerStatus,
};

/// Observes each consumer's events on the actors' thread, before the consumer acts on them. False: it ignores the event. A panic in it is the
/// consumer's.
pub(crate) type Observer = Arc<dyn Fn(u64, Event) -> bool + Send + Sync>;

/// The parts of a new consumer.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerSpec {
    pub(crate) runtime: Arc<QueueRuntime>,
    /// Items per fetch.
    pub(crate) k: NonZeroUsize,
}

impl ConsumerSpec {
    fn key(&self) -> (*const QueueRuntime, NonZeroUsize) {
        (Arc::as_ptr(&self.runtime), self.k)
    }
}

/// Consumers with equal specifications are interchangeable. A change of settings makes a new runtime, so their specifications differ.
impl PartialEq for ConsumerSpec {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for ConsumerSpec {}

impl Hash for ConsumerSpec {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// To the supervisor: run these consumers, by queue. Others finish and stop, except consumers of a queue that was never
/// named.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Reconcile(pub(super) DesiredConsumers);

/// Consumers by queue.
pub(crate) type DesiredConsumers = BTreeMap<Arc<str>, Vec<ConsumerSpec>>;

/// To the supervisor: start consumers. The answer is their ids.
#[derive(Debug, Message)]
#[rtype(result = "Vec<u64>")]
pub(super) struct Start(pub(super) Vec<ConsumerSpec>);

/// To the supervisor: let this consumer finish and stop. The answer is whether there is one.
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub(super) struct Stop(pub(super) u64);

/// To the supervisor: let all consumers finish and stop, then end. To a consumer: finish and stop.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Drain;

/// To the supervisor: list all consumers, and ping each.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Vec<ConsumerRef>")]
pub(super) struct ListConsumers;

/// A running consumer.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerRef {
    pub(crate) status: Arc<ConsumerStatus>,
    pub(crate) runtime: Arc<QueueRuntime>,
}

/// To a consumer: reply, as a proof that it reads its mailbox.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Ping;

/// From a consumer to its fetcher: fetch items.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Fetch(pub(super) Ask);

/// From a consumer to its fetcher: answer the open request, unless a fetch has begun for it.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Withdraw(pub(super) u64);

/// From a consumer to its fetcher: it has started.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Join(pub(super) u64);

/// The end of a session. It may give items that a fetch of unknown outcome had removed.
pub(super) type Closed = Result<Option<Claimed>, RetryError>;

/// From a consumer to its fetcher: it has no more requests. The last consumer gets its reply when the
/// session is closed.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Leave {
    pub(super) consumer: u64,
    pub(super) reply: oneshot::Sender<Closed>,
}

/// From a consumer that panicked to its fetcher.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Gone(pub(super) u64);

/// To a fetcher: its last consumer has ended.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub(super) struct StopFetcher;

/// From an actor's exit guard.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct ActorExited {
    pub(super) who: Who,
    pub(super) reason: ExitReason,
}

/// Which actor ended.
#[derive(Clone, Debug)]
pub(super) enum Who {
    Consumer(u64),
    /// The fetcher of this runtime.
    Fetcher(Arc<QueueRuntime>),
}

/// How an actor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExitReason {
    /// The supervisor stopped it, or its queue was empty and that was its task.
    Stopped,
    /// It panicked.
    Panicked,
    /// It ended for an unknown reason.
    Vanished,
}

/// How the supervisor ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SupervisorExit {
    /// Every consumer has finished.
    Finished,
    /// Consumers failed more often than is allowed.
    TooManyFailures {
        /// The queue of the last one.
        queue: Arc<str>,
        /// The limit of restarts...
        restarts: usize,
        /// ...within this time.
        within: Duration,
    },
    /// The supervisor itself has died.
    SupervisorDied,
}

/// Held by an actor. When the actor is dropped, it reports the end and its reason to the supervisor.
pub(super) struct ExitGuard {
    supervisor: Recipient<ActorExited>,
    who: Who,
    reason: ExitReason,
}

impl ExitGuard {
    pub(super) fn new(supervisor: Recipient<ActorExited>, who: Who) -> Self {
        Self { supervisor, who, reason: ExitReason::Vanished }
    }

    /// The actor is about to stop normally.
    pub(super) fn stopped(&mut self) {
        self.reason = ExitReason::Stopped;
    }
}

impl Drop for ExitGuard {
    fn drop(&mut self) {
        let reason = if std::thread::panicking() { ExitReason::Panicked } else { self.reason };
        // Not `try_send`, which a full mailbox would refuse. The number of actors bounds these messages.
        self.supervisor.do_send(ActorExited { who: self.who.clone(), reason });
    }
}
