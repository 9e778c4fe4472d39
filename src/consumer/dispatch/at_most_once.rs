//! At-most-once delivery: the items have left the queue, so all of them are handled, and an item that
//! fails is lost.

use std::{sync::Arc, time::Duration};

use kvqueue_queue::Item;
use tokio::time::sleep;
use tokio_util::future::FutureExt;
use tracing::{Instrument, Span};

use super::Dispatcher;
use crate::{
    consumer::{claimed::Batch, expiry::rest, sharing::Lender, status::ConsumerState},
    handlers::{LONGEST_THROTTLE, Outcome, log_throttle},
    telemetry::span,
};

impl Dispatcher {
    /// Handles the items. After the shutdown timeout the rest is lost.
    pub(crate) async fn at_most_once(self, batch: Batch) {
        let size = self.items_of_a_call(batch.items().len());
        let batch = Arc::new(batch);
        let _lending = (batch.items().len() > size).then(|| self.runtime.sharing.add(&batch));
        while !self.runtime.shutdown.drain_timed_out.is_cancelled() {
            let Some(range) = batch.remaining().begin(size) else { break };
            let items = &batch.items()[range];
            let (clock, lag) = (&self.runtime.clock, &self.runtime.meters.clock_lag);
            let expired = self.runtime.expiry.expired(items, clock, lag).await;
            for (index, _) in &expired {
                self.log_expired(&items[*index]);
                self.runtime.meters.expired.inc();
            }
            for part in rest(0..items.len(), expired.into_iter().map(|(index, _)| index)) {
                let items = &items[part];
                self.begin(items);
                let span = self.span(items);
                self.see_through(items).instrument(span).await;
            }
        }
        self.runtime.shutdown.leave_behind(batch.remaining().items().len());
    }

    /// Handles the items of one call. While the handler cannot work, its items wait here, until it can
    /// work again, a reload brings another handler, or the shutdown timeout is over.
    async fn see_through(&self, items: &[Item]) {
        let mut rest = items.to_vec();
        let mut tried = self.runtime.tried.clone();
        let (mut unavailable, mut pause) = (None, Duration::ZERO);
        while !rest.is_empty() {
            if self.admitted(std::mem::take(&mut pause)).await.is_none() {
                let reason = unavailable.as_deref().unwrap_or("the handler cannot work");
                rest.iter().for_each(|item| self.lose(item, reason));
                return;
            }
            let _trial = self.trial();
            let called: Vec<Item> = rest.drain(..tried.handling.items_of_a_call(rest.len())).collect();
            let token = self.runtime.shutdown.drain_timed_out.child_token();
            let result = self.call(&tried, &called, token, (None, None)).await;
            if result.leaked_thread.is_some() {
                tracing::error!(
                    event = "handler_not_stopped",
                    "the handler did not stop when it was cancelled"
                );
            }
            let cancelled = Outcome::retry("the shutdown timeout was over");
            let outcomes = result.outcomes(called.len(), &cancelled);
            for (item, outcome) in called.into_iter().zip(outcomes) {
                log_throttle(&item, &outcome);
                match outcome {
                    Outcome::Done | Outcome::DoneWith(_) => {
                        self.runtime.meters.done.inc();
                        span::outcome(Span::current, "done");
                    }
                    Outcome::Unavailable(reason) | Outcome::UnavailableAfter(_, reason) => {
                        rest.push(item);
                        unavailable = Some(reason);
                    }
                    Outcome::Throttle { wait, reason, .. } => {
                        pause = pause.max(wait.min(LONGEST_THROTTLE));
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
                tried = self.runtime.breaker.newest().unwrap_or(tried);
            }
        }
    }

    /// Waits for `pause`, and until this consumer may call the handler; `None` if the shutdown timeout comes first.
    async fn admitted(&self, pause: Duration) -> Option<()> {
        let (breaker, status) = (&self.runtime.breaker, &self.status);
        if pause.is_zero() && !breaker.holds_back(status.id) {
            return Some(());
        }
        let drain_timed_out = &self.runtime.shutdown.drain_timed_out;
        status.set(ConsumerState::Unavailable);
        sleep(pause).with_cancellation_token(drain_timed_out).await?;
        breaker.admit(status.id).with_cancellation_token(drain_timed_out).await?;
        status.set(ConsumerState::Handling);
        Some(())
    }

    /// An item was not handled and exists nowhere else.
    fn lose(&self, item: &Item, reason: &str) {
        self.runtime.meters.lost.inc();
        span::outcome(Span::current, "lost");
        if self.runtime.shutdown.drain_timed_out.is_cancelled() {
            self.runtime.shutdown.leave_behind(1);
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
