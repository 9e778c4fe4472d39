//! What a configured queue is made of, as far as no database is needed.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use foundationdb::Database;
use kvqueue_queue::{Approach, Queue, RetryRules, Spread, Staged};

use crate::{
    actors::Shared,
    config::{Config, ConfigError, QueueConfig, Retry, TakeStrategy},
    consumer::{idle::Idle, source::Source, take::Taker},
    handlers::{Handling, Registry},
    sweep::Sweeping,
};

/// How often a queue is looked at that is to be worked off until it is empty, and that holds back items: nothing tells when
/// another process is done with them.
const RELOOK: Duration = Duration::from_millis(200);

/// One configured queue.
pub(super) struct Part {
    name: Arc<str>,
    queue: Queue,
    handling: Handling,
    config: QueueConfig,
}

/// Checks the whole configuration and makes the parts of its queues.
pub(super) fn parts(config: &Config, registry: &Registry) -> Result<Vec<Part>, ConfigError> {
    config.validate()?;
    config.queues.iter().map(|(name, queue)| Part::new(&config.prefix, name, queue, registry)).collect()
}

impl Part {
    fn new(prefix: &str, name: &str, config: &QueueConfig, registry: &Registry) -> Result<Self, ConfigError> {
        let queue = Queue::of_kind(prefix.as_bytes(), name.as_bytes(), config.layout()).map_err(|error| {
            let key = format!("queues.{name}");
            ConfigError::value(
                key,
                format_args!("{name:?}"),
                error.to_string(),
                "change the name or the prefix",
            )
        })?;
        let handling = registry.build(name, config)?;
        Ok(Self { name: name.into(), queue, handling, config: config.clone() })
    }

    /// What the queue's consumers share.
    pub(super) fn source(&self, db: &Arc<Database>, shared: &Shared, until_empty: bool) -> Arc<Source> {
        let config = &self.config;
        let slow_look = if until_empty { config.slow_look.min(RELOOK) } else { config.slow_look };
        Arc::new(Source {
            name: self.name.clone(),
            queue: self.queue.clone(),
            db: db.clone(),
            handling: self.handling.clone(),
            delivery: config.delivery,
            lease: config.lease,
            retry: rules(&config.retry),
            timeout: config.handler_timeout,
            until_empty,
            taker: Taker::new(approach(config.take)),
            contention: shared.contention.clone(),
            idle: Idle::new(self.name.clone(), slow_look),
            signals: shared.signals.clone(),
            work: shared.work.clone(),
        })
    }

    /// How it is swept.
    pub(super) fn sweeping(&self) -> Sweeping {
        Sweeping::new(self.queue.clone(), &self.config)
    }

    /// The K of each of its consumers.
    pub(super) fn ks(&self) -> impl Iterator<Item = NonZeroUsize> {
        let groups = self.config.consumers.iter();
        groups.flat_map(|group| std::iter::repeat_n(NonZeroUsize::new(group.k), group.count).flatten())
    }
}

/// When failed items are tried again.
fn rules(retry: &Retry) -> RetryRules {
    let Retry { max_attempts, base, max, jitter } = *retry;
    RetryRules { max_attempts, base, max, jitter }
}

/// Where takes look for items.
fn approach(take: TakeStrategy) -> Approach {
    match take {
        TakeStrategy::Front => Approach::Front,
        TakeStrategy::Spread => Approach::Spread(Spread::default()),
        TakeStrategy::Staged => Approach::Staged(Staged::default()),
    }
}
