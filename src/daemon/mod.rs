//! The daemon: from a configuration to running consumers. The one place where the parts are wired.

mod error;
mod parts;

use std::{io, pin::pin, sync::Arc};

use foundationdb::Database;
use tokio::runtime;

use self::parts::{Part, parts};
use crate::{
    actors::{self, Crew, Observer, Shared, Spec},
    config::{Config, ConfigError},
    consumer::state::Event,
    database::{Store, patiently},
    handlers::{BatchHandler, Handler, Registry, Settings},
    lifecycle::{self, RunError, Signals},
    sweep, systemd,
};

pub use error::DaemonError;

/// A daemon to be run: a configuration and the handlers it may name.
#[derive(Default)]
pub struct Daemon {
    config: Config,
    registry: Registry,
    until_empty: bool,
    observer: Option<Observer>,
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

    /// As [`handler`](Self::handler), for one that handles the items of a take together.
    #[must_use]
    pub fn batch_handler<H, E>(
        mut self,
        name: impl Into<String>,
        build: impl Fn(&Settings) -> Result<H, E> + Send + Sync + 'static,
    ) -> Self
    where
        H: BatchHandler,
        E: std::fmt::Display,
    {
        self.registry.add_batch(name, build);
        self
    }

    /// Makes consumers stop once there is nothing left to do in their queue: nothing is ready, nothing is leased, by whomever, and nothing
    /// waits for its time. When all have, [`run`](Self::run) returns.
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
        parts(&self.config, &self.registry).map(drop)
    }

    /// Runs on the calling thread until a signal, an error, or the end of the items has it stop.
    pub fn run(self) -> Result<(), DaemonError> {
        let parts = self.parts()?;
        let signals = Signals::watch().map_err(RunError::Signals)?;
        let store = Store::open(&self.config.database)?;
        self.run_parts(&parts, &store.db, signals.received())
    }

    /// As [`run`](Self::run), on a database that is open already, and until `stop` resolves instead of a signal.
    pub(crate) fn run_on(
        self,
        db: &Arc<Database>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), DaemonError> {
        let parts = self.parts()?;
        self.run_parts(&parts, db, async {
            stop.await;
            Ok(())
        })
    }

    fn parts(&self) -> Result<Vec<Part>, ConfigError> {
        let parts = parts(&self.config, &self.registry)?;
        if parts.is_empty() {
            let fix = "add a [queues.NAME] table, or name a queue with --queue and --handler";
            return Err(ConfigError::value("queues", "{}", "there is nothing to work off", fix));
        }
        Ok(parts)
    }

    fn run_parts(
        &self,
        parts: &[Part],
        db: &Arc<Database>,
        stop: impl Future<Output = io::Result<()>>,
    ) -> Result<(), DaemonError> {
        let pool = handler_pool().map_err(DaemonError::Pool)?;
        let shared = Shared::new(pool.handle().clone(), self.observer.clone());
        let result = actors::run(self.serve(db, parts, &shared, stop));
        // Not waited for: a handler may block its thread for ever.
        pool.shutdown_background();
        result
    }

    async fn serve(
        &self,
        db: &Arc<Database>,
        parts: &[Part],
        shared: &Arc<Shared>,
        stop: impl Future<Output = io::Result<()>>,
    ) -> Result<(), DaemonError> {
        let mut stop = pin!(stop);
        tokio::select! {
            read = patiently(first_read(db)) => read?,
            // Nothing has begun, so there is nothing to drain.
            stop = &mut stop => return Ok(stop.map_err(RunError::Signals)?),
        }
        let mut crew = Crew::new(shared.clone());
        self.start_consumers(db, parts, &crew).await?;
        tracing::info!(
            database = self.config.database,
            queues = parts.len(),
            consumers = shared.consumers(),
            "ready"
        );
        systemd::ready();
        let sweepings = parts.iter().map(Part::sweeping).collect();
        tokio::select! {
            ended = lifecycle::serve(&mut crew, shared, stop, self.config.grace) => Ok(ended?),
            never = sweep::forever(db.clone(), &shared.signals, sweepings) => match never {},
        }
    }

    async fn start_consumers(
        &self,
        db: &Arc<Database>,
        parts: &[Part],
        crew: &Crew,
    ) -> Result<(), DaemonError> {
        let specs = parts.iter().flat_map(|part| {
            let source = part.source(db, self.until_empty);
            part.ks().map(move |k| Spec { source: source.clone(), k })
        });
        crew.start(specs.collect()).await.map_err(RunError::from)?;
        Ok(())
    }
}

/// The threads that handlers run on.
pub(crate) fn handler_pool() -> io::Result<runtime::Runtime> {
    runtime::Builder::new_multi_thread().thread_name("kvqueue-handler").enable_all().build()
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
