//! At-most-once: the items have left the queue, so all of them are handled, and what fails is gone.

use kvqueue_queue::Item;
use tokio_util::future::FutureExt;
use tracing::{Instrument, Span};

use super::Dispatcher;
use crate::{consumer::batch::Batch, handlers::Outcome, status::ConsumerState, telemetry::span};

impl Dispatcher {
    /// Handles the items. After the shutdown timeout the rest is given up.
    pub(crate) async fn taken(self, mut batch: Batch) {
        let _trial = self.trial();
        for range in self.calls(batch.items().len()) {
            if self.source.signals.drain_timed_out.is_cancelled() {
                break;
            }
            batch.begin(range.end);
            let items = &batch.items()[range];
            self.begin(items);
            let span = self.span(items);
            self.see_through(items).instrument(span).await;
        }
        self.source.signals.leave_behind(batch.not_begun());
    }

    /// Handles the items of one call. Those that the handler cannot handle now stay with this consumer until it can, or the one that a
    /// reload brought can, or until the shutdown timeout is over.
    async fn see_through(&self, items: &[Item]) {
        let mut rest = items.to_vec();
        let mut tried = self.source.tried.clone();
        let mut unavailable = None;
        while !rest.is_empty() {
            if self.admitted().await.is_none() {
                let reason = unavailable.as_deref().unwrap_or("the handler cannot work");
                rest.iter().for_each(|item| self.lose(item, reason));
                return;
            }
            let called: Vec<Item> = rest.drain(..tried.handling.items_of_a_call(rest.len())).collect();
            let ended = self.call(&tried, &called, &self.source.signals.drain_timed_out, None).await;
            if ended.running.is_some() {
                tracing::error!(
                    event = "handler_not_stopped",
                    "the handler did not stop when it was cancelled"
                );
            }
            let cancelled = Outcome::retry("the shutdown timeout was over");
            let outcomes = ended.outcomes(called.len(), &cancelled);
            for (item, outcome) in called.into_iter().zip(outcomes) {
                match outcome {
                    Outcome::Done => {
                        self.source.meters.done.inc();
                        span::outcome(Span::current, "done");
                    }
                    Outcome::Unavailable(reason) => {
                        rest.push(item);
                        unavailable = Some(reason);
                    }
                    Outcome::Retry(reason) | Outcome::RetryAfter(_, reason) | Outcome::Dead(reason) => {
                        self.lose(&item, &reason);
                    }
                    Outcome::Release => self.lose(&item, "the handler gave it back"),
                }
            }
            if unavailable.is_some() {
                tried = self.source.breaker.newest().unwrap_or(tried);
            }
        }
    }

    /// Waits until this consumer may call the handler; none if the shutdown timeout is over before that.
    async fn admitted(&self) -> Option<()> {
        let (breaker, status) = (&self.source.breaker, &self.status);
        if !breaker.holds_back(status.id) {
            return Some(());
        }
        status.set(ConsumerState::Unavailable);
        breaker.admit(status.id).with_cancellation_token(&self.source.signals.drain_timed_out).await?;
        status.set(ConsumerState::Handling);
        Some(())
    }

    /// An item was not handled, and is nowhere else.
    fn lose(&self, item: &Item, reason: &str) {
        self.source.meters.lost.inc();
        span::outcome(Span::current, "lost");
        if self.source.signals.drain_timed_out.is_cancelled() {
            self.source.signals.leave_behind(1);
        }
        let item = (!span::names_item()).then_some(tracing::field::display(&item.id));
        tracing::warn!(
            event = "item_lost",
            item,
            reason,
            "item failed and is lost, because its delivery is at-most-once"
        );
    }
}
