//! What a configured queue is made of, as far as no database is needed.

use std::{num::NonZeroUsize, sync::Arc};

use foundationdb::Database;
use kvqueue_queue::Queue;
use tokio::sync::Mutex;

use crate::{
    config::{Config, ConfigError, QueueConfig},
    consumer::source::Source,
    handlers::{Handling, Registry},
    sweep::Sweeping,
};

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
        let queue = Queue::new(prefix.as_bytes(), name.as_bytes()).map_err(|error| {
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
    pub(super) fn source(&self, db: &Arc<Database>) -> Arc<Source> {
        Arc::new(Source {
            name: self.name.clone(),
            queue: self.queue.clone(),
            db: db.clone(),
            handling: self.handling.clone(),
            timeout: self.config.handler_timeout,
            slow_look: self.config.slow_look,
            turn: Mutex::new(()),
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
