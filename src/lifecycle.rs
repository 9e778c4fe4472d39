//! From running to stopped: signals, the drain, and why it ended.

use std::{
    io,
    os::unix::net::UnixStream,
    pin::pin,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use signal_hook::{
    SigId,
    consts::{SIGINT, SIGTERM},
    flag, low_level,
};
use tokio::{io::AsyncReadExt, time::timeout};

use crate::{
    actors::{Crew, End, Shared},
    handlers::LAST_MOMENT,
    systemd,
};

/// How long the database has to take back what handlers had that the grace has ended.
const GIVE_BACK: Duration = Duration::from_secs(5);

/// Why a daemon that was running could not end well.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The signals cannot be watched.
    #[error("cannot watch for signals")]
    Signals(#[source] io::Error),
    /// Items were neither finished nor given back in time.
    #[error(
        "consumers still at work after the grace of {} ms: {consumers}, and not all of their items could be given back; \
         raise grace", grace.as_millis()
    )]
    GraceOver {
        /// Consumers at work when the grace was over.
        consumers: usize,
        /// The configured grace.
        grace: Duration,
    },
    /// All consumers have stopped, and yet items were not given back.
    #[error(
        "items neither finished nor given back: {items}; the log says why, and those on a lease come again when it runs out"
    )]
    LeftBehind {
        /// So many.
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
        /// So many restarts are allowed...
        restarts: usize,
        /// ...within this time.
        within: Duration,
    },
    /// Our own fault.
    #[error("the supervisor died; the log says how")]
    SupervisorDied,
}

/// TERM and INT. The first is for the daemon to drain by; a second ends the process at once, from the signal
/// handler itself, whatever state the process is in.
pub(crate) struct Signals {
    received: UnixStream,
    registered: Vec<SigId>,
}

impl Signals {
    pub(crate) fn watch() -> io::Result<Self> {
        let (received, sender) = UnixStream::pair()?;
        received.set_nonblocking(true)?;
        let seen = Arc::new(AtomicBool::new(false));
        let mut signals = Self { received, registered: Vec::new() };
        for signal in [SIGTERM, SIGINT] {
            // In this order: the first signal finds the flag unset, and sets it.
            let at_once = flag::register_conditional_shutdown(signal, 128 + signal, seen.clone())?;
            let again = flag::register(signal, seen.clone())?;
            let wake = low_level::pipe::register(signal, sender.try_clone()?)?;
            signals.registered.extend([at_once, again, wake]);
        }
        Ok(signals)
    }

    /// Waits for the first signal.
    pub(crate) async fn received(&self) -> io::Result<()> {
        let mut stream = tokio::net::UnixStream::from_std(self.received.try_clone()?)?;
        stream.read_u8().await.map(drop)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            low_level::unregister(id);
        }
    }
}

/// Serves until there is a reason to stop, such as that `stop` resolves, then drains.
pub(crate) async fn serve(
    crew: &mut Crew,
    shared: &Shared,
    stop: impl Future<Output = io::Result<()>>,
    grace: Duration,
) -> Result<(), RunError> {
    let reason = tokio::select! {
        stop = stop => stop.map_err(RunError::Signals),
        reason = shared.signals.stop.wait() => Err(RunError::CannotGoOn(reason)),
        end = crew.ended() => match end {
            End::Finished => Ok(()),
            end => Err(end.into()),
        },
    };
    tracing::info!(grace_ms = grace.as_millis(), consumers = shared.consumers(), "draining");
    systemd::stopping();
    let drained = drain(crew, shared, grace).await;
    // Why it stopped says more than how.
    reason.and(drained)
}

/// Lets the consumers finish; when the grace is over, cancels what they have in hand.
async fn drain(crew: &mut Crew, shared: &Shared, grace: Duration) -> Result<(), RunError> {
    shared.signals.draining.cancel();
    crew.drain();
    let mut finished = pin!(finished(crew, shared));
    if timeout(grace, &mut finished).await.is_err() {
        let consumers = shared.consumers();
        tracing::warn!(consumers, "the grace is over, handlers are cancelled");
        shared.signals.grace_over.cancel();
        let ended = timeout(LAST_MOMENT + GIVE_BACK, &mut finished).await.is_ok();
        if !ended || shared.signals.left_behind() > 0 {
            return Err(RunError::GraceOver { consumers, grace });
        }
    }
    match shared.signals.left_behind() {
        0 => {
            tracing::info!("drained");
            Ok(())
        }
        items => Err(RunError::LeftBehind { items }),
    }
}

/// Waits until no consumer is left, and nothing of what consumers have begun. Failures no longer matter.
async fn finished(crew: &mut Crew, shared: &Shared) {
    while let End::TooManyFailures { .. } = crew.ended().await {}
    shared.work.close();
    shared.work.wait().await;
}

impl From<End> for RunError {
    fn from(end: End) -> Self {
        match end {
            End::TooManyFailures { queue, restarts, within } => {
                Self::ConsumersFailed { queue, restarts, within }
            }
            // A crew that finished is no error; whoever asks has lost its supervisor.
            End::Finished | End::SupervisorDied => Self::SupervisorDied,
        }
    }
}
