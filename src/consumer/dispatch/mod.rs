//! Dispatching: the items of a batch go to the handler in the order of the queue, one by one or together.
//!
//! Dispatchers run on the handlers' threads, where calling the handler costs little.
//! `handlers::call` is one call, with its time limit and panic boundary.

mod at_least_once;
mod at_most_once;
pub(crate) mod outcome;

pub(crate) use at_least_once::{MAX_RUNS, not_committed};

use std::{sync::Arc, time::Instant};

use foundationdb::Transaction;
use kvqueue_queue::Item;
use tokio_util::sync::CancellationToken;

use super::{breaker::Tried, expiry::waited, runtime::QueueRuntime};
use crate::{
    config::Delivery,
    consumer::status::ConsumerStatus,
    handlers::{CallResult, Context, Interruption, Outcome, ProgressNews, QueueOfCall, call},
    telemetry::span,
};

/// With `--until-empty`, the daemon stops with an error after this number of trials in a row (6 s) in
/// which a handler could not work.
const MOST_TRIES: u32 = 7;

/// Dispatches the batches of one consumer.
#[derive(Clone, Debug)]
pub(crate) struct Dispatcher {
    pub(crate) runtime: Arc<QueueRuntime>,
    /// Of the consumer.
    pub(crate) status: Arc<ConsumerStatus>,
    /// Fires when the consumer stops: items on a lease that were not begun are released.
    pub(crate) stop: CancellationToken,
}

impl Dispatcher {
    /// How many items each call gets.
    fn items_of_a_call(&self, items: usize) -> usize {
        self.runtime.tried.handling.items_of_a_call(items).max(1)
    }

    /// Begins a batch, perhaps as the trial of a handler that could not work. The trial ends when this is dropped.
    fn trial(&self) -> Trial<'_> {
        Trial { dispatcher: self, number: self.runtime.breaker.begin(self.status.id) }
    }

    /// Calls a handler once. `cancelled` is a token of this call alone: it is cancelled at the end of the time limit, too.
    async fn call(
        &self,
        tried: &Tried,
        items: &[Item],
        cancelled: CancellationToken,
        (transaction, progress): (Option<Arc<Transaction>>, Option<Arc<ProgressNews>>),
    ) -> CallResult {
        let items: Arc<[Item]> = items.into();
        self.status.called(items.clone());
        let context = Context {
            queue: self.runtime.name.clone(),
            consumer: self.status.id,
            deadline: None,
            cancelled,
            transaction,
            stop: self.runtime.shutdown.stop.clone(),
            limit: None,
            runtime: Some(self.runtime.clone() as Arc<dyn QueueOfCall>),
            progress,
        };
        let meters = &self.runtime.meters;
        let _in_flight = meters.in_flight.hold(items.len());
        let began = Instant::now();
        let result = call(&tried.handling, items, context, self.runtime.config.handler_timeout).await;
        meters.handle_seconds.observe(began.elapsed().as_secs_f64());
        self.judge(tried, &result);
        result
    }

    /// Tells the circuit breaker whether the handler can work, by the result of a call.
    fn judge(&self, tried: &Tried, result: &CallResult) {
        let (breaker, consumer) = (&self.runtime.breaker, self.status.id);
        match (&result.interruption, result.returned.iter().find_map(unavailable)) {
            (None, Some((outcome, reason))) => {
                let tries = breaker.fails(consumer, tried, outcome);
                if self.runtime.until_empty.is_some() && tries.is_some_and(|tries| tries >= MOST_TRIES) {
                    let queue = &self.runtime.name;
                    let fix = match self.runtime.config.delivery {
                        Delivery::AtMostOnce => {
                            "its delivery is at-most-once, so items that were taken are lost at the end of the shutdown timeout; the queue keeps the others; \
                             fix that, then run this again"
                        }
                        _ => "the queue keeps its items; fix that, then run this again",
                    };
                    let text = format!("the handler of queue {queue:?} cannot work: {reason}; {fix}");
                    self.runtime.shutdown.stop.request(text);
                }
            }
            // A cancelled call proves nothing about the handler.
            (Some(Interruption::Cancelled), _) => {}
            _ => breaker.works(consumer),
        }
    }

    /// Logs that an item has expired, and that its handler is not called.
    fn log_expired(&self, item: &Item) {
        tracing::info!(
            event = "item_expired",
            queue = %self.runtime.name,
            item = %item.id,
            "item expired before its first attempt began"
        );
    }

    /// Measures how long new items have waited for the handler.
    fn begin(&self, items: &[Item]) {
        let now = Instant::now();
        for item in items.iter().filter(|item| is_new(item)) {
            if let Some(waited) = waited(item, &self.runtime.clock, now) {
                self.runtime.meters.start_seconds.observe(waited.as_secs_f64());
            }
        }
    }

    /// The span of a call: its item's, or the queue's if it has several items.
    fn span(&self, items: &[Item]) -> tracing::Span {
        span::of(&self.runtime.name, &self.runtime.config.handler, items)
    }
}

/// A consumer that handles a batch, perhaps as the trial of an open circuit breaker.
struct Trial<'a> {
    dispatcher: &'a Dispatcher,
    /// None if it is no trial.
    number: Option<u64>,
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.dispatcher.runtime.breaker.end(number);
        }
    }
}

/// The outcome of a handler that could not work, and the reason.
fn unavailable(outcome: &Outcome) -> Option<(&Outcome, &str)> {
    match outcome {
        Outcome::Unavailable(reason) | Outcome::UnavailableAfter(_, reason) => Some((outcome, reason)),
        _ => None,
    }
}

/// Whether this is the item's first attempt, and it never was a dead letter.
fn is_new(item: &Item) -> bool {
    item.attempt == 1 && item.meta.as_ref().is_none_or(|meta| meta.failures.is_empty() && meta.crashes == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Sample;

    #[test]
    fn pickup_latency_counts_only_first_attempts() {
        let [first, second] = [1, 2].map(|attempt| Sample::new("").attempt(attempt).build());
        assert!(is_new(&first) && !is_new(&second));
    }
}
