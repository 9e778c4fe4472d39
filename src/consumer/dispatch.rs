//! A batch to the handler: one item after the other, each in a task of its own, with a time limit and a boundary
//! that panics do not cross.

use std::sync::Arc;

use kvqueue_queue::Item;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{batch::Batch, source::Source};
use crate::handlers::{Context, Outcome, StopRequest, call};

/// Who dispatches, and the signals that reach its handlers.
#[derive(Clone, Debug)]
pub(crate) struct Dispatcher {
    pub(crate) source: Arc<Source>,
    /// The consumer's id.
    pub(crate) consumer: u64,
    /// Fires when the grace is over.
    pub(crate) cancelled: CancellationToken,
    pub(crate) stop: StopRequest,
}

impl Dispatcher {
    /// Handles the items in order. After `cancelled` the rest of the batch is given up.
    pub(crate) async fn run(self, mut batch: Batch) {
        while !self.cancelled.is_cancelled()
            && let Some(item) = batch.next()
        {
            let span = tracing::info_span!("item", queue = %self.source.name, item = %item.id);
            let outcome = self.handle(item).instrument(span.clone()).await;
            if let Outcome::Retry(reason) = outcome {
                span.in_scope(|| tracing::warn!(reason, "item failed"));
            }
        }
    }

    async fn handle(&self, item: Item) -> Outcome {
        let context = Context {
            queue: self.source.name.clone(),
            consumer: self.consumer,
            deadline: None,
            cancelled: self.cancelled.child_token(),
            transaction: None,
            stop: self.stop.clone(),
        };
        let ended = call(&self.source.handling, [item].into(), context, self.source.timeout).await;
        let cancelled = Outcome::retry("the grace of a stop was over");
        ended.outcomes(1, &cancelled).pop().unwrap_or(cancelled)
    }
}
