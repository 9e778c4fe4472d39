//! A batch to the handler, in the order of the queue: one item after the other, or all together.
//!
//! | file | role |
//! |---|---|
//! | `leased` | items on a lease: what is said of them is settled; with exactly-once delivery in the handler's transaction |
//! | `taken` | at-most-once: items that have left the queue |
//! | `settlement` | what becomes of an item, from what its handler said |
//! | `waits` | how long an item has waited for its first attempt |
//!
//! Dispatchers run on the handlers' pool, where handing over an item costs little. One call of a handler, with its time limit and the
//! boundary that panics do not cross, is `handlers::call`.

mod leased;
mod settlement;
mod taken;
mod waits;

use std::{ops::Range, sync::Arc, time::Instant};

use foundationdb::Transaction;
use kvqueue_queue::Item;
use tokio_util::sync::CancellationToken;

use super::{breaker::Tried, source::Source};
use crate::{
    config::Delivery,
    handlers::{Context, Cut, Ended, Outcome, call},
    status::ConsumerStatus,
    telemetry::span,
};

/// With `--until-empty`, the daemon stops with an error after so many tries in a row in which a handler could not work: 6 s.
const MOST_TRIES: u32 = 7;

/// Who dispatches.
#[derive(Clone, Debug)]
pub(crate) struct Dispatcher {
    pub(crate) source: Arc<Source>,
    /// The consumer's.
    pub(crate) status: Arc<ConsumerStatus>,
    /// Fires when the consumer is to stop: items on a lease that are not begun are given back.
    pub(crate) stop: CancellationToken,
}

impl Dispatcher {
    /// The items of each call, by their indexes.
    fn calls(&self, items: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let size = self.source.tried.handling.items_of_a_call(items).max(1);
        (0..items).step_by(size).map(move |first| first..first + size)
    }

    /// Ends this consumer's trial of a handler that could not work, when it is dropped.
    fn trial(&self) -> Trial<'_> {
        Trial(self)
    }

    /// Calls a handler once.
    async fn call(
        &self,
        tried: &Tried,
        items: &[Item],
        cancelled: &CancellationToken,
        transaction: Option<Arc<Transaction>>,
    ) -> Ended {
        let items: Arc<[Item]> = items.into();
        self.status.called(items.clone());
        let context = Context {
            queue: self.source.name.clone(),
            consumer: self.status.id,
            deadline: None,
            cancelled: cancelled.child_token(),
            transaction,
            stop: self.source.signals.stop.clone(),
            breaker: Some(self.source.breaker.clone()),
            clock: Some(self.source.clock.clone()),
        };
        let meters = &self.source.meters;
        let _in_flight = meters.in_flight.hold(items.len());
        let began = Instant::now();
        let ended = call(&tried.handling, items, context, self.source.timeout).await;
        meters.handle_seconds.observe(began.elapsed());
        self.judge(tried, &ended);
        ended
    }

    /// Whether the handler can work, from how a call ended.
    fn judge(&self, tried: &Tried, ended: &Ended) {
        let (breaker, consumer) = (&self.source.breaker, self.status.id);
        match (&ended.cut, ended.said.iter().find_map(unavailable)) {
            (None, Some(reason)) => {
                let tries = breaker.fails(consumer, tried, reason);
                if self.source.until_empty.is_some() && tries.is_some_and(|tries| tries >= MOST_TRIES) {
                    let queue = &self.source.name;
                    let fix = match self.source.delivery {
                        Delivery::AtMostOnce => {
                            "its delivery is at-most-once, so items that were taken are lost at the end of the shutdown timeout; the queue keeps the others; \
                             fix that, then run this again"
                        }
                        _ => "the queue keeps its items; fix that, then run this again",
                    };
                    let text = format!("the handler of queue {queue:?} cannot work: {reason}; {fix}");
                    self.source.signals.stop.request(text);
                }
            }
            // That says nothing of the handler.
            (Some(Cut::Cancelled), _) => {}
            _ => breaker.works(consumer),
        }
    }

    /// These items go to the handler for the first time in this attempt: of those whose first attempt it is, it is noted how long they waited.
    fn begin(&self, items: &[Item]) {
        let now = Instant::now();
        for item in items.iter().filter(|item| waits::is_new(item)) {
            if let Some(waited) = waits::waited(item, &self.source.clock, now) {
                self.source.meters.start_seconds.observe(waited);
            }
        }
    }

    /// What is logged in a call belongs to its item; or, of several, to the queue.
    fn span(&self, items: &[Item]) -> tracing::Span {
        span::of(&self.source.name, &self.source.handler, items)
    }
}

/// A consumer that handles a batch, which may be the trial of its queue's breaker.
struct Trial<'a>(&'a Dispatcher);

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        self.0.source.breaker.leave(self.0.status.id);
    }
}

/// Why a handler could not work.
fn unavailable(outcome: &Outcome) -> Option<&str> {
    match outcome {
        Outcome::Unavailable(reason) => Some(reason),
        _ => None,
    }
}
