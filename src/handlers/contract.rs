//! The contract between the daemon and a handler.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use async_trait::async_trait;
use bytes::Bytes;
use foundationdb::Transaction;
use kvqueue_queue::{Item, Scope};
use tokio_util::sync::CancellationToken;

use super::{Processes, ProgressNews, ProgressReporter};
use crate::{
    base::{clock, json::LeasedItem},
    meters::QueueMeters,
    telemetry::trace_parent,
};

/// Something that handles items one by one.
///
/// Called on a multi-threaded runtime; work that blocks a thread for long belongs in
/// `tokio::task::spawn_blocking`. When [`Context::cancelled`] fires, the result is no longer
/// wanted, or can no longer count; a second later the future is dropped.
///
/// A handler may be called more than once for an item: after a crash, a lost lease, or a failure;
/// and with exactly-once delivery whenever its transaction has to be run again. What it does
/// outside the transaction should bear that.
///
/// Its log events belong to the item's span, and its own calls can go on from there
/// ([`trace_parent`](crate::telemetry::trace_parent)).
///
/// [`testing`](crate::testing) calls a handler in a unit test.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Why the handler is likely not to work, found without calling it: `config check`, `doctor`
    /// and the daemon's start show it. Return `None` (the default) if there is nothing to warn of.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Whether the handler enforces `handler-timeout` itself, for example because a part of the
    /// call does not count. The daemon then does not end the call when its time is up, and
    /// [`Context::deadline`] is only a hint.
    fn limits_itself(&self) -> bool {
        false
    }

    /// Handles one item.
    async fn handle(&self, item: &Item, context: &Context) -> Outcome;
}

/// Something that handles the items of one fetch together. For the rest, see [`Handler`].
#[async_trait]
pub trait BatchHandler: Send + Sync + 'static {
    /// As [`Handler::warning`].
    fn warning(&self) -> Option<String> {
        None
    }

    /// As [`Handler::limits_itself`].
    fn limits_itself(&self) -> bool {
        false
    }

    /// Handles 1 to K items, in the order of the queue, and returns their outcomes in the same
    /// order. Items without an outcome are retried.
    async fn handle(&self, items: &[Item], context: &Context) -> Vec<Outcome>;
}

/// A handler that is shared, by several queues or with a test.
#[async_trait]
impl<H: Handler + ?Sized> Handler for Arc<H> {
    fn warning(&self) -> Option<String> {
        (**self).warning()
    }

    fn limits_itself(&self) -> bool {
        (**self).limits_itself()
    }

    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        (**self).handle(item, context).await
    }
}

#[async_trait]
impl<H: BatchHandler + ?Sized> BatchHandler for Arc<H> {
    fn warning(&self) -> Option<String> {
        (**self).warning()
    }

    fn limits_itself(&self) -> bool {
        (**self).limits_itself()
    }

    async fn handle(&self, items: &[Item], context: &Context) -> Vec<Outcome> {
        (**self).handle(items, context).await
    }
}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Outcome {
    /// The item is finished.
    Done,
    /// The same, with a result for the program that waits for it: up to 90,000 bytes ([`MAX_RESULT`](kvqueue_queue::MAX_RESULT)). If the queue keeps a
    /// history, `kvqueue item show` and HTTP show it as long as the history is kept. A longer one is not kept; the history and the log then have that there
    /// was one. A queue without a history drops it, and so does one with at-most-once delivery.
    DoneWith(Bytes),
    /// Not handled: again after a while that grows with its attempts (`queues.NAME.retry`). After
    /// the last attempt it is a dead letter. The reason, a lower-case fragment, is shown in the log
    /// and in the dead letter.
    Retry(String),
    /// Not handled: again after this time. It counts as an attempt all the same.
    RetryAfter(Duration, String),
    /// The handler can never handle the item. It becomes a dead letter at once, with this reason.
    Dead(String),
    /// Not handled, and not for a reason of its own: it goes back to its place in the queue, and no
    /// attempt is spent.
    Release,
    /// Not handled, because the handler cannot work now, with this item or any other: its program
    /// is missing, the machine has no memory, the service behind it is down. The reason is for
    /// people: a fragment for the log, `/readyz` and the page.
    ///
    /// The item goes back to its place in the queue, and no attempt is spent, however often this
    /// happens. This daemon's consumers of the queue release all items that they have not begun.
    /// Then one consumer tries one item at a time, after 100 ms, 200 ms and so on, at most 10 s.
    /// Any other outcome ends that; [`Context::works`] ends it before there is an outcome. With
    /// at-most-once delivery the item has left the queue, so its consumer keeps it and tries it
    /// again.
    Unavailable(String),
    /// As [`Unavailable`](Self::Unavailable), if the item itself may be the reason, as when a
    /// service behind the handler has failed for many items in a row. The item is scheduled for
    /// after this time, and no attempt is spent. So the next try has another item: every second one the last of the
    /// queue, since the first ones may all be such items. With at-most-once delivery the item stays with its consumer.
    UnavailableAfter(Duration, String),
    /// Not handled, because a service behind the handler asks for a pause, as with "429 Too Many Requests". The item is ready again
    /// at its place, and no attempt is spent. No item of the scope starts for this time, in any daemon: see
    /// [`Scope`]. Items of other keys go on, and consumers do not wait. The reason is for the log.
    ///
    /// In a queue without keys the item alone is scheduled for after this time, and so is an item whose key is empty, unless the
    /// scope is the queue. With at-most-once delivery the item stays with its consumer.
    Throttle {
        /// What waits.
        scope: Scope,
        /// How long, at most a day.
        wait: Duration,
        /// Why.
        reason: String,
    },
}

