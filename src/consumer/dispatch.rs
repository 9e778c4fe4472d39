//! A batch to the handler: one item after the other, each in a task of its own, with a time limit and a boundary
//! that panics do not cross.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use kvqueue_queue::Item;
use tokio::{
    task::{JoinError, JoinHandle},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{batch::Batch, source::Source};
use crate::{
    handlers::{Context, Handling, Outcome, StopRequest},
    telemetry::panic_text,
};

/// How long a handler whose item is cancelled may go on before it is dropped.
pub(crate) const LAST_MOMENT: Duration = Duration::from_secs(1);

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
            deadline: self.source.timeout.map(|limit| Instant::now() + limit),
            cancelled: self.cancelled.child_token(),
            transaction: None,
            stop: self.stop.clone(),
        };
        let cancel = context.cancelled.clone();
        let handling = self.source.handling.clone();
        let handling = async move {
            match handling {
                Handling::Each(handler) => handler.handle(&item, &context).await,
                Handling::Batch(handler) => handler
                    .handle(std::slice::from_ref(&item), &context)
                    .await
                    .pop()
                    .unwrap_or_else(|| Outcome::retry("the handler said nothing about it")),
            }
        };
        let mut task = tokio::spawn(handling.in_current_span());
        let reason = tokio::select! {
            done = &mut task => return outcome(done),
            reason = self.time_up() => reason,
            () = self.cancelled.cancelled() => "the grace of a stop was over".to_owned(),
        };
        cancel.cancel();
        last_moment(task, reason).await
    }

    /// Resolves when an item that starts now has had its time, with what to say about it.
    async fn time_up(&self) -> String {
        match self.source.timeout {
            Some(limit) => {
                sleep(limit).await;
                format!("not done after {} ms (handler-timeout)", limit.as_millis())
            }
            None => std::future::pending().await,
        }
    }
}

/// A cancelled handler may still finish; what it then says counts.
async fn last_moment(mut task: JoinHandle<Outcome>, reason: String) -> Outcome {
    match timeout(LAST_MOMENT, &mut task).await {
        Ok(Ok(Outcome::Done)) => Outcome::Done,
        Ok(_) => Outcome::Retry(reason),
        Err(_) => {
            task.abort();
            Outcome::Retry(reason)
        }
    }
}

fn outcome(done: Result<Outcome, JoinError>) -> Outcome {
    match done.map_err(JoinError::try_into_panic) {
        Ok(outcome) => outcome,
        Err(Ok(panic)) => Outcome::retry(format_args!("the handler panicked: {}", panic_text(&*panic))),
        Err(Err(_)) => Outcome::retry("the handler's task was cancelled with the runtime"),
    }
}
