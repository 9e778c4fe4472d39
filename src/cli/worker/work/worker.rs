//! The worker: it leases items for free places, and ends when it is stopped.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::json;
use tokio::{
    sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::held;
use crate::{
    cli::{
        api_client::AskError,
        worker::{
            daemons::{Daemons, PATIENCE, Until},
            leased::Leased,
            queue_path,
        },
    },
    consumer::breaker::{Breaker, Tried},
    handlers::{AnyHandler, Exec},
    lifecycle::DRAIN_TAIL,
};

/// How long a request waits for items at the daemon.
const WAIT: Duration = Duration::from_secs(20);

/// The pause after an empty answer that came at once, as from a daemon that is stopping.
const EMPTY: Duration = Duration::from_millis(500);

/// The most items of a lease, as the API allows.
const MOST: usize = 1_000;

/// The options about fetches and calls.
#[derive(Debug)]
pub(super) struct Limits {
    /// Commands that run at the same time.
    pub(super) concurrency: NonZeroUsize,
    /// Items of a lease.
    pub(super) k: Option<NonZeroUsize>,
    /// The length of a lease.
    pub(super) lease: Option<Duration>,
    /// Of one call of the handler.
    pub(super) handler_timeout: Option<Duration>,
    /// Whether the worker ends if its queue is not there when it begins.
    pub(super) must_exist: bool,
}

/// The right to run one command.
pub(super) type Place = OwnedSemaphorePermit;

/// The right to ask for the next lease.
pub(super) type Turn = OwnedMutexGuard<()>;

/// A worker of one queue.
pub(super) struct Worker {
    pub(super) queue: Arc<str>,
    /// The path of the queue in the API.
    pub(super) path: String,
    pub(super) daemons: Daemons,
    pub(super) limits: Limits,
    pub(super) tried: Tried,
    /// Holds fetches back while the command cannot be started.
    pub(super) breaker: Arc<Breaker>,
    places: Arc<Semaphore>,
    /// Held from the request for a lease until its last item has a place. So the next request, which may wait for items, takes no place from them.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Nothing is begun any more.
    pub(super) stop: CancellationToken,
    /// Commands that run are ended.
    pub(super) cancelled: CancellationToken,
    /// The leases and their commands.
    pub(super) tasks: TaskTracker,
    /// Why the worker cannot go on.
    failure: Mutex<Option<AskError>>,
}

impl Worker {
    pub(super) fn new(queue: &str, daemons: Daemons, exec: Exec, limits: Limits) -> Self {
        let breaker = Arc::new(Breaker::new(queue.into()));
        let tried = breaker.reset(AnyHandler::Each(Arc::new(exec)));
        Self {
            queue: queue.into(),
            path: queue_path(queue),
            daemons,
            places: Arc::new(Semaphore::new(limits.concurrency.get().min(Semaphore::MAX_PERMITS))),
            turn: Arc::default(),
            limits,
            tried,
            breaker,
            stop: CancellationToken::new(),
            cancelled: CancellationToken::new(),
            tasks: TaskTracker::new(),
            failure: Mutex::default(),
        }
    }

    /// Leases items and has them handled, until the worker is stopped or cannot go on, or no daemon
    /// answers by `first`.
    pub(super) async fn run(self: &Arc<Self>, first: Until) {
        let fetching = async {
            self.daemons.reach(first).await?;
            tracing::info!(event = "worker_started", queue = %self.queue, "waiting for items");
            self.fetch().await
        };
        if let Some(Err(error)) = self.stop.run_until_cancelled(fetching).await {
            self.fail(error);
        }
    }

    /// Fetches for ever, as places become free.
    async fn fetch(self: &Arc<Self>) -> Result<(), AskError> {
        let mut number = 0;
        loop {
            number += 1;
            let turn = self.turn.clone().lock_owned().await;
            let place = self.place().await;
            self.breaker.admit(number).await;
            match self.lease(number).await? {
                Some(leased) => {
                    let handled = held::handle(self.clone(), number, leased, (turn, place));
                    drop(self.tasks.spawn(handled));
                }
                None => self.breaker.leave(number),
            }
        }
    }

    /// Stops the worker for this reason. The first one stands.
    pub(super) fn fail(&self, error: AskError) {
        self.lock_failure().get_or_insert(error);
        self.stop.cancel();
    }

    /// The reason why it could not go on.
    pub(super) fn failure(&self) -> Option<AskError> {
        self.lock_failure().take()
    }

    fn lock_failure(&self) -> MutexGuard<'_, Option<AskError>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the commands that run, and ends them at the shutdown timeout. Returns whether each
    /// item was acknowledged or its lease was lost.
    pub(super) async fn drain(&self, shutdown_timeout: Duration) -> bool {
        if self.tasks.is_empty() {
            return true;
        }
        tracing::info!(
            event = "draining",
            shutdown_timeout_ms = shutdown_timeout.as_millis(),
            tasks = self.tasks.len(),
            "draining"
        );
        self.tasks.close();
        let in_time = timeout(shutdown_timeout, self.tasks.wait());
        let is_drained = match self.cancelled.run_until_cancelled(in_time).await {
            Some(Ok(())) => true,
            Some(Err(_)) => {
                tracing::warn!(
                    event = "shutdown_timed_out",
                    tasks = self.tasks.len(),
                    "the shutdown timeout has passed; cancelling handlers"
                );
                self.cancelled.cancel();
                false
            }
            None => false,
        };
        let is_drained = is_drained || timeout(DRAIN_TAIL, self.tasks.wait()).await.is_ok();
        if is_drained {
            tracing::info!(event = "drained", "drained");
        }
        is_drained
    }

    /// Waits until another command may run.
    pub(super) async fn place(&self) -> Place {
        self.places.clone().acquire_owned().await.expect("nothing closes the semaphore")
    }

    /// Leases items for one place that is held already, and for all others that are free. The `number`th time.
    async fn lease(&self, number: u64) -> Result<Option<Leased>, AskError> {
        let free = self.places.available_permits() + 1;
        let wanted = self.limits.k.map_or(free, NonZeroUsize::get).min(MOST);
        // One item shows whether the command can be started again.
        let wanted = if self.breaker.is_open() { 1 } else { wanted };
        let mut body = json!({ "max": wanted, "wait_ms": WAIT.as_millis() });
        if self.limits.must_exist && number == 1 {
            body["must_exist"] = json!(true);
        }
        if let Some(length) = self.limits.lease {
            body["lease_ms"] = json!(length.as_millis());
        }
        let patience = WAIT.saturating_add(PATIENCE);
        let path = self.path.clone() + "/lease";
        let (answer, asked_at) = self.daemons.post_timed(&path, &body, patience, Until::Answer).await?;
        let leased =
            Leased::read(&answer, asked_at).ok_or_else(|| self.daemons.garbled("it is not a lease"))?;
        if leased.is_none() && asked_at.elapsed() < EMPTY {
            self.daemons.turn();
            sleep(EMPTY).await;
        }
        Ok(leased)
    }
}
