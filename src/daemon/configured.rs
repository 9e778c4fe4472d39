//! The configured queues with their handlers, as far as no database is needed.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use foundationdb::Database;
use kvqueue_queue::{Approach, Queue, Spread, Staged};

use crate::{
    actors::ConsumerContext,
    config::{Config, ConfigError, Delivery, FetchStrategy, PULL, QueueConfig},
    consumer::{
        expiry::Expiry,
        fetch::WaitLog,
        heartbeat::Heartbeat,
        runtime::{NamedQueue, QueueRuntime},
        sharing::Sharing,
    },
    database::item_history,
    handlers::{AnyHandler, Registry, times},
    http::HttpFiles,
    sweep::{self, ConfiguredSchedules},
};

/// The poll interval with `--until-empty`: no watch fires when another process finishes the last items.
const UNTIL_EMPTY_POLL: Duration = Duration::from_millis(200);

/// Built-in handlers, which write nothing into an item's transaction.
const WITHOUT_TRANSACTION: [&str; 5] = ["exec", "http", "log", PULL, "stdout"];

/// One configured queue.
pub(crate) struct ConfiguredQueue {
    pub(super) name: Arc<str>,
    queue: Queue,
    handler: AnyHandler,
    config: QueueConfig,
    /// The label of the configuration in its schedules, if it has one.
    schedule_owner: Option<String>,
    /// Stands before its keys.
    prefix: String,
}

/// A configuration that is ready to run. The files that it names have been read.
pub(super) struct Configured {
    pub(super) queues: Vec<ConfiguredQueue>,
    pub(super) files: HttpFiles,
}

impl Configured {
    /// Checks the whole configuration, reads its files and makes its handlers. `kept` has the handlers of queues
    /// whose handler does not change.
    pub(super) fn new(
        config: &Config,
        registry: &Registry,
        kept: &BTreeMap<Arc<str>, AnyHandler>,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        let files = HttpFiles::read(config)?;
        let configured = |(name, queue): (&String, _)| {
            times::check(name, queue, config.shutdown_timeout)?;
            let kept = kept.get(name.as_str()).cloned();
            let handler = kept.map_or_else(|| registry.build(name, queue), Ok)?;
            let configured = ConfiguredQueue::new(&config.prefix, name, queue, handler)?;
            Ok(ConfiguredQueue { schedule_owner: config.schedule_owner.clone(), ..configured })
        };
        let queues = config.queues.iter().map(configured).collect::<Result<_, _>>()?;
        Ok(Self { queues, files })
    }

    /// The same, for a daemon that is about to run: there must be a queue.
    pub(super) fn to_run(
        config: &Config,
        registry: &Registry,
        kept: &BTreeMap<Arc<str>, AnyHandler>,
    ) -> Result<Self, ConfigError> {
        let configured = Self::new(config, registry, kept)?;
        if configured.queues.is_empty() {
            let fix = "add a [queues.NAME] table to the configuration, which --config or KVQUEUE_CONFIG names; or name a queue with --queue and --handler";
            return Err(ConfigError::value("queues", "{}", "there is no queue to process", fix));
        }
        Ok(configured)
    }

    /// Checks that the daemon works on a queue, so that it can find out that the queue is empty.
    pub(super) fn can_become_empty(&self) -> Result<(), ConfigError> {
        if self.queues.iter().any(|queue| queue.config.handler != PULL) {
            return Ok(());
        }
        let key =
            self.queues.first().map_or("queues".to_owned(), |queue| format!("queues.{}.handler", queue.name));
        let problem = "with --until-empty the daemon would never end, because only workers over HTTP handle these items";
        let fix =
            "name a queue that has another handler with --queue, or run the daemon without --until-empty";
        Err(ConfigError::value(key, format_args!("{PULL:?}"), problem, fix))
    }

    /// Settings that are valid but probably a mistake.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.queues.iter().flat_map(ConfiguredQueue::warnings).collect()
    }

    /// Logs the warnings.
    pub(super) fn log_warnings(&self) {
        for warning in self.warnings() {
            tracing::warn!(
                event = "configuration_warning",
                reason = warning,
                "a setting is valid, but probably not meant"
            );
        }
    }
}

