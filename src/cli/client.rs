//! The database of a command that runs one operation, and what a command asks of it.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::HashMap,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::Path,
    pin::{Pin, pin},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail};
use foundationdb::{Database, Transaction};
use futures::{FutureExt, future::LocalBoxFuture};
use kvqueue_queue::{
    ItemId, ItemPlace, Pause, Queue, QueueError, Recorder, Recording, RetryError, RetryPolicy, all_queues,
    retry,
};
use serde_json::{Map, Value};
use tokio::{runtime, time::timeout_at};

use super::{
    api_client::{ApiClient, encoded},
    audited::Audited,
    globals::Globals,
    output,
    progress::{Progress, Size},
};
use crate::{
    audit::{Action, AuditStore, Record},
    config::{Config, ConfigError, Fault, Place, nearest},
    database::{
        NoAnswer, OpenError, Patience, Store, absent_queues,
        attempt::{Attempt, boxed},
        item_history,
        item_wait::ItemWait,
        missing,
    },
    operations::{Holders, Note, Refusal, Site, Unsure},
    status::shortened,
};

/// Prints a note that a database was created, if none was in this directory.
pub(super) fn created(globals: &Globals, missing: Option<&Path>) {
    if let Some(directory) = missing.filter(|_| !globals.quiet) {
        output::note(format_args!("kvqueue: created the database in {}", directory.display()));
    }
}

/// The option of commands that may come before the first push to their queue.
#[derive(Debug, clap::Args)]
pub(super) struct Create {
    /// Also if neither the database nor the configuration has the queue: before the first push to it
    #[arg(long)]
    pub(super) create: bool,
}

/// How long a daemon may take to report whether it has paused a queue for itself. The queue is already resumed then.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a daemon may take to say who has the leases of a queue. Without an answer, the processes are named.
const HOLDERS_PATIENCE: Duration = Duration::from_secs(2);

/// The most items that a command reads in one transaction. More could take longer than its five seconds.
pub(super) const MAX_READ: usize = 250;

/// An open database and a runtime to wait for it.
pub(super) struct Client {
    store: Store,
    runtime: runtime::Runtime,
    config: Arc<Config>,
    /// Faults of the configuration in settings that this command may not need.
    faults: RefCell<Vec<Fault>>,
    patience: Patience,
    /// How long opening has taken, which shortens the wait for the first answer.
    opening: Cell<Duration>,
    globals: Globals,
    audited: Audited,
    /// Of a change of many items.
    progress: RefCell<Option<Progress>>,
    /// The workers of the queue that the command is about, by their leases, once they are asked for.
    workers: OnceCell<HashMap<String, Value>>,
}

impl Client {
    /// For a command that needs an existing database.
    pub(super) fn open(globals: &Globals) -> anyhow::Result<Self> {
        Self::open_after(globals, Duration::ZERO)
    }

    /// The same for a command that has spent some of `--timeout` already.
    pub(super) fn open_after(globals: &Globals, spent: Duration) -> anyhow::Result<Self> {
        let (config, faults) = globals.start_leniently()?;
        match missing(&config.database) {
            Some(directory) => Err(OpenError::no_database(&directory).into()),
            None => Self::new(globals, config, faults, spent),
        }
    }

    /// For a command that may be the first to use a database. It prints a note if it was. A database that nothing names is made
    /// only with `--create`; `None` for a command without that option.
    pub(super) fn open_or_create(globals: &Globals, create: Option<bool>) -> anyhow::Result<Self> {
        let (config, faults) = globals.start_leniently()?;
        let missing = missing(&config.database);
        if let Some(directory) =
            missing.as_deref().filter(|_| create != Some(true) && !globals.names_database())
        {
            return Err(OpenError::unnamed(directory, create.is_some()).into());
        }
        let client = Self::new(globals, config, faults, Duration::ZERO)?;
        created(globals, missing.as_deref());
        Ok(client)
    }