impl Outcome {
    /// The item is finished, with this result.
    pub fn done_with(result: impl Into<Bytes>) -> Self {
        Self::DoneWith(result.into())
    }

    /// Whether the item is finished.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done | Self::DoneWith(_))
    }

    /// A failure for this reason, to be retried.
    pub fn retry(reason: impl fmt::Display) -> Self {
        Self::Retry(reason.to_string())
    }

    /// The handler cannot work now, for this reason.
    pub fn unavailable(reason: impl fmt::Display) -> Self {
        Self::Unavailable(reason.to_string())
    }

    /// No item of the scope is to start for this time, for this reason.
    pub fn throttle(scope: Scope, wait: Duration, reason: impl fmt::Display) -> Self {
        Self::Throttle { scope, wait, reason: reason.to_string() }
    }

    /// A failure for this reason that no retry helps.
    pub fn dead(reason: impl fmt::Display) -> Self {
        Self::Dead(reason.to_string())
    }
}

/// The context of a call: the queue, cancellation, and the transaction.
#[derive(Debug)]
pub struct Context {
    /// The queue's name as configured.
    pub queue: Arc<str>,
    /// The consumer that fetched the items; unique within the process.
    pub consumer: u64,
    /// When the time of this call is up (`handler-timeout`); `None`: never.
    pub deadline: Option<Instant>,
    /// Fires when the time is up, when the lease is lost, or when the daemon's shutdown timeout is
    /// over.
    pub cancelled: CancellationToken,
    /// The transaction that finishes the item, with exactly-once delivery.
    pub(crate) transaction: Option<Arc<Transaction>>,
    pub(crate) stop: StopRequest,
    /// The time limit of this call.
    pub(crate) limit: Option<Duration>,
    /// The queue's; none in a test of a handler.
    pub(crate) runtime: Option<Arc<dyn QueueOfCall>>,
    /// Where the progress of items on a lease is reported.
    pub(crate) progress: Option<Arc<ProgressNews>>,
}

impl Context {
    /// With exactly-once delivery: the transaction that also finishes the item, so that what the
    /// handler writes into it happens exactly if, and when, the item is done. `None` with any other
    /// delivery.
    ///
    /// The daemon commits it. A batch's transaction acknowledges all of its items; the daemon
    /// commits it if at least one of them is done. It has FoundationDB's limits: 5 seconds from its
    /// first read, 10 MB. So do what takes long before the first read.
    pub fn transaction(&self) -> Option<&Transaction> {
        self.transaction.as_deref()
    }

    /// When the item was pushed: as its producer wrote it down, or by its id, which has the version
    /// of the database at the push. `None` if neither tells, as of a plain item in a queue of
    /// FoundationDB's recipes.
    pub fn enqueued_at(&self, item: &Item) -> Option<SystemTime> {
        let written = item.meta.as_ref().and_then(|meta| meta.enqueued_at);
        written.or_else(|| {
            let age = self.runtime.as_ref()?.since(item.id.stamp()?.version())?;
            clock::now().checked_sub(age)
        })
    }

    /// The item as a worker in another language gets it.
    pub(crate) fn leased(&self, item: &Item) -> LeasedItem {
        let enqueued_at = self.enqueued_at(item);
        LeasedItem { item: item.clone(), enqueued_at, trace_parent: trace_parent(item) }
    }

    /// Reports how far the handler is with an item of this call: in percent, if that is known, and in words, of which 200 bytes are kept. `kvqueue item show` and
    /// HTTP show the last report while the item runs.
    ///
    /// It costs no transaction: the next extension of the lease has the last report of each item. So it is shown after a third of the
    /// queue's `lease`, ten seconds without that setting, and an item that ends sooner has shown none. Call it as often as you like. With at-most-once delivery
    /// the item has no lease, and nothing is shown.
    pub fn report_progress(&self, item: &Item, percent: Option<u8>, message: &str) {
        self.reporter(item).report(percent, message);
    }

    /// For reports about an item by another task.
    pub(crate) fn reporter(&self, item: &Item) -> ProgressReporter {
        ProgressReporter::new(item.id.clone(), self.progress.clone())
    }

    /// Tells the daemon that the handler can work, before there is an outcome. After
    /// [`Outcome::Unavailable`] the other consumers then go on at once. A handler whose calls take
    /// long should call it as soon as it knows. It costs nothing otherwise.
    pub fn works(&self) {
        if let Some(runtime) = &self.runtime {
            runtime.works(self.consumer);
        }
    }

    /// Asks the daemon to drain and exit with an error, because no further item can be handled
    /// (say, the output is gone).
    pub fn stop_daemon(&self, reason: impl Into<String>) {
        self.stop.request(reason.into());
    }
}

/// The queue that a handler is called for, as far as handlers need it.
pub(crate) trait QueueOfCall: fmt::Debug + Send + Sync {
    /// How long ago the database had this version, if that is known.
    fn since(&self, version: u64) -> Option<Duration>;

    /// The handler can work, in a call of this consumer.
    fn works(&self, consumer: u64);

    /// What is counted of the queue.
    fn meters(&self) -> &Arc<QueueMeters>;

    /// The processes that handlers of this daemon keep.
    fn processes(&self) -> &Processes;
}

/// A request to stop the daemon, from a handler or a consumer. The first reason stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopRequest {
    reason: Arc<std::sync::OnceLock<String>>,
    requested: CancellationToken,
}

impl StopRequest {
    pub(crate) fn request(&self, reason: String) {
        // Later reasons only repeat that it is over.
        let _ = self.reason.set(reason);
        self.requested.cancel();
    }

    /// The reason, if it was requested.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// Waits for a request and returns its reason.
    pub(crate) async fn wait(&self) -> String {
        self.requested.cancelled().await;
        self.reason.get().cloned().unwrap_or_default()
    }
}
