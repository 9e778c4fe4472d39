//! The daemon: from a configuration to running consumers. All parts are built and connected here.

mod active_config;
mod cancellation_follower;
pub(crate) mod configured;
mod control_loop;
mod error;
mod open_files;
mod pause_follower;
mod reload;
mod report;
mod running;
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
use futures::future::pending;
use tokio::{runtime, sync::mpsc, task::spawn_local};

use self::{
    active_config::ActiveConfig,
    configured::{Configured, ConfiguredQueue},
    control_loop::ControlLoop,
    reload::Loader,
    running::{NewQueues, RunningQueues},
};
use crate::{
    actors::{self, ConsumerContext, Observer},
    base::background,
    config::{Config, ConfigError, Delivery, Http, Listen},
    control::{CommandSender, QueuedCommand},
    database::{Patience, Store, absent_queues, missing},
    handlers::{BatchHandler, Handler, Registry, Settings},
    http::{self, DaemonHandle, Server},
    lifecycle::{self, RunError, SignalCommands, Signals},
    meters::QueueMeters,
    stats,
    status::{DaemonStatus, Phase},
    sweep, systemd, telemetry,
};

pub use error::DaemonError;

/// Gets the link to the page once HTTP answers.
type OnListening = Box<dyn FnOnce(&str) + Send>;

/// A daemon that can be run: a configuration, and the handlers that it may name.
#[derive(Default)]
#[must_use = "a daemon does nothing until it is run"]
pub struct Daemon {
    config: Config,
    registry: Registry,
    until_empty: bool,
    is_part: bool,
    fail_on_dead: bool,
    observer: Option<Observer>,
    patience: Option<Duration>,
    first_answer: Patience,
    on_ready: Option<Box<dyn FnOnce() + Send>>,
    on_listening: Option<OnListening>,
    loader: Option<Loader>,
}

impl Daemon {
    /// A daemon with the built-in handlers.
    pub fn new(config: Config) -> Self {
        Self { config, ..Self::default() }
    }

    /// Registers a handler under a name for configurations. `build` makes one handler per queue, from the queue's
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

    /// The same for a handler that gets all items of a batch in one call.
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

    /// Makes it a part of another program, which has the database and speaks to systemd: it looks after its queues, and after
    /// nothing else in the database.
    pub(crate) fn part_of_a_program(mut self) -> Self {
        self.is_part = true;
        self
    }

    /// Stops the consumers of a queue when the queue has no ready, running or scheduled items, also none that another
    /// daemon runs. [`run`](Self::run) returns when all consumers have stopped.
    pub fn until_empty(mut self, yes: bool) -> Self {
        self.until_empty = yes;
        self
    }

    /// Makes [`run`](Self::run) return an error if items became dead letters in this daemon, or were lost with
    /// at-most-once delivery.
    pub fn fail_on_dead(mut self, yes: bool) -> Self {
        self.fail_on_dead = yes;
        self
    }

    /// Ends the daemon if the database has not answered within this time of its start. Without a limit it waits.
    pub fn first_answer_within(mut self, limit: Option<Duration>) -> Self {
        self.first_answer = Patience::new(limit);
        self
    }

    /// Sets the source of reloads, which HUP or a command starts: `load` returns the configuration as it is now, from
    /// the file at `path` if there is one. The daemon validates it. Without this, the daemon keeps its first configuration.
    pub fn reload_with(
        mut self,
        path: Option<PathBuf>,
        load: impl Fn() -> Result<Config, ConfigError> + Send + Sync + 'static,
    ) -> Self {
        self.loader = Some(Loader::new(path, load));
        self
    }

    /// Calls `call` once, when the daemon is ready: the database has answered, and consumers run. The call is on the
    /// thread that runs the daemon and must not block.
    pub fn on_ready(mut self, call: impl FnOnce() + Send + 'static) -> Self {
        self.on_ready = Some(Box::new(call));
        self
    }

    /// Calls `call` once, when the daemon listens for HTTP, with the address of its page. If clients need a token, that is a
    /// link that signs one browser in, for five minutes: show it to the person who started the daemon, and to nobody else.
    pub fn on_listening(mut self, call: impl FnOnce(&str) + Send + 'static) -> Self {
        self.on_listening = Some(Box::new(call));
        self
    }