    /// For a command that changes a queue and adds nothing to it. It makes the database only for a queue that is configured, or with
    /// `--create`.
    pub(super) fn open_to_change(globals: &Globals, queue: &OsStr, create: bool) -> anyhow::Result<Self> {
        let (config, _) = globals.load_leniently()?;
        let is_configured = queue.to_str().is_some_and(|name| config.queues.contains_key(name));
        match is_configured || create {
            true => Self::open_or_create(globals, Some(create)),
            false => Self::open(globals),
        }
    }

    fn new(globals: &Globals, config: Config, faults: Vec<Fault>, spent: Duration) -> anyhow::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (patience, began) = (globals.patience(), Instant::now());
        let store = Store::open_within(&config.database, patience.after(spent))?;
        let faults = RefCell::new(faults);
        let opening = Cell::new(spent + began.elapsed());
        let (globals, audited, config) = (globals.clone(), globals.audited.clone(), Arc::new(config));
        let (progress, workers) = (RefCell::default(), OnceCell::new());
        Ok(Self { store, runtime, config, faults, patience, opening, globals, audited, progress, workers })
    }

    /// The same for an operation with this action.
    pub(super) fn with_action(self, action: Option<Action>) -> Self {
        Self { audited: Audited::of(action), ..self }
    }

    /// Removes the progress of an operation that is over.
    pub(super) fn finish_progress(&self) {
        if let Some(mut progress) = self.progress.take() {
            progress.finish();
        }
    }

    /// Fails a test whose operation is done and has forgotten its record.
    pub(super) fn check_record(&self, is_done: bool) {
        self.audited.check(is_done);
    }

    pub(super) fn db(&self) -> &Database {
        &self.store.db
    }

    pub(super) fn prefix(&self) -> &[u8] {
        self.config.prefix.as_bytes()
    }

    /// An error if the configuration's settings for this queue are wrong, because they determine the layout of its items.
    pub(super) fn expect_settings(&self, queue: &OsStr) -> Result<(), ConfigError> {
        let mut faults = self.faults.borrow_mut();
        let of_queue = |fault: &Fault| match &fault.place {
            Place::Queue(name) => queue == OsStr::new(name),
            place => *place == Place::Queues,
        };
        match faults.iter().position(of_queue) {
            Some(at) => Err(faults.swap_remove(at).error),
            None => Ok(()),
        }
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// The audit trail in the database, and the record of this command, which is to be stored in the transaction of the change.
    pub(super) fn record(&self) -> anyhow::Result<(AuditStore, Record)> {
        let store = AuditStore::new(self.prefix());
        self.transact(|tr| async {
            let prepared = store.prepare(&tr).await;
            (tr, prepared)
        })?;
        Ok((store, self.audited.record()))
    }

    /// Stores the record of a command that changes something in several transactions, before the first of them.
    pub(super) fn store(&self, fill: impl FnOnce(Record) -> Record) -> anyhow::Result<()> {
        let (audit, record) = self.record()?;
        let (audit, record) = (&audit, &fill(record));
        self.transact(|tr| async move {
            audit.write(&tr, record);
            (tr, Ok(()))
        })
    }

    /// Waits for an answer of the database, as long as `--timeout` allows.
    pub(super) async fn answer<T>(&self, answer: impl Future<Output = T>) -> Result<T, NoAnswer> {
        let patience = self.patience.after(self.opening.take());
        patience.wait(&self.config.database, answer).await
    }

    /// Asks the configuration's daemon something, if it answers in time.
    fn ask_daemon<T: Send + 'static>(
        &self,
        patience: Duration,
        ask: impl FnOnce(&ApiClient) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        let (globals, config) = (self.globals.clone(), self.config.clone());
        let patience = globals.timeout().map_or(patience, |limit| limit.min(patience));
        // This thread waits for the operation, and can wait for nothing else.
        let asked = thread::spawn(move || ask(&ApiClient::of(&globals, &config).ok()?.within(patience)));
        asked.join().ok()?
    }

    /// Waits for one answer of the database on this thread.
    pub(super) fn ask<T, E>(&self, answer: impl Future<Output = Result<T, E>>) -> anyhow::Result<T>
    where
        anyhow::Error: From<E>,
    {
        self.wait(self.answer(answer))?.map_err(anyhow::Error::from)
    }

    /// Runs a future that asks the database several times, each time with [`Self::answer`].
    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let mut result = None;
        // The loop of the runtime is compiled once, not for each type of future.
        self.runtime
            .block_on(pin!(async { result = Some(future.await) }) as Pin<&mut dyn Future<Output = ()>>);
        result.expect("the future has ended")
    }

    /// The names of all queues.
    pub(super) fn queues(&self) -> anyhow::Result<Vec<Vec<u8>>> {
        let policy = RetryPolicy::default();
        let names = self.wait(self.answer(all_queues(self.db(), self.prefix(), &policy)))?;
        names.context("the database refused")
    }

    /// Warns on stderr that a new queue gets items, but the configuration has other queues only.
    pub(super) fn note_if_new(&self, queue: &Queue) -> anyhow::Result<()> {
        let name = String::from_utf8_lossy(queue.name());
        let queues = &self.config.queues;
        if self.globals.quiet || queues.is_empty() || queues.contains_key(&*name) {
            return Ok(());
        }
        let is_new = self.transact(|tr| async {
            let is_new = absent_queues::is_absent(&tr, queue).await;
            (tr, is_new)
        })?;
        if is_new {
            let meant = nearest(&name, queues.keys().map(String::as_str));
            let name = queue.name().escape_ascii();
            let meant = meant.map(|meant| {
                format!("; did you mean {meant:?}? 'kvqueue move {name} {meant} --all' moves the items there")
            });
            let meant = meant.unwrap_or_default();
            output::note(format_args!(
                "kvqueue: queue \"{name}\" is new, and the configuration has no such queue{meant}"
            ));
        }
        Ok(())
    }

    /// An error if the queue is frozen.
    pub(super) fn check_not_frozen(&self, queue: &Queue) -> anyhow::Result<()> {
        self.wait((self as &dyn Site).check_unfrozen(queue))
    }

    /// Runs a transaction that may commit twice with the same result: a read, or a clear.
    pub(super) fn transact<T, R>(&self, body: impl FnMut(Transaction) -> R) -> anyhow::Result<T>
    where
        R: Future<Output = (Transaction, Result<T, QueueError>)>,
    {
        let value = Cell::new(None);
        self.transact_boxed(&mut boxed(body, &value))?;
        Ok(value.take().expect("an attempt has committed"))
    }

    /// What [`Self::transact`] does with any body, compiled once.
    fn transact_boxed<'a>(&self, body: &mut dyn FnMut(Transaction) -> Attempt<'a>) -> anyhow::Result<()> {
        let done = self.wait(self.answer(retry::run(self.db(), &RetryPolicy::default(), body)))?;
        done.map(|_done| ()).context("the database refused")
    }
}

