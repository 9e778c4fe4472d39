//! From running to stopped: signals, the drain, and why it ended.

mod signals;

use std::{io, pin::pin, sync::Arc, time::Duration};

use tokio::{sync::watch, time::timeout};

use crate::{
    actors::{ConsumerContext, SupervisorExit, SupervisorExits, SupervisorHandle},
    config::Config,
    handlers::ABORT_DELAY,
};

pub(crate) use signals::{SignalCommands, Signals};

/// How long the database has for releasing the items of handlers that the shutdown timeout has cancelled.
const GIVE_BACK: Duration = Duration::from_secs(5);

/// The longest that a drain lasts after the shutdown timeout.
pub(crate) const DRAIN_TAIL: Duration = ABORT_DELAY.saturating_add(GIVE_BACK);

/// Why a daemon that was running could not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The signals cannot be watched.
    #[error("cannot watch for signals")]
    Signals(#[source] io::Error),
    /// Items were neither finished nor given back in time.
    #[error(
        "consumers still at work after the shutdown timeout of {} ms: {consumers}, and not all of their items could be given back; \
         raise shutdown-timeout", shutdown_timeout.as_millis()
    )]
    DrainTimedOut {
        /// Consumers at work when the shutdown timeout was over.
        consumers: usize,
        /// The configured shutdown timeout.
        shutdown_timeout: Duration,
    },
    /// All consumers have stopped, and yet items were not given back.
    #[error(
        "items neither finished nor given back: {items}; see the log for the reason; leased items will be redelivered when their leases expire"
    )]
    LeftBehind {
        /// Their number.
        items: usize,
    },
    /// A handler could not go on, or the database cannot.
    #[error("cannot go on: {0}")]
    CannotGoOn(String),
    /// Our own fault.
    #[error(
        "consumers of queue {queue:?} failed more than {restarts} times within {} s; the log says how", within.as_secs()
    )]
    ConsumersFailed {
        /// The queue of the last one.
        queue: Arc<str>,
        /// The limit of restarts...
        restarts: usize,
        /// ...within this time.
        within: Duration,
    },
    /// Our own fault.
    #[error("the supervisor died; the log says how")]
    SupervisorDied,
    /// Our own fault.
    #[error("the task that carries out commands panicked; the log says how")]
    TaskFailed,
}

/// Serves until there is a reason to stop, such as that `stop` resolves, then drains, for as long as the configuration allows that is in
/// force by then.
pub(crate) async fn serve(
    supervisor: &SupervisorHandle,
    exits: &mut SupervisorExits,
    shared: &ConsumerContext,
    stop: impl Future<Output = Result<(), RunError>>,
    config: &watch::Receiver<Arc<Config>>,
) -> Result<(), RunError> {
    let reason = tokio::select! {
        stop = stop => stop,
        reason = shared.shutdown.stop.wait() => Err(RunError::CannotGoOn(reason)),
        end = exits.next() => match end {
            SupervisorExit::Finished => Ok(()),
            end => Err(end.into()),
        },
    };
    let shutdown_timeout = config.borrow().shutdown_timeout;
    tracing::info!(
        event = "draining",
        shutdown_timeout_ms = shutdown_timeout.as_millis(),
        consumers = shared.consumers(),
        "draining"
    );
    shared.status.draining(shutdown_timeout);
    let drained = drain(supervisor, exits, shared, shutdown_timeout).await;
    // The reason of the stop is more useful than the way it ended.
    reason.and(drained)
}

/// Lets the consumers finish. At the shutdown timeout, cancels their handlers.
async fn drain(
    supervisor: &SupervisorHandle,
    exits: &mut SupervisorExits,
    shared: &ConsumerContext,
    shutdown_timeout: Duration,
) -> Result<(), RunError> {
    shared.shutdown.draining.cancel();
    supervisor.drain();
    let mut finished = pin!(finished(exits, shared));
    if timeout(shutdown_timeout, &mut finished).await.is_err() {
        let consumers = shared.consumers();
        tracing::warn!(
            event = "shutdown_timed_out",
            consumers,
            "the shutdown timeout has passed; cancelling handlers"
        );
        shared.shutdown.drain_timed_out.cancel();
        let ended = timeout(DRAIN_TAIL, &mut finished).await.is_ok();
        if !ended || shared.shutdown.left_behind() > 0 {
            return Err(RunError::DrainTimedOut { consumers, shutdown_timeout });
        }
    }
    match shared.shutdown.left_behind() {
        0 => {
            tracing::info!(event = "drained", "drained");
            Ok(())
        }
        items => Err(RunError::LeftBehind { items }),
    }
}

/// Waits until all consumers and their tasks have ended. Failures no longer matter.
async fn finished(exits: &mut SupervisorExits, shared: &ConsumerContext) {
    while let SupervisorExit::TooManyFailures { .. } = exits.next().await {}
    shared.work.close();
    shared.work.wait().await;
}

impl From<SupervisorExit> for RunError {
    fn from(end: SupervisorExit) -> Self {
        match end {
            SupervisorExit::TooManyFailures { queue, restarts, within } => {
                Self::ConsumersFailed { queue, restarts, within }
            }
            // An exit without an error: the supervisor is gone when it is asked again.
            SupervisorExit::Finished | SupervisorExit::SupervisorDied => Self::SupervisorDied,
        }
    }
}