    /// Checks everything that can be checked without the database.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.warnings().map(drop)
    }

    /// Checks the same, and returns what is valid but probably a mistake, such as a command that does not exist.
    pub fn warnings(&self) -> Result<Vec<String>, ConfigError> {
        Ok(Configured::new(&self.config, &self.registry, &BTreeMap::new())?.warnings())
    }

    /// Runs on the calling thread until a signal, an error, or an empty queue (`until_empty`) stops it. HUP reloads the
    /// configuration, USR1 logs the daemon's state.
    pub fn run(mut self) -> Result<(), DaemonError> {
        let mut configured = self.configured()?;
        open_files::allow_least()?;
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
        configured.files.make_missing(&self.config, &listen)?;
        let (fail_on_dead, config) = (self.fail_on_dead, self.config.clone());
        let (stop, shown) = (signals.received(), status.clone());
        let ended = self.run_configured(configured, &store.db, status, stop, || signals.commands(), listen);
        telemetry::flush();
        match failed(&shown, &config) {
            items if fail_on_dead && items > 0 => ended.and(Err(DaemonError::Dead { items })),
            _ => ended,
        }
    }

    /// As [`run`](Self::run), but on an open database and until `stop` resolves. There is no HTTP server, and signals
    /// have no effect.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_on(self, db: &Arc<Database>, stop: impl Future<Output = ()>) -> Result<(), DaemonError> {
        let status = DaemonStatus::new(&self.config.database);
        self.run_showing(db, status, stop)
    }

    /// The same with a status that the caller reads.
    pub(crate) fn run_showing(
        self,
        db: &Arc<Database>,
        status: Arc<DaemonStatus>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), DaemonError> {
        let configured = self.configured()?;
        let stop = async {
            stop.await;
            Ok(())
        };
        self.run_configured(configured, db, status, stop, || Ok(SignalCommands::default()), Listen::Off)
    }

    /// Where the HTTP server listens. With `until_empty` there is one only if the configuration has an address.
    fn listen(&self) -> Listen {
        match &self.config.http.listen {
            Listen::Auto if self.until_empty => Listen::Off,
            listen => listen.clone(),
        }
    }

    fn configured(&self) -> Result<Configured, ConfigError> {
        let configured = Configured::to_run(&self.config, &self.registry, &BTreeMap::new())?;
        if self.until_empty {
            configured.can_become_empty()?;
        }
        configured.log_warnings();
        Ok(configured)
    }

    fn run_configured(
        mut self,
        Configured { queues, files }: Configured,
        db: &Arc<Database>,
        status: Arc<DaemonStatus>,
        stop: impl Future<Output = io::Result<()>>,
        signals: impl FnOnce() -> io::Result<SignalCommands>,
        listen: Listen,
    ) -> Result<(), DaemonError> {
        let pool = HandlerPool(Some(handler_pool().map_err(DaemonError::Pool)?));
        status.configure(self.loader.as_ref().and_then(Loader::path), &self.config);
        let shared = ConsumerContext::new(pool.handle(), self.observer.clone(), status);
        let active = ActiveConfig::new(self.config.clone(), files);
        let (sender, commands) = CommandSender::new();
        // It keeps `commands` open.
        let handle = daemon_handle(sender, &shared, db, &active);
        let server = http::start(&Http { listen, ..self.config.http.clone() }, handle.clone())?;
        if let (Some(call), Some(link)) =
            (self.on_listening.take(), server.as_ref().and_then(Server::page_link))
        {
            call(&link);
        }
        let started = Started { db, shared: &shared, active, commands };
        let result = actors::run(self.serve(started, queues, stop, signals)).map_err(DaemonError::Pool)?;
        // The HTTP server answers until here, so clients can see how the daemon ends.
        drop((server, handle, pool));
        result
    }

    async fn serve(
        mut self,
        Started { db, shared, active, commands }: Started<'_>,
        queues: Vec<ConfiguredQueue>,
        stop: impl Future<Output = io::Result<()>>,
        signals: impl FnOnce() -> io::Result<SignalCommands>,
    ) -> Result<(), DaemonError> {
        let signals = signals().map_err(RunError::Signals)?;
        let mut stop = pin!(stop);
        let (supervisor, mut exits) = actors::supervise(shared.clone());
        let _reporting =
            systemd::start(shared.status.clone(), supervisor.clone(), self.patience, !self.is_part);
        let config = active.follow();
        let space = || stats::disk_space::Watch::new(shared.status.clone(), config.clone());
        let mut running =
            RunningQueues::new(db.clone(), shared.clone(), supervisor.clone(), self.until_empty, active);
        let new = tokio::select! {
            read = first_look(db, &running, &queues, self.first_answer) => {
                let (took, new) = read?;
                shared.status.set_database(Ok(took));
                new
            }
            // No consumer has started, so there is nothing to drain.
            stop = &mut stop => return Ok(stop.map_err(RunError::Signals)?),
        };
        let is_part = self.is_part;
        if !is_part {
            space().begin().await;
            absent_queues::log(db, &self.config).await;
        }
        running.run(&queues, new, None).await.map_err(RunError::from)?;
        // A reload drops handlers that it replaces, and the processes of such a handler end with it.
        drop(queues);
        // Before the log event: a reader of the log may ask for the status at once.
        shared.status.phase(Phase::Ready);
        tracing::info!(
            event = "ready",
            database = if is_part { "the program's" } else { &*self.config.database },
            queues = self.config.queues.len(),
            consumers = shared.consumers(),
            "ready"
        );
        if let Some(call) = self.on_ready.take() {
            call();
        }
        let poller = background::restarted("stats poller", || {
            spawn_local(stats::forever(db.clone(), shared.status.clone(), config.clone()))
        });
        let audit = background::restarted("audit sweeper", || {
            spawn_local(sweep::audit::forever(db.clone(), shared.status.clone(), config.clone()))
        });
        let space = background::restarted("space", || spawn_local(space().forever()));
        let of_the_database = async {
            if is_part {
                return pending().await;
            }
            tokio::select! {
                never = poller => never,
                never = audit => never,
                never = space => never,
            }
        };
        let control_loop = ControlLoop::new(running, self.loader, self.registry);
        // It owns the sweepers and pause followers.
        let control = background::watched(control_loop.run(commands, signals));
        let mut control = pin!(control);
        let stop = async {
            tokio::select! {
                stop = stop => stop.map_err(RunError::Signals),
                ended = &mut control => match ended {
                    Ok(never) => match never {},
                    Err(()) => Err(RunError::TaskFailed),
                },
            }
        };
        let served = async {
            let ended = lifecycle::serve(&supervisor, &mut exits, shared, stop, &config).await;
            shared.shutdown.processes.end().await;
            shared.sweepers.end().await;
            ended
        };
        tokio::select! {
            ended = served => Ok(ended?),
            never = of_the_database => match never {},
        }
    }
}