impl ConfiguredQueue {
    fn warnings(&self) -> Vec<String> {
        let (name, handler) = (&self.name, self.config.handler.as_str());
        let broken = self.handler.warning().map(|why| format!("queues.{name}: handler {handler:?}: {why}"));
        let once = self.config.delivery == Delivery::ExactlyOnce && WITHOUT_TRANSACTION.contains(&handler);
        let once = once.then(|| {
            format!(
                "queues.{name}: delivery = \"exactly-once\" is at-least-once with handler {handler:?}, which writes nothing into the item's transaction; \
                 what it does may happen twice"
            )
        });
        broken.into_iter().chain(once).collect()
    }

    /// The queue `name` with these settings, which are valid.
    pub(crate) fn new(
        prefix: &str,
        name: &str,
        config: &QueueConfig,
        handler: AnyHandler,
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
        let (name, config, prefix) = (name.into(), config.clone(), prefix.to_owned());
        Ok(Self { name, queue, handler, config, schedule_owner: None, prefix })
    }

    /// The queue by its name, on an open database.
    pub(crate) fn named(&self, db: &Arc<Database>, shared: &ConsumerContext) -> Arc<NamedQueue> {
        Arc::new(NamedQueue {
            name: self.name.clone(),
            queue: self.queue.clone().with_recorder(&shared.status.recorder(&self.name)),
            db: db.clone(),
            meters: shared.status.metrics.queue(&self.name),
            pause: shared.status.pause_state(&self.name),
            breaker: shared.status.breaker(&self.name),
            held: Arc::default(),
            history: shared.history.clone(),
            shutdown: shared.shutdown.clone(),
        })
    }

    /// The queue with its settings. `named` is the queue of this name.
    pub(crate) fn runtime(
        &self,
        named: Arc<NamedQueue>,
        shared: &ConsumerContext,
        until_empty: bool,
    ) -> Arc<QueueRuntime> {
        let config = &self.config;
        let poll_interval = config.poll_interval;
        Arc::new(QueueRuntime {
            tried: named.breaker.reset(self.handler.clone()),
            named,
            config: config.clone(),
            retry: config.retry.rules(),
            expiry: Expiry::of(config),
            until_empty: until_empty.then(WaitLog::default),
            approach: approach(config.fetch_strategy),
            poll_interval: if until_empty { poll_interval.min(UNTIL_EMPTY_POLL) } else { poll_interval },
            look_again: Arc::default(),
            wants_slots: AtomicBool::default(),
            sharing: Sharing::default(),
            fetches: Heartbeat::default(),
            clock: Arc::default(),
            suspects: shared.suspects.clone(),
            work: shared.work.clone(),
        })
    }

    /// The settings of the queue's sweeper.
    pub(super) fn sweep_settings(&self) -> sweep::Settings {
        let owner = self.schedule_owner.clone();
        let schedules = owner.as_deref().map(|owner| self.config.schedules(owner)).unwrap_or_default();
        sweep::Settings {
            rules: sweep::rules(&self.config),
            division: self.config.division(),
            history: self.config.kept_history(),
            schedules: ConfiguredSchedules::new(&self.prefix, self.queue.name(), owner, schedules),
        }
    }

    /// Records the ends of items from now on, or does not, as the configuration says.
    pub(super) fn set_recording(&self, shared: &ConsumerContext) {
        shared.status.recorder(&self.name).set(item_history::configured(self.config.history));
    }

    /// The batch size of each consumer. A queue for workers of other programs has none.
    pub(super) fn batch_sizes(&self) -> impl Iterator<Item = NonZeroUsize> {
        let has_consumers = self.config.handler != PULL;
        let groups = self.config.consumers.iter().filter(move |_| has_consumers);
        groups.flat_map(|group| {
            std::iter::repeat_n(NonZeroUsize::new(self.config.k_of(group)), group.count).flatten()
        })
    }
}

/// Where fetches look for items.
fn approach(strategy: FetchStrategy) -> Approach {
    match strategy {
        FetchStrategy::Front => Approach::Front,
        FetchStrategy::Spread => Approach::Spread(Spread::default()),
        FetchStrategy::Staged => Approach::Staged(Staged::default()),
    }
}
