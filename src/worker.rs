//! A worker: it handles the items of one queue with a function of your program.

use std::{fmt, panic, sync::Arc, thread, time::Duration};

use foundationdb::Database;
use futures::future::{BoxFuture, FutureExt, pending};
use kvqueue_queue::{Item, Queue};
use tokio::sync::oneshot;

use crate::{
    base::causes::with_causes,
    config::{Config, ConfigError, QueueConfig},
    daemon::{Daemon, DaemonError},
    handlers::{Context, Handler, Outcome, SettingsError},
};

/// The name that the worker's configuration has for the function.
const HANDLER: &str = "function";

/// Handles the items of one queue with a function, inside a program of your own.
///
/// It is the daemon for one queue, without its configuration file, signals, systemd and HTTP: consumers that share fetches and
/// leases, retries with growing pauses, dead letters, cancellations, pauses, and the sweeper of the queue. So workers, daemons
/// and the program's other processes may work on one queue.
///
/// The sweeper goes by the worker's settings. Where daemons or other workers sweep the same queue, give all of them the same
/// retries, expiry, `dead_retention` and `idempotency_window` ([`with_settings`](Self::with_settings)): the shortest time counts.
///
/// ```
/// use kvqueue::{
///     Item, Worker,
///     database::Store,
///     queue::{Queue, Session},
/// };
///
/// async fn send(item: Item) -> Result<(), std::str::Utf8Error> {
///     println!("to {}", std::str::from_utf8(&item.payload)?);
///     Ok(())
/// }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let url = format!("embedded:{}", directory.path().display());
/// let store = Store::open(&url)?;
/// let queue = Queue::new(b"", b"mails")?;
/// Session::new(queue.clone()).push(&store.db, &[b"ann", b"bob"]).await?;
///
/// Worker::new(queue).with_consumers(4).until_empty().run(&store.db, send).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a worker does nothing until it is run"]
pub struct Worker {
    queue: Queue,
    settings: QueueConfig,
    shutdown_timeout: Option<Duration>,
    until_empty: bool,
    shutdown: BoxFuture<'static, ()>,
}

/// What a function may return for an item.
///
/// | it returns | what becomes of the item |
/// |---|---|
/// | `()` | it is done |
/// | [`Outcome`] | see there |
/// | `Ok(value)` | as if the function had returned `value` |
/// | `Err` | the attempt has failed, and the error is its reason: the item is retried, and a dead letter after its last attempt |
pub trait IntoOutcome {
    /// The outcome.
    fn into_outcome(self) -> Outcome;
}

impl Worker {
    /// A worker of this queue with one consumer, and the defaults of a queue in a daemon.
    pub fn new(queue: Queue) -> Self {
        let settings = QueueConfig::new(HANDLER).with_layout(queue.kind());
        let shutdown = pending().boxed();
        Self { queue, settings, shutdown_timeout: None, until_empty: false, shutdown }
    }

    /// Handles this many items at a time.
    pub fn with_consumers(self, count: usize) -> Self {
        self.with_settings(|settings| {
            settings.consumers.truncate(1);
            settings.consumers.iter_mut().for_each(|group| group.count = count);
        })
    }

    /// Fetches up to this many items for each consumer at a time. It handles them one after the other.
    pub fn with_batch_size(self, k: usize) -> Self {
        self.with_settings(|settings| settings.consumers.iter_mut().for_each(|group| group.k = Some(k)))
    }

    /// Changes settings of the queue: the length of leases, retries, the time of a call, delivery. The handler and the layout stay
    /// what they are. A worker has no schedules: [`Queue::put_schedule`] makes one.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use kvqueue::{Worker, queue::Queue};
    /// # let queue = Queue::new(b"", b"q").unwrap();
    /// let worker = Worker::new(queue).with_settings(|settings| {
    ///     settings.handler_timeout = Some(Duration::from_secs(10));
    ///     settings.retry.max_attempts = 3;
    /// });
    /// # drop(worker);
    /// ```
    pub fn with_settings(mut self, change: impl FnOnce(&mut QueueConfig)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Ends when the queue has no ready, running or scheduled items.
    pub fn until_empty(mut self) -> Self {
        self.until_empty = true;
        self
    }

    /// Ends when this resolves: it fetches no more, waits for running items up to the shutdown timeout, and releases the others,
    /// which spends no attempt.
    pub fn with_shutdown(mut self, shutdown: impl Future<Output = ()> + Send + 'static) -> Self {
        self.shutdown = shutdown.boxed();
        self
    }

    /// Sets how long a shutdown waits for running items: 30 seconds, unless it is set. Then their calls are dropped.
    pub fn with_shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = Some(timeout);
        self
    }

