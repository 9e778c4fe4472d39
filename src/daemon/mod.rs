//! The daemon: from a configuration to running consumers. The one place where the parts are wired.
//!
//! | file | role |
//! |---|---|
//! | `parts` | what a configured queue is made of |
//! | `live` | what runs, and how another configuration takes effect |
//! | `reload` | what changes with it, and what may |
//! | `loader` | where another configuration comes from |
//! | `attend` | orders and signals while it runs |
//! | `report` | the whole state in the log |
//! | `testing` (feature) | what tests of the daemon itself can do to it |
//! | `aside` | tasks that are not consumers; a panic does not end them |

pub(crate) mod aside;
mod attend;
mod error;
mod live;
mod loader;
mod parts;
mod reload;
mod report;
#[cfg(feature = "testing")]
mod testing;

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use foundationdb::Database;
use tokio::{runtime, sync::mpsc, task::spawn_local};

use self::{
    attend::Attendant,
    live::{Followers, Live},
    loader::Loader,
    parts::{Part, Parts, parts, parts_to_run},
};
use crate::{
    absent,
    actors::{self, ConsumerContext, Observer},
    config::{Config, ConfigError, Delivery, Http, Listen},
    control::{Control, Door, Given, InForce},
    database::{Patience, Store, missing},
    handlers::{BatchHandler, Handler, Registry, Settings},
    http,
    lifecycle::{self, RunError, Signals, Told},
    metrics::QueueMeters,
    stats,
    status::{DaemonStatus, Phase},
    systemd, telemetry,
};

pub use error::DaemonError;

/// A daemon to be run: a configuration and the handlers it may name.
#[derive(Default)]
#[must_use = "a daemon does nothing until it is run"]
pub struct Daemon {
    config: Config,
    registry: Registry,
    until_empty: bool,
    fail_on_dead: bool,
    observer: Option<Observer>,
    patience: Option<Duration>,
    first_answer: Patience,
    on_ready: Option<Box<dyn FnOnce() + Send>>,
    loader: Option<Loader>,
}

impl Daemon {
    /// A daemon with the handlers in the tree.
    pub fn new(config: Config) -> Self {
        Self { config, ..Self::default() }
    }

    /// Registers a handler under a name that configurations can use. `build` makes one per queue from the queue's
    /// `handler-config`.
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
    pub fn until_empty(mut self, yes: bool) -> Self {
        self.until_empty = yes;
        self
    }

    /// Has [`run`](Self::run) return an error if items became dead letters of this daemon, or with at-most-once delivery were lost.
    pub fn fail_on_dead(mut self, yes: bool) -> Self {
        self.fail_on_dead = yes;
        self
    }

    /// Ends the daemon if the database has not answered within this time of its start. Without a limit it waits.
    pub fn first_answer_within(mut self, limit: Option<Duration>) -> Self {
        self.first_answer = Patience::new(limit);
        self
    }

    /// Sets the source of reloads, by HUP or a command: `load` returns the same configuration as changed since, from the
    /// file at `path` if there is one. Whatever it is, it is validated. Without this, a daemon keeps the configuration that it was given.
    pub fn reload_with(
        mut self,
        path: Option<PathBuf>,
        load: impl Fn() -> Result<Config, ConfigError> + Send + Sync + 'static,
    ) -> Self {
        self.loader = Some(Loader::new(path, load));
        self
    }

    /// Calls `call` once, when the daemon is ready: the database has answered, and consumers run. It is
    /// called on the thread that runs the daemon and must not block.
    pub fn on_ready(mut self, call: impl FnOnce() + Send + 'static) -> Self {
        self.on_ready = Some(Box::new(call));
        self
    }