impl Site for Client {
    fn config(&self) -> Arc<Config> {
        self.config.clone()
    }

    fn check_settings(&self, queue: &[u8]) -> anyhow::Result<()> {
        Ok(self.expect_settings(OsStr::from_bytes(queue))?)
    }

    fn commit<'s, 'a: 's>(
        &'s self,
        body: &'s mut (dyn FnMut(Transaction) -> Attempt<'a> + 's),
    ) -> LocalBoxFuture<'s, anyhow::Result<()>> {
        async move {
            match self.answer(retry::run(self.db(), &RetryPolicy::default(), body)).await? {
                Ok(_) => Ok(()),
                Err(error) => match Refusal::of(&error) {
                    Some(refusal) => Err(refusal.into()),
                    None => Err(error).context("the database refused"),
                },
            }
        }
        .boxed_local()
    }

    fn record(&self) -> Record {
        self.audited.record()
    }

    fn check_access(&self, _: &str) -> anyhow::Result<()> {
        Ok(())
    }

    fn database(&self) -> (&Database, RetryPolicy) {
        (self.db(), RetryPolicy::default())
    }

    fn wait_for<'s>(
        &'s self,
        change: LocalBoxFuture<'s, Result<(), RetryError>>,
        unsure: Unsure,
    ) -> LocalBoxFuture<'s, anyhow::Result<()>> {
        let (text, is_one) = match unsure {
            Unsure::Partly => ("some of them may be done", false),
            Unsure::Once(text) => (text, true),
        };
        async move {
            match self.answer(change).await.context(text)? {
                Ok(()) => Ok(()),
                Err(error) => match Refusal::of(&error) {
                    Some(refusal) => Err(refusal.into()),
                    None if is_one && !error.is_maybe_committed() => {
                        Err(error).context("the database refused")
                    }
                    None => Err(error).context(format!("the database refused; {text}")),
                },
            }
        }
        .boxed_local()
    }

    fn until(&self) -> Option<Instant> {
        None
    }

    fn progress(&self, done: &'static str, items: usize, of: u64) {
        let mut progress = self.progress.borrow_mut();
        let progress = progress.get_or_insert_with(|| Progress::new(&self.globals, done, Size::Items(of)));
        progress.done(items as u64, 0);
    }

    fn recorder(&self, _: &[u8]) -> Recorder {
        item_history::recorder(Recording::AsStored)
    }

    fn notes(&self) -> Option<Note<'_>> {
        (!self.globals.quiet)
            .then(|| Box::new(|text: &str| output::note(format_args!("kvqueue: {text}"))) as Note<'_>)
    }

    fn holders(&self, queue: &[u8]) -> Holders<'_> {
        let workers = self.workers.get_or_init(|| {
            self.ask_daemon(HOLDERS_PATIENCE, {
                let queue = queue.to_vec();
                move |daemon| {
                    let path = format!("/api/v1/workers?queue={}", encoded(str::from_utf8(&queue).ok()?));
                    let mut answer = daemon.get(&path).ok()?;
                    let workers = answer["workers"].as_array_mut()?;
                    let of_leases = workers
                        .iter_mut()
                        .filter_map(|it| Some((it["lease"].as_str()?.to_owned(), it.take())));
                    Some(of_leases.collect::<HashMap<_, _>>())
                }
            })
            .unwrap_or_default()
        });
        Box::new(move |view| {
            let worker = view.lease.and_then(|lease| workers.get(&shortened(lease.id)));
            let fields = ["who", "address", "user_agent"];
            let worker = worker.map(|worker| fields.map(|name| (name.to_owned(), worker[name].clone())));
            let worker = worker.map(|fields| ("worker".to_owned(), Map::from_iter(fields).into()));
            worker.into_iter().collect()
        })
    }

    fn wait_for_item<'s>(
        &'s self,
        (queue, id): (&'s Queue, &'s ItemId),
        wait: &'s mut ItemWait,
        until: tokio::time::Instant,
    ) -> LocalBoxFuture<'s, anyhow::Result<bool>> {
        let policy = RetryPolicy::default();
        let look = async move |place: Option<ItemPlace>| {
            let look = retry::run(self.db(), &policy, |tr| async move {
                let found = queue.watch_item(&tr, id, place).await;
                (tr, found)
            });
            let found = self.answer(look).await?.context("the database refused")?;
            anyhow::Ok(found.value)
        };
        async move {
            match timeout_at(until, wait.ended(look)).await {
                Ok(ended) => ended.map(|()| false),
                Err(_) => Ok(true),
            }
        }
        .boxed_local()
    }

    fn pause_here<'s>(&'s self, _: &'s [u8], _: bool) -> LocalBoxFuture<'s, anyhow::Result<()>> {
        async { bail!("only a daemon can pause a queue for itself; ask one with --local") }.boxed_local()
    }

    fn pausing_daemon(&self, queue: &[u8]) -> Option<String> {
        let queue = queue.to_vec();
        self.ask_daemon(PATIENCE, move |daemon| {
            let (_, figures) = daemon.figures().ok()?;
            let is_paused = figures.queues.iter().any(|it| it.paused_locally && it.queue.as_bytes() == queue);
            is_paused.then(|| format!("the daemon at {daemon}"))
        })
    }
}

/// The error for a frozen queue. `done` says what was done before, if anything was.
pub(super) fn frozen(queue: &Queue, pause: &Pause, done: Option<&str>) -> anyhow::Error {
    let refusal = Refusal::frozen(&queue.name().escape_ascii().to_string(), pause);
    match done {
        None => refusal.into(),
        Some(done) => anyhow!("{}; {done}; {}", refusal.message, refusal.fix),
    }
}
