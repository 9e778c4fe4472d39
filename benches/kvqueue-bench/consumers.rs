//! The consumers of a cell's queue: the daemon's, or those of the Erlang program.

use std::{
    sync::{Arc, OnceLock},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use async_trait::async_trait;
use foundationdb::Database;
use kvqueue::{BatchHandler, Config, Context, Daemon, DaemonError, Handler, Outcome, SettingsError};
use kvqueue_queue::{Item, Queue};
use tokio::{sync::oneshot, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    baseline::{self, Baseline},
    contention::Contention,
    keys::Keys,
    options::{HandlerKind, Work},
    producers::all,
    report::rounded,
    tally::Tally,
};

/// The name under which the daemon knows the handler.
const HANDLER: &str = "bench";

/// How long a stop of the daemon waits for items in hand. The handler needs no time.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Where they work.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) db: Arc<Database>,
    pub(super) url: String,
    pub(super) prefix: String,
    pub(super) queue: Queue,
}

/// Consumers at work. Dropped, they are stopped.
pub(super) enum Consumers {
    Daemon(DaemonThread),
    Baseline {
        tasks: JoinSet<anyhow::Result<()>>,
        stop: CancellationToken,
        contention: Arc<Contention>,
        begun: Instant,
    },
}

impl Consumers {
    /// Starts what `work` describes. A daemon ends by itself when the queue is empty, if it is to work `until_empty`.
    pub(super) fn start(
        place: &Place,
        work: &Work,
        tally: &Arc<Tally>,
        until_empty: bool,
    ) -> anyhow::Result<Self> {
        if !work.baseline {
            return Ok(Self::Daemon(DaemonThread::start(place, work, tally, until_empty)?));
        }
        let (stop, contention) = (CancellationToken::new(), Arc::<Contention>::default());
        let baseline = Baseline {
            db: place.db.clone(),
            keys: Keys::new(&place.prefix, &place.queue),
            k: work.k().get(),
            tally: tally.clone(),
            contention: contention.clone(),
            stop: stop.clone(),
        };
        let begun = Instant::now();
        Ok(Self::Baseline { tasks: baseline::start(baseline, work.workers), stop, contention, begun })
    }

    /// When they were ready to take; `None`: they are not yet.
    pub(super) fn begun(&self) -> Option<Instant> {
        match self {
            Self::Daemon(daemon) => daemon.begun.get().copied(),
            Self::Baseline { begun, .. } => Some(*begun),
        }
    }

    /// Waits until they end: by a failure, or because the queue is empty.
    pub(super) async fn ended(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Daemon(daemon) => daemon.ended().await,
            Self::Baseline { tasks, .. } => all(tasks).await.map(drop).context("a consumer failed"),
        }
    }

    /// Lets them finish what they have in hand, and waits for it.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        match &self {
            Self::Daemon(daemon) => daemon.stop.cancel(),
            Self::Baseline { stop, .. } => stop.cancel(),
        }
        self.ended().await
    }

    /// Conflicts for each hundred takes of the baseline, whose consumers take against each other.
    pub(super) fn conflicts_per_100_takes(&self) -> Option<f64> {
        match self {
            Self::Daemon(_) => None,
            Self::Baseline { contention, .. } => Some(rounded(contention.per_100_takes(), 1)),
        }
    }
}

/// The daemon on a thread of its own.
pub(super) struct DaemonThread {
    stop: CancellationToken,
    /// When it was ready.
    begun: Arc<OnceLock<Instant>>,
    result: oneshot::Receiver<Result<(), DaemonError>>,
    has_ended: bool,
    thread: Option<JoinHandle<()>>,
}

impl DaemonThread {
    fn start(place: &Place, work: &Work, tally: &Arc<Tally>, until_empty: bool) -> anyhow::Result<Self> {
        let (stop, begun) = (CancellationToken::new(), Arc::new(OnceLock::new()));
        let (tell, result) = oneshot::channel();
        let (place, work, tally) = (place.clone(), work.clone(), tally.clone());
        let (stopped, first) = (stop.clone(), begun.clone());
        let thread = std::thread::Builder::new().name("kvqueue-daemon".to_owned()).spawn(move || {
            let daemon = daemon(&place, &work, &tally, first).until_empty(until_empty);
            // Nobody waits for it after an interruption.
            let _ = tell.send(daemon.run_on(&place.db, stopped.cancelled_owned()));
        })?;
        Ok(Self { stop, begun, result, has_ended: false, thread: Some(thread) })
    }

    async fn ended(&mut self) -> anyhow::Result<()> {
        if self.has_ended {
            return Ok(());
        }
        let result = (&mut self.result).await;
        self.has_ended = true;
        Ok(result.context("the daemon died")??)
    }
}

/// The database must not be closed under it.
impl Drop for DaemonThread {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed.
            let _ = thread.join();
        }
    }
}

/// The daemon as `kvqueue run` has it, with a handler that takes notes.
fn daemon(place: &Place, work: &Work, tally: &Arc<Tally>, begun: Arc<OnceLock<Instant>>) -> Daemon {
    let name = String::from_utf8_lossy(place.queue.name()).into_owned();
    let mut config = Config::new(&place.url).with_queue(name, work.queue(HANDLER));
    (config.prefix, config.shutdown_timeout) = (place.prefix.clone(), SHUTDOWN_TIMEOUT);
    let noting = Noting(tally.clone());
    let registered = match work.handler() {
        HandlerKind::Batch => {
            Daemon::new(config).batch_handler(HANDLER, move |_| Ok::<_, SettingsError>(noting.clone()))
        }
        HandlerKind::Each => {
            Daemon::new(config).handler(HANDLER, move |_| Ok::<_, SettingsError>(noting.clone()))
        }
    };
    registered.on_ready(move || {
        begun.get_or_init(Instant::now);
    })
}

/// The handler: notes which items it has got.
#[derive(Clone)]
struct Noting(Arc<Tally>);

#[async_trait]
impl Handler for Noting {
    async fn handle(&self, item: &Item, _: &Context) -> Outcome {
        self.0.handled(std::iter::once(&item.payload[..]));
        Outcome::Done
    }
}

#[async_trait]
impl BatchHandler for Noting {
    async fn handle(&self, items: &[Item], _: &Context) -> Vec<Outcome> {
        self.0.handled(items.iter().map(|item| &item.payload[..]));
        vec![Outcome::Done; items.len()]
    }
}