/// The parts of a daemon that exist before its first consumer.
struct Started<'a> {
    db: &'a Arc<Database>,
    shared: &'a Arc<ConsumerContext>,
    active: ActiveConfig,
    commands: mpsc::Receiver<QueuedCommand>,
}

/// The threads that handlers run on. The daemon's end does not wait for them: a handler may block its thread for ever.
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

/// The HTTP server's access to the daemon. The server starts before the database has answered, so that it can report
/// that.
fn daemon_handle(
    commands: CommandSender,
    shared: &ConsumerContext,
    db: &Arc<Database>,
    active: &ActiveConfig,
) -> DaemonHandle {
    let (config, token, certificate) = (active.follow(), active.token(), active.certificate());
    let (status, history) = (shared.status.clone(), shared.history.clone());
    DaemonHandle { commands, status, db: db.clone(), history, config, token, certificate }
}

/// Reads everything that the first consumer needs. Returns how long the database took to answer.
async fn first_look(
    db: &Database,
    running: &RunningQueues,
    queues: &[ConfiguredQueue],
    patience: Patience,
) -> Result<(Duration, NewQueues), DaemonError> {
    let config = running.config();
    let took = patience.wait(&config.database, first_read(db, &config.prefix)).await??;
    Ok((took, running.prepare(queues).await))
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