    /// Checks everything that can be checked without the database.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.warnings().map(drop)
    }

    /// Checks the same, and returns what is valid and likely not meant, such as a command that does not exist.
    pub fn warnings(&self) -> Result<Vec<String>, ConfigError> {
        Ok(parts(&self.config, &self.registry, &BTreeMap::new())?.warnings())
    }

    /// Runs on the calling thread until a signal, an error, or the end of the items stops it. HUP makes it reload its configuration,
    /// USR1 has it log its state.
    pub fn run(mut self) -> Result<(), DaemonError> {
        let parts = self.parts()?;
        let signals = Signals::watch().map_err(RunError::Signals)?;
        let began = Instant::now();
        let missing = missing(&self.config.database);
        let store = Store::open_within(&self.config.database, self.first_answer)?;
        if let Some(directory) = missing {
            let directory = directory.display();
            tracing::info!(event = "database_created", %directory, "created the database");
        }
        self.first_answer = self.first_answer.after(began.elapsed());
        let status = DaemonStatus::new(&self.config.database);
        let listen = self.listen();
        let (fail_on_dead, config) = (self.fail_on_dead, self.config.clone());
        let (stop, shown) = (signals.received(), status.clone());
        let ended = self.run_parts(parts, &store.db, status, stop, || signals.told(), listen);
        telemetry::flush();
        match failed(&shown, &config) {
            items if fail_on_dead && items > 0 => ended.and(Err(DaemonError::Dead { items })),
            _ => ended,
        }
    }

    /// As [`run`](Self::run), on a database that is open already, and until `stop` resolves instead of
    /// a signal. It has no HTTP server and does not react to HUP and USR1.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_on(self, db: &Arc<Database>, stop: impl Future<Output = ()>) -> Result<(), DaemonError> {
        let status = DaemonStatus::new(&self.config.database);
        self.run_showing(db, status, stop)
    }

    /// The same, with a status that others see.
    pub(crate) fn run_showing(
        self,
        db: &Arc<Database>,
        status: Arc<DaemonStatus>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), DaemonError> {
        let parts = self.parts()?;
        let stop = async {
            stop.await;
            Ok(())
        };
        // A program that embeds the daemon shows it itself.
        self.run_parts(parts, db, status, stop, || Ok(Told::default()), Listen::Off)
    }

    /// Where it listens for HTTP. One that ends by itself listens only where it was told to.
    fn listen(&self) -> Listen {
        match &self.config.http.listen {
            Listen::Auto if self.until_empty => Listen::Off,
            listen => listen.clone(),
        }
    }

    fn parts(&self) -> Result<Parts, ConfigError> {
        let parts = parts_to_run(&self.config, &self.registry, &BTreeMap::new())?;
        warn(&parts);
        Ok(parts)
    }

    fn run_parts(
        self,
        Parts { queues, token }: Parts,
        db: &Arc<Database>,
        status: Arc<DaemonStatus>,
        stop: impl Future<Output = io::Result<()>>,
        told: impl FnOnce() -> io::Result<Told>,
        listen: Listen,
    ) -> Result<(), DaemonError> {
        let pool = HandlerPool(Some(handler_pool().map_err(DaemonError::Pool)?));
        status.configure(self.loader.as_ref().and_then(Loader::path), &self.config);
        let shared = ConsumerContext::new(pool.handle(), self.observer.clone(), status);
        let in_force = InForce::new(self.config.clone(), token);
        let (control, orders) = Control::new();
        // Without anyone who could give orders they would end.
        let door = door(control, &shared, db, &in_force);
        let server = http::start(&Http { listen, ..self.config.http.clone() }, door.clone())?;
        let started = Started { db, shared: &shared, in_force, orders };
        let result = actors::run(self.serve(started, queues, stop, told));
        // Last: until here others could ask how it ends, and give orders.
        drop((server, door, pool));
        result
    }

    async fn serve(
        mut self,
        Started { db, shared, in_force, orders }: Started<'_>,
        queues: Vec<Part>,
        stop: impl Future<Output = io::Result<()>>,
        told: impl FnOnce() -> io::Result<Told>,
    ) -> Result<(), DaemonError> {
        let told = told().map_err(RunError::Signals)?;
        let mut stop = pin!(stop);
        let (supervisor, mut exits) = actors::supervise(shared.clone());
        let _reporting = systemd::start(shared.status.clone(), supervisor.clone(), self.patience);
        let config = in_force.follow();
        let space = || stats::space::Watch::new(shared.status.clone(), config.clone());
        let mut live = Live::new(db.clone(), shared.clone(), supervisor.clone(), self.until_empty, in_force);
        let followers = tokio::select! {
            read = first_look(db, &live, &queues, self.first_answer) => {
                let (took, followers) = read?;
                shared.status.set_database(Ok(took));
                followers
            }
            // Nothing has begun, so there is nothing to drain.
            stop = &mut stop => return Ok(stop.map_err(RunError::Signals)?),
        };
        space().begin().await;
        absent::log(db, &self.config).await;
        live.run(&queues, followers, None).await.map_err(RunError::from)?;
        // Before it is logged, since a reader of the log may ask at once.
        shared.status.phase(Phase::Ready);
        tracing::info!(
            event = "ready",
            database = self.config.database,
            queues = self.config.queues.len(),
            consumers = shared.consumers(),
            "ready"
        );
        if let Some(call) = self.on_ready.take() {
            call();
        }
        let poller = aside::restarted("stats poller", || {
            spawn_local(stats::forever(db.clone(), shared.status.clone(), config.clone()))
        });
        let space = aside::restarted("space", || spawn_local(space().forever()));
        let attendant = Attendant::new(live, self.loader, self.registry);
        // With it go the sweeps, and nobody follows pauses any more.
        let attend = aside::watched(attendant.attend(orders, told));
        let mut attend = pin!(attend);
        let stop = async {
            tokio::select! {
                stop = stop => stop.map_err(RunError::Signals),
                ended = &mut attend => match ended {
                    Ok(never) => match never {},
                    Err(()) => Err(RunError::TaskFailed),
                },
            }
        };
        tokio::select! {
            ended = lifecycle::serve(&supervisor, &mut exits, shared, stop, &config) => Ok(ended?),
            never = poller => match never {},
            never = space => match never {},
        }
    }
}

