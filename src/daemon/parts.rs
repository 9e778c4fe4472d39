//! What a configured queue is made of, as far as no database is needed.

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc, time::Duration};

use foundationdb::Database;
use kvqueue_queue::{Approach, Queue, Spread, Staged, SweepRules};
use tokio::sync::Notify;

use crate::{
    actors::ConsumerContext,
    config::{Config, ConfigError, Delivery, FetchStrategy, QueueConfig},
    consumer::{fetch::LastWords, runtime::QueueRuntime},
    handlers::{AnyHandler, Registry},
    http::Token,
    pause::{Followed, Follower},
    status::Heartbeat,
    sweep::{self, Sweeping, Swept},
};

/// How often a queue is looked at that is to be worked off until it is empty, and that holds back items: nothing tells when
/// another process is done with them.
const RELOOK: Duration = Duration::from_millis(200);

/// One configured queue.
pub(super) struct Part {
    pub(super) name: Arc<str>,
    queue: Queue,
    pub(super) handling: AnyHandler,
    config: QueueConfig,
}

/// Handlers in the tree that write nothing into an item's transaction.
const WITHOUT_TRANSACTION: [&str; 3] = ["exec", "log", "stdout"];

/// What a configuration comes to. Files that it names are not read again.
pub(super) struct Parts {
    pub(super) queues: Vec<Part>,
    pub(super) token: Option<Token>,
}

/// Checks the whole configuration and makes its parts. `kept` has the handlers that need not be made again.
pub(super) fn parts(
    config: &Config,
    registry: &Registry,
    kept: &BTreeMap<Arc<str>, AnyHandler>,
) -> Result<Parts, ConfigError> {
    config.validate()?;
    let token = config.http.token_file.as_deref().map(Token::read).transpose()?;
    let part = |(name, queue): (&String, _)| {
        let handling = kept.get(name.as_str()).cloned();
        let handling = handling.map_or_else(|| registry.build(name, queue), Ok)?;
        Part::new(&config.prefix, name, queue, handling)
    };
    let queues = config.queues.iter().map(part).collect::<Result<_, _>>()?;
    Ok(Parts { queues, token })
}

/// The same, for a daemon that is to work on something.
pub(super) fn parts_to_run(
    config: &Config,
    registry: &Registry,
    kept: &BTreeMap<Arc<str>, AnyHandler>,
) -> Result<Parts, ConfigError> {
    let parts = parts(config, registry, kept)?;
    if parts.queues.is_empty() {
        let fix = "add a [queues.NAME] table, or name a queue with --queue and --handler";
        return Err(ConfigError::value("queues", "{}", "there is nothing to work off", fix));
    }
    Ok(parts)
}

impl Parts {
    /// What is valid, and likely not meant.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.queues.iter().flat_map(Part::warnings).collect()
    }
}

impl Part {
    fn warnings(&self) -> Vec<String> {
        let (name, handler) = (&self.name, self.config.handler.as_str());
        let broken = self.handling.warning().map(|why| format!("queues.{name}: handler {handler:?}: {why}"));
        let once = self.config.delivery == Delivery::ExactlyOnce && WITHOUT_TRANSACTION.contains(&handler);
        let once = once.then(|| {
            format!(
                "queues.{name}: delivery = \"exactly-once\" is at-least-once with handler {handler:?}, which writes nothing into the item's transaction; \
                 what it does may happen twice"
            )
        });
        broken.into_iter().chain(once).collect()
    }

    fn new(
        prefix: &str,
        name: &str,
        config: &QueueConfig,
        handling: AnyHandler,
    ) -> Result<Self, ConfigError> {
        let queue = Queue::of_kind(prefix.as_bytes(), name.as_bytes(), config.layout()).map_err(|error| {
            let key = format!("queues.{name}");
            ConfigError::value(
                key,
                format_args!("{name:?}"),
                error.to_string(),
                "change the name or the prefix",
            )
        })?;
        Ok(Self { name: name.into(), queue, handling, config: config.clone() })
    }

    /// What the queue's consumers share.
    pub(super) fn runtime(
        &self,
        db: &Arc<Database>,
        shared: &ConsumerContext,
        until_empty: bool,
    ) -> Arc<QueueRuntime> {
        let config = &self.config;
        let poll_interval = if until_empty { config.poll_interval.min(RELOOK) } else { config.poll_interval };
        let meters = shared.status.metrics.queue(&self.name);
        let breaker = shared.status.breaker(&self.name);
        let tried = breaker.reset(self.handling.clone());
        Arc::new(QueueRuntime {
            name: self.name.clone(),
            queue: self.queue.clone(),
            db: db.clone(),
            tried,
            handler: config.handler.as_str().into(),
            delivery: config.delivery,
            lease: config.lease,
            retry: config.retry.rules(),
            timeout: config.handler_timeout,
            until_empty: until_empty.then(LastWords::default),
            approach: approach(config.fetch_strategy),
            poll_interval,
            look_again: Notify::default(),
            fetches: Heartbeat::default(),
            clock: Arc::default(),
            meters,
            pause: shared.status.pause_state(&self.name),
            breaker,
            suspects: shared.suspects.clone(),
            history: shared.history.clone(),
            shutdown: shared.shutdown.clone(),
            work: shared.work.clone(),
        })
    }

    /// Has it swept.
    pub(super) fn sweep(&self, db: &Arc<Database>, shared: &ConsumerContext) -> Sweeping {
        let (db, shutdown, pause) =
            (db.clone(), shared.shutdown.clone(), shared.status.pause_state(&self.name));
        let meters = shared.status.metrics.queue(&self.name);
        let (queue, history) = (self.queue.clone(), shared.history.clone());
        let swept = Swept { db, queue, history, pause, shutdown, meters };
        Sweeping::start(swept, self.sweep_rules())
    }

    /// By what rules it is swept.
    pub(super) fn sweep_rules(&self) -> SweepRules {
        sweep::rules(&self.config)
    }

    /// Has its pause state do what the database says, which is asked first.
    pub(super) async fn follow(
        &self,
        db: &Arc<Database>,
        shared: &ConsumerContext,
        until_empty: bool,
    ) -> Follower {
        let (name, queue) = (self.name.clone(), self.queue.clone());
        let (pause, status) = (shared.status.pause_state(&name), shared.status.clone());
        Followed { db: db.clone(), queue, name, pause, status, until_empty }.follow().await
    }

    /// The K of each of its consumers.
    pub(super) fn ks(&self) -> impl Iterator<Item = NonZeroUsize> {
        let groups = self.config.consumers.iter();
        groups.flat_map(|group| std::iter::repeat_n(NonZeroUsize::new(group.k), group.count).flatten())
    }
}

/// Where takes look for items.
fn approach(strategy: FetchStrategy) -> Approach {
    match strategy {
        FetchStrategy::Front => Approach::Front,
        FetchStrategy::Spread => Approach::Spread(Spread::default()),
        FetchStrategy::Staged => Approach::Staged(Staged::default()),
    }
}
