//! `kvqueue demo`: the KvQueue tutorial, live, through the daemon's own supervisor, consumers and queue layer.

mod report;

use std::{
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use foundationdb::Database;
use futures::future::try_join_all;
use kvqueue_queue::{Queue, RetryPolicy, Session, retry};
use tokio::time::{sleep, timeout};

use self::report::{Recorder, Report};
use super::{globals::Globals, output};
use crate::{
    actors::{self, ConsumerContext, ConsumerSpec, SupervisorHandle},
    base::exit::Exit,
    config::{ConfigError, QueueConfig},
    consumer::{
        runtime::QueueRuntime,
        status::{ConsumerState, ConsumerStatus},
    },
    daemon::{self, configured::ConfiguredQueue},
    database::Store,
    handlers::AnyHandler,
    status::DaemonStatus,
    telemetry,
};

/// Show a queue at work: a throw-away database, three consumers, 1000 concurrent pushes
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

impl Args {
    #[expect(clippy::unused_self, reason = "every command is run alike")]
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let mut log = globals.load()?.log;
        log.level = level(globals).to_owned();
        telemetry::init_command(&log)?;
        let directory = tempfile::tempdir().context("cannot make a temporary directory for the database")?;
        let url = format!("embedded:{}", directory.path().display());
        let store = Store::open(&url)?;
        let pool = daemon::handler_pool().context("cannot start the handlers' threads")?;
        let recorder = Recorder::new();
        let shared = ConsumerContext::new(pool.handle().clone(), None, DaemonStatus::new(&url));
        let report =
            actors::run(run(&store, &shared, &recorder)).context("cannot start the consumers' thread")??;
        pool.shutdown_background();
        report.print(globals.json)?;
        if cfg!(debug_assertions) && !globals.quiet && !globals.json {
            output::note(format_args!(
                "this program is not optimised; one that `cargo build --release` makes is several times as fast"
            ));
        }
        Ok(if report.is_clean() { Exit::Done } else { Exit::Failed })
    }
}

/// The table at the end is the point of it; `-v` shows the consumers at work.
fn level(globals: &Globals) -> &'static str {
    match (globals.quiet, globals.verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "warn,kvqueue=debug",
        (false, _) => "debug",
    }
}

/// The tutorial's queue.
const QUEUE: &str = "q";

/// Items pushed, all at once.
const ITEMS: usize = 1000;

/// K of the consumers that wait when the pushes begin.
const EARLY: [NonZeroUsize; 2] = [NonZeroUsize::MIN, NonZeroUsize::new(10).expect("not zero")];

/// K of the one that joins while items are about.
const LATE: NonZeroUsize = NonZeroUsize::new(10).expect("not zero");

/// How often the demo looks whether consumers are idle.
const LOOK: Duration = Duration::from_millis(2);

/// Far more than it takes anywhere.
const PATIENCE: Duration = Duration::from_secs(60);

async fn run(store: &Store, shared: &Arc<ConsumerContext>, recorder: &Recorder) -> anyhow::Result<Report> {
    let queue = Queue::new(b"", QUEUE.as_bytes())?;
    let runtime = runtime(store, shared, recorder)?;
    let (supervisor, mut exits) = actors::supervise(shared.clone());
    let mut consumers = Vec::new();
    for k in EARLY {
        consumers.push((start(&supervisor, &runtime, k).await?, k));
    }
    timeout(PATIENCE, idle(shared, EARLY.len()))
        .await
        .map_err(|_| anyhow!("the consumers are not idle after {} s", PATIENCE.as_secs()))?;

    tracing::info!(
        event = "demo_pushing",
        items = ITEMS,
        "pushing items concurrently, each in its own transaction"
    );
    let started = Instant::now();
    let pushing = shared.pool.spawn(push_all(store.db.clone(), queue.clone()));
    consumers.push((start(&supervisor, &runtime, LATE).await?, LATE));
    pushing.await??;
    let push_time = started.elapsed();
    tracing::info!(event = "demo_pushed", items = ITEMS, "items pushed");

    // Items that are lost show in the report, when patience has run out.
    let all = consumers.len();
    let done = async {
        recorder.until(|consumed| consumed.items() >= ITEMS).await;
        idle(shared, all).await;
    };
    let _ = timeout(PATIENCE, done).await;
    let consumed = recorder.consumed().clone();
    let total_time = started.elapsed();
    for (consumer, _) in &consumers {
        supervisor.stop(*consumer).await.map_err(|end| anyhow!("no consumer can be stopped: {end:?}"))?;
    }
    supervisor.drain();
    timeout(PATIENCE, exits.next()).await.map_err(|_| anyhow!("the consumers do not stop"))?;
    let left = delete(&store.db, &queue).await?;
    Ok(Report { consumers, consumed, left, push_time, total_time })
}

fn runtime(
    store: &Store,
    shared: &ConsumerContext,
    recorder: &Recorder,
) -> Result<Arc<QueueRuntime>, ConfigError> {
    // Long enough that every fetch is due to a push.
    let config = QueueConfig { lease: PATIENCE, poll_interval: PATIENCE, ..QueueConfig::new("demo") };
    let handler = AnyHandler::Each(Arc::new(recorder.clone()));
    let configured = ConfiguredQueue::new("", QUEUE, &config, handler)?;
    let named = configured.named(&store.db, shared);
    // Nobody else knows this database, so nobody can pause the queue.
    named.pause.set_global(None);
    Ok(configured.runtime(named, shared, false))
}

async fn start(
    supervisor: &SupervisorHandle,
    runtime: &Arc<QueueRuntime>,
    k: NonZeroUsize,
) -> anyhow::Result<u64> {
    let spec = ConsumerSpec { runtime: runtime.clone(), k };
    let ids = supervisor.start(vec![spec]).await;
    let ids = ids.map_err(|end| anyhow!("no consumer can be started: {end:?}"))?;
    ids.first().copied().context("no consumer was started")
}

/// Waits until this many consumers wait for pushes.
async fn idle(shared: &ConsumerContext, consumers: usize) {
    let is_idle = |status: &Arc<ConsumerStatus>| status.state().0 == ConsumerState::Idle;
    while shared.status.consumers().iter().filter(|status| is_idle(status)).count() < consumers {
        sleep(LOOK).await;
    }
}

/// Pushes the numbers from 1, each in a task and a transaction of its own.
async fn push_all(db: Arc<Database>, queue: Queue) -> anyhow::Result<()> {
    let pushes = (1..=ITEMS).map(|number| {
        let db = db.clone();
        let mut session = Session::new(queue.clone());
        tokio::spawn(async move { session.push(&db, &[number.to_string()]).await })
    });
    for pushed in try_join_all(pushes).await? {
        pushed?;
    }
    Ok(())
}

/// Deletes the queue, and returns how many items were left in it.
async fn delete(db: &Database, queue: &Queue) -> anyhow::Result<i64> {
    let policy = RetryPolicy::default();
    let delete = retry::run(db, &policy, |tr| async move {
        let left = queue.len(&tr).await;
        queue.delete(&tr);
        (tr, left)
    });
    let left = delete.await.context("cannot delete the queue")?.value;
    tracing::info!(event = "demo_queue_deleted", queue = QUEUE, "queue deleted");
    Ok(left)
}
