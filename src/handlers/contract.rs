//! What the daemon asks of a handler, and what it says back.

use std::sync::Arc;

use async_trait::async_trait;
use kvqueue_queue::Item;
use tokio_util::sync::CancellationToken;

/// Something that handles items.
///
/// Called on a multi-threaded runtime; work that blocks a thread for long belongs in
/// `tokio::task::spawn_blocking`. When `context.cancelled` fires the result is no longer wanted; soon after, the
/// future is dropped.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Handles one item.
    async fn handle(&self, item: &Item, context: &Context) -> Outcome;
}

/// What became of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Handled; nothing remains to be done.
    Done,
    /// Not handled. The reason is for people: a fragment for the log.
    Failed(String),
}

impl Outcome {
    /// A failure for this reason.
    pub fn failed(reason: impl std::fmt::Display) -> Self {
        Self::Failed(reason.to_string())
    }
}

/// Where an item comes from, and the two signals between its handler and the daemon.
#[derive(Clone, Debug)]
pub struct Context {
    /// The queue's name as configured.
    pub queue: Arc<str>,
    /// The consumer that took the item; unique within the process.
    pub consumer: u64,
    /// Fires when the item's time is up, or the daemon's grace.
    pub cancelled: CancellationToken,
    pub(crate) stop: StopRequest,
}

impl Context {
    /// Asks the daemon to drain and exit with an error, because no further item can be handled (say, the output is
    /// gone). The items in hand are still offered to the handler.
    pub fn stop_daemon(&self, reason: impl Into<String>) {
        self.stop.request(reason.into());
    }
}

/// The way a wish to stop, a handler's or a consumer's, reaches the daemon. The first reason stands.
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

    /// Waits for a request and returns its reason.
    pub(crate) async fn wait(&self) -> String {
        self.requested.cancelled().await;
        self.reason.get().cloned().unwrap_or_default()
    }
}