/// What a daemon has before its first consumer.
struct Started<'a> {
    db: &'a Arc<Database>,
    shared: &'a Arc<ConsumerContext>,
    in_force: InForce,
    orders: mpsc::Receiver<Given>,
}

/// The threads that handlers run on. Nobody waits for them, however the daemon ends: a handler may block its thread for ever.
struct HandlerPool(Option<runtime::Runtime>);

impl HandlerPool {
    fn handle(&self) -> runtime::Handle {
        self.0.as_ref().expect("it is there until it is dropped").handle().clone()
    }
}

impl Drop for HandlerPool {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(runtime::Runtime::shutdown_background);
    }
}

/// What those need who show the daemon to others, and hand on what they want of it. A server of theirs begins where this is called: before the
/// database has answered, which it can say.
fn door(control: Control, shared: &ConsumerContext, db: &Arc<Database>, in_force: &InForce) -> Door {
    let (config, token) = (in_force.follow(), in_force.token());
    Door { control, status: shared.status.clone(), db: db.clone(), config, token }
}

/// All that is read before the first consumer begins.
async fn first_look(
    db: &Database,
    live: &Live,
    queues: &[Part],
    patience: Patience,
) -> Result<(Duration, Followers), DaemonError> {
    let took = patience.wait(&live.config().database, first_read(db, &live.config().prefix)).await??;
    Ok((took, live.follow(queues).await))
}

/// How many items failed for good in this daemon.
fn failed(status: &DaemonStatus, config: &Config) -> u64 {
    let of_queue = |(name, meters): (Arc<str>, Arc<QueueMeters>)| {
        let queue = config.queues.get(&*name);
        let is_lossy = queue.is_some_and(|queue| queue.delivery == Delivery::AtMostOnce);
        meters.dead.get() + meters.swept_dead.get() + if is_lossy { meters.lost.get() } else { 0 }
    };
    status.metrics.queues().into_iter().map(of_queue).sum()
}

/// Logs what is valid and likely not meant.
fn warn(parts: &Parts) {
    for warning in parts.warnings() {
        tracing::warn!(event = "configuration_warning", "{warning}");
    }
}

/// The threads that handlers run on.
pub(crate) fn handler_pool() -> io::Result<runtime::Runtime> {
    runtime::Builder::new_multi_thread().thread_name("kvqueue-handler").enable_all().build()
}

/// A ready daemon has a database that answers reads, not only requests for a version.
/// Returns how long that took.
async fn first_read(db: &Database, prefix: &str) -> Result<Duration, DaemonError> {
    let began = Instant::now();
    let mut transaction = db.create_trx().map_err(DaemonError::FirstRead)?;
    loop {
        let Err(error) = transaction.get(prefix.as_bytes(), true).await else { return Ok(began.elapsed()) };
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
