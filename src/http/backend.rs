//! What requests and tasks of the server work with: the daemon, its database, and the runtime of tasks.

use std::sync::Arc;

use foundationdb::Transaction;
use futures::FutureExt;
use kvqueue_queue::{Pause, Queue, QueueError, Recorder, Recording, RetryError, RetryPolicy, retry};
use tokio::{
    runtime::Handle,
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    error::ApiError,
    guard::Caller,
    handle::DaemonHandle,
    room::{AT_THE_DATABASE, Place, Room},
};
use crate::{
    access::TokenStore,
    audit::AuditStore,
    base::deadlines::{LAST_MOMENT, OPERATION},
    config::{Config, QueueConfig},
    database::{Refused, item_history},
    operations::Refusal,
};

/// FoundationDB's `transaction_timed_out`.
const TIMED_OUT: i32 = 1031;

/// When operations are given up.
pub(super) const POLICY: RetryPolicy = RetryPolicy { max_attempts: None, timeout: Some(OPERATION) };

/// The daemon, and the tasks that finish even if their client is gone.
pub(crate) struct Backend {
    pub(super) daemon: DaemonHandle,
    /// Room for requests that use the database.
    at_the_database: Arc<Room>,
    /// Cancelled when the daemon has stopped, so that streams of events, waits and the fetches of workers end.
    pub(super) stopping: CancellationToken,
    pub(super) tasks: TaskTracker,
    /// Runs the tasks.
    runtime: Handle,
}

impl Backend {
    pub(super) fn new(daemon: DaemonHandle, runtime: Handle) -> Self {
        Self {
            daemon,
            at_the_database: Room::new(AT_THE_DATABASE),
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
            runtime,
        }
    }

    /// Runs a task that finishes even if its client is gone.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        // Boxed: what a runtime needs for a task is compiled once for each type of result, not for each task.
        self.tasks.spawn_on(task.boxed(), &self.runtime)
    }

    /// The active configuration.
    pub(super) fn config(&self) -> Arc<Config> {
        self.daemon.config.borrow().clone()
    }

    /// The access tokens in the database.
    pub(super) fn token_store(&self) -> TokenStore {
        TokenStore::new(self.config().prefix.as_bytes())
    }

    /// The audit trail in the database.
    pub(super) fn audit(&self) -> AuditStore {
        AuditStore::new(self.config().prefix.as_bytes())
    }

    /// A database permit for a client, if there is one left.
    pub(super) fn permit(&self, client: &Caller) -> Result<Place, ApiError> {
        let mut permit = self.at_the_database.place(client);
        match permit.grow_to(1) {
            true => Ok(permit),
            false => Err(ApiError::Busy("too many requests are at the database")),
        }
    }

    /// Runs a transaction that may commit twice with the same result: a read, or plain writes. It takes no database permit: the caller has
    /// another bound.
    pub(super) async fn run<T, R>(&self, body: impl FnMut(Transaction) -> R) -> Result<T, ApiError>
    where
        R: Future<Output = (Transaction, Result<T, QueueError>)>,
    {
        let done = timeout(OPERATION + LAST_MOMENT, retry::run(&self.daemon.db, &POLICY, body)).await;
        Ok(done.map_err(|_| silent())??.value)
    }

    /// A database that accepts no more data may have too much to do, and space enough.
    pub(super) async fn explain(&self, failure: ApiError) -> ApiError {
        if !matches!(failure, ApiError::NoSpace) {
            return failure;
        }
        let config = self.config();
        match spawn_blocking(move || Refused::why(&config.database)).await {
            Ok(Refused::Busy(text)) => ApiError::Unavailable(text),
            Ok(Refused::Space(_)) | Err(_) => ApiError::NoSpace,
        }
    }

    /// A queue by its name, laid out as the configuration says; one that is not in it is a fifo.
    pub(super) fn queue(&self, name: &str) -> Result<Queue, ApiError> {
        let config = self.config();
        let settings = config.queues.get(name);
        let kind = settings.map(QueueConfig::layout).unwrap_or_default();
        let queue = Queue::of_kind(config.prefix.as_bytes(), name.as_bytes(), kind);
        let queue = queue.map_err(|error| ApiError::Bad(error.to_string()))?;
        Ok(queue.with_recorder(&self.recorder(name)))
    }

    /// What records the ends of items of this queue.
    pub(super) fn recorder(&self, queue: &str) -> Recorder {
        match self.config().queues.contains_key(queue) {
            true => self.daemon.status.recorder(queue),
            false => item_history::recorder(Recording::AsStored),
        }
    }

    /// Whether a queue is paused, for all daemons or for this one.
    pub(super) async fn is_paused(&self, queue: &Queue) -> Result<bool, ApiError> {
        let name = &*String::from_utf8_lossy(queue.name());
        let is_paused_here = self.config().queues.contains_key(name)
            && self.daemon.status.pause_state(&Arc::from(name)).is_paused_locally();
        Ok(is_paused_here || self.pause(name, queue).await?.is_some())
    }

    /// The pause of a queue. The daemon follows the pauses of its own queues. For other queues, and
    /// while a pause state is not known, it reads the database. That takes no database permit: many
    /// clients push at a time.
    async fn pause(&self, name: &str, queue: &Queue) -> Result<Option<Pause>, ApiError> {
        if self.config().queues.contains_key(name)
            && let Some(pause) = self.daemon.status.pause_state(&Arc::from(name)).known()
        {
            return Ok(pause);
        }
        let read = self.run(|tr| async {
            let pause = queue.paused(&tr).await;
            (tr, pause)
        });
        read.await
    }
}

/// The database gives no answer.
pub(super) fn silent() -> ApiError {
    ApiError::Unavailable(format!("the database has not answered within {} s", OPERATION.as_secs()))
}

impl From<RetryError> for ApiError {
    fn from(error: RetryError) -> Self {
        Self::of(&error)
    }
}

impl ApiError {
    /// An operation was given up.
    pub(super) fn of(error: &RetryError) -> Self {
        if let Some(refusal) = Refusal::of(error) {
            return Self::Operation(refusal);
        }
        let maybe = if error.is_maybe_committed() { "; it may be done all the same" } else { "" };
        match &error.error {
            QueueError::Database(cause) if cause.code() == TIMED_OUT => match silent() {
                Self::Unavailable(text) => Self::Unavailable(text + maybe),
                other => other,
            },
            QueueError::Database(_) if error.is_out_of_space() => Self::NoSpace,
            QueueError::Database(cause) => Self::Unavailable(format!("the database refused: {cause}{maybe}")),
            QueueError::Frozen { .. } => {
                Self::Unavailable(format!("the queue was frozen during the change{maybe}"))
            }
            problem => Self::Unreadable(problem.to_string()),
        }
    }
}
