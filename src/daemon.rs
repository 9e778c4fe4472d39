//! The daemon: from a configuration to running consumers. The one place where the parts are wired.

use std::{num::NonZeroUsize, sync::Arc};

use foundationdb::{Database, FdbError};
use kvqueue_queue::Queue;
use tokio::{runtime, sync::Mutex};

use crate::{
    actors::{self, Crew, Observer, Shared, Spec},
    config::{Config, ConfigError, ConsumerGroup},
    consumer::{source::Source, state::Event},
    database::{OpenError, Store, patiently},
    exit::Exit,
    handlers::{Handler, Registry, Settings},
    lifecycle::{self, RunError, Signals},
    systemd,
};

/// A daemon to be run: a configuration and the handlers it may name.
#[derive(Default)]
pub struct Daemon {
    config: Config,
    registry: Registry,
    until_empty: bool,
    observer: Option<Observer>,
}

/// A daemon could not run, or not end well.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The database cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The database does not answer.
    #[error("the first read of the database failed")]
    FirstRead(#[source] FdbError),
    /// The handlers' threads cannot be started.
    #[error("cannot start the handlers' threads")]
    Pool(#[source] std::io::Error),
    /// It failed while running.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl DaemonError {
    /// The exit code that tells it to scripts.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Config(_) => Exit::Config,
            Self::Open(_) | Self::FirstRead(_) => Exit::Unavailable,
            Self::Run(RunError::ConsumersFailed { .. } | RunError::SupervisorDied) => Exit::Internal,
            Self::Pool(_) | Self::Run(_) => Exit::Failed,
        }
    }
}

impl Daemon {
    /// A daemon with the handlers in the tree.
    pub fn new(config: Config) -> Self {
        Self { config, ..Self::default() }
    }

    /// Registers a handler under a name that configurations can use. `build` makes one per queue from the queue's
    /// `handler-config`.
    #[must_use]
    pub fn handler<H, E>(
        mut self,
        name: impl Into<String>,
        build: impl Fn(&Settings) -> Result<H, E> + Send + Sync + 'static,
    ) -> Self
    where
        H: Handler,
        E: std::fmt::Display,
    {
        self.registry.add(name, build);
        self
    }

    /// Makes each consumer stop once it finds its queue empty; when all have, [`run`](Self::run) returns.
    #[must_use]
    pub fn until_empty(mut self, yes: bool) -> Self {
        self.until_empty = yes;
        self
    }

    /// Lets `observer` see every consumer's events before the consumer acts on them. It runs on the actors' thread,
    /// and a panic in it is the consumer's own: this is how tests make a consumer fail.
    #[doc(hidden)]
    #[must_use]
    pub fn observe(mut self, observer: impl Fn(u64, Event) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Checks everything that can be checked without the database.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.config.validate()?;
        for (name, queue) in &self.config.queues {
            crate::daemon::queue(&self.config.prefix, name)?;
            self.registry.build(name, queue)?;
        }
        Ok(())
    }

    /// Runs on the calling thread until a signal, an error, or the end of the items has it stop.
    pub fn run(self) -> Result<(), DaemonError> {
        self.check()?;
        if self.config.queues.is_empty() {
            let fix = "add a [queues.NAME] table, or name a queue with --queue and --handler";
            return Err(ConfigError::value("queues", "{}", "there is nothing to work off", fix).into());
        }
        let signals = Signals::watch().map_err(RunError::Signals)?;
        let store = Store::open(&self.config.database)?;
        let pool = handler_pool().map_err(DaemonError::Pool)?;
        let shared = Shared::new(pool.handle().clone(), self.observer.clone());
        let result = actors::run(self.serve(&store.db, &shared, &signals));
        // Not waited for: a handler may block its thread for ever.
        pool.shutdown_background();
        result
    }

    async fn serve(
        &self,
        db: &Arc<Database>,
        shared: &Arc<Shared>,
        signals: &Signals,
    ) -> Result<(), DaemonError> {
        tokio::select! {
            read = patiently(first_read(db)) => read?,
            // Nothing has begun, so there is nothing to drain.
            signal = signals.received() => return Ok(signal.map_err(RunError::Signals)?),
        }
        let mut crew = Crew::new(shared.clone());
        self.start_consumers(db, &crew).await?;
        tracing::info!(
            database = self.config.database,
            queues = self.config.queues.len(),
            consumers = shared.consumers(),
            "ready"
        );
        systemd::ready();
        Ok(lifecycle::serve(&mut crew, shared, signals, self.config.grace).await?)
    }

    async fn start_consumers(&self, db: &Arc<Database>, crew: &Crew) -> Result<(), DaemonError> {
        for (name, config) in &self.config.queues {
            let source = Arc::new(Source {
                name: name.as_str().into(),
                queue: queue(&self.config.prefix, name)?,
                db: db.clone(),
                handler: self.registry.build(name, config)?,
                timeout: config.handler_timeout,
                slow_look: config.slow_look,
                turn: Mutex::new(()),
            });
            for k in config.consumers.iter().flat_map(ks) {
                let spec = Spec { source: source.clone(), k, until_empty: self.until_empty };
                crew.start(spec).await.map_err(RunError::from)?;
            }
        }
        Ok(())
    }
}

/// The threads that handlers run on.
pub(crate) fn handler_pool() -> std::io::Result<runtime::Runtime> {
    runtime::Builder::new_multi_thread().thread_name("kvqueue-handler").enable_all().build()
}

/// The K of each consumer in a group.
fn ks(group: &ConsumerGroup) -> impl Iterator<Item = NonZeroUsize> + use<> {
    std::iter::repeat_n(NonZeroUsize::new(group.k), group.count).flatten()
}

fn queue(prefix: &str, name: &str) -> Result<Queue, ConfigError> {
    Queue::new(prefix.as_bytes(), name.as_bytes()).map_err(|error| {
        ConfigError::value(format!("queues.{name}"), format_args!("{name:?}"), error.to_string(), "rename it")
    })
}

/// Whoever is told that the daemon is ready may rely on a database that answers.
async fn first_read(db: &Database) -> Result<(), DaemonError> {
    let mut transaction = db.create_trx().map_err(DaemonError::FirstRead)?;
    loop {
        let Err(error) = transaction.get_read_version().await else { return Ok(()) };
        transaction = transaction.on_error(error).await.map_err(DaemonError::FirstRead)?;
    }
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon")
            .field("config", &self.config)
            .field("handlers", &self.registry)
            .finish_non_exhaustive()
    }
}