    /// Runs until the shutdown resolves, the queue is empty ([`until_empty`](Self::until_empty)), or an error occurs.
    ///
    /// `handle` gets each item, in a task of its own, on threads that the worker has for that: a panic fails the attempt, and
    /// nothing else.
    ///
    /// Keep the database open until the future has resolved. If the future is dropped, the worker shuts down in the background;
    /// if the process ends before that is done, unfinished items come back when their leases expire, and an attempt is spent.
    /// So end it by [`with_shutdown`](Self::with_shutdown).
    ///
    /// # Errors
    /// [`DaemonError::Config`], if a setting is out of its range, or the queue's name or prefix is no UTF-8; and those of a daemon
    /// that runs.
    ///
    /// # Panics
    /// If the worker itself panics, which is a fault of kvqueue.
    pub async fn run<F, R, O>(self, db: &Arc<Database>, handle: F) -> Result<(), DaemonError>
    where
        F: Fn(Item) -> R + Send + Sync + 'static,
        R: Future<Output = O> + Send + 'static,
        O: IntoOutcome + Send + 'static,
    {
        self.run_handler(db, Function(handle)).await
    }

    /// The same with a handler, which gets a [`Context`] with each item: for its deadline, its progress, cancellations, and a
    /// transaction that commits together with the acknowledgement.
    pub async fn run_handler(self, db: &Arc<Database>, handler: impl Handler) -> Result<(), DaemonError> {
        let (config, until_empty) = (self.config()?, self.until_empty);
        let (handler, db) = (Arc::new(handler), db.clone());
        let (stop, stopped) = oneshot::channel::<()>();
        let (end, mut ended) = oneshot::channel();
        // A daemon has a runtime of its own, on which it is alone: leases are kept where no handler runs.
        let thread = thread::Builder::new().name("kvqueue-worker".to_owned()).spawn(move || {
            let daemon = Daemon::new(config)
                .part_of_a_program()
                .handler(HANDLER, move |_| Ok::<_, SettingsError>(handler.clone()))
                .until_empty(until_empty);
            let result = daemon.run_on(&db, async { drop(stopped.await) });
            // The program may close the database once the future has resolved.
            drop(db);
            if let Err(Err(error)) = end.send(result) {
                tracing::error!(
                    event = "worker_failed",
                    error = with_causes(&error),
                    "a worker failed after its future had been dropped"
                );
            }
        });
        let thread = thread.map_err(DaemonError::Pool)?;
        let result = tokio::select! {
            ended = &mut ended => ended,
            () = self.shutdown => {
                drop(stop);
                ended.await
            }
        };
        match result {
            Ok(result) => result,
            Err(_) => match thread.join() {
                Ok(()) => unreachable!("it sends its result"),
                Err(panic) => panic::resume_unwind(panic),
            },
        }
    }

    fn config(&self) -> Result<Config, ConfigError> {
        let text = |bytes: &[u8], key: &str| {
            let text = std::str::from_utf8(bytes).map(str::to_owned);
            text.map_err(|error| {
                let given = format!("{:?}", bytes.escape_ascii().to_string());
                ConfigError::value(key, given, error.to_string(), "give the queue one that is a text")
            })
        };
        let name = text(self.queue.name(), "queue name")?;
        let settings = QueueConfig { handler: HANDLER.to_owned(), ..self.settings.clone() };
        let mut config = Config::default().with_queue(name, settings.with_layout(self.queue.kind()));
        config.prefix = text(self.queue.prefix(), "key prefix")?;
        if let Some(timeout) = self.shutdown_timeout {
            config.shutdown_timeout = timeout;
        }
        Ok(config)
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("queue", &self.queue)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A function as a handler.
struct Function<F>(F);

#[async_trait::async_trait]
impl<F, R, O> Handler for Function<F>
where
    F: Fn(Item) -> R + Send + Sync + 'static,
    R: Future<Output = O> + Send + 'static,
    O: IntoOutcome + Send + 'static,
{
    async fn handle(&self, item: &Item, _: &Context) -> Outcome {
        (self.0)(item.clone()).await.into_outcome()
    }
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Outcome::Done
    }
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl<T: IntoOutcome, E: fmt::Display> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(value) => value.into_outcome(),
            // Errors that know their causes show them so.
            Err(error) => Outcome::retry(format_args!("{error:#}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_fails_the_attempt_and_any_value_without_one_is_done() {
        assert_eq!(().into_outcome(), Outcome::Done);
        assert_eq!(Ok::<_, fmt::Error>(()).into_outcome(), Outcome::Done);
        assert_eq!(Ok::<_, fmt::Error>(Outcome::Release).into_outcome(), Outcome::Release);
        assert_eq!(Err::<(), _>("no").into_outcome(), Outcome::retry("no"));
    }

    #[test]
    fn a_worker_has_the_settings_of_its_queue() {
        let queue = Queue::of_kind(b"p", b"q", kvqueue_queue::Kind::Keyed).unwrap();
        let worker = Worker::new(queue).with_consumers(3).with_batch_size(7);
        let worker = worker.with_settings(|settings| settings.handler = "log".to_owned());
        let config = worker.config().unwrap();
        assert_eq!((config.prefix.as_str(), config.queues.len()), ("p", 1));
        let settings = &config.queues["q"];
        assert_eq!((settings.layout(), settings.handler.as_str()), (kvqueue_queue::Kind::Keyed, HANDLER));
        assert_eq!((settings.consumers[0].count, settings.consumers[0].k), (3, Some(7)));
    }

    #[test]
    fn a_name_that_is_no_text_is_refused() {
        let queue = Queue::new(b"", b"\xff").unwrap();
        let error = Worker::new(queue).config().unwrap_err().to_string();
        assert!(error.contains("queue name") && error.contains("text"), "{error}");
    }
}
