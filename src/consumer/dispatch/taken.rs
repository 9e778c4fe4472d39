//! At-most-once: the items have left the queue, so all of them are handled, and what fails is gone.

use tracing::Instrument;

use super::Dispatcher;
use crate::{consumer::batch::Batch, handlers::Outcome, telemetry::span};

impl Dispatcher {
    /// Handles the items. After the grace of a stop the rest is given up.
    pub(crate) async fn taken(self, mut batch: Batch) {
        for range in self.calls(batch.items().len()) {
            if self.source.signals.grace_over.is_cancelled() {
                break;
            }
            batch.begin(range.end);
            let items = &batch.items()[range];
            self.begin(items);
            let span = self.span(items);
            let ended =
                self.call(items, &self.source.signals.grace_over, None).instrument(span.clone()).await;
            if ended.running.is_some() {
                span.in_scope(|| tracing::error!(event = "handler-overdue", "the handler does not stop"));
            }
            let cancelled = Outcome::retry("the grace of a stop was over");
            let outcomes = ended.outcomes(items.len(), &cancelled);
            for (item, outcome) in items.iter().zip(outcomes) {
                let Some(reason) = failure(outcome) else {
                    self.source.meters.done.inc();
                    span::outcome(|| span.clone(), "done");
                    continue;
                };
                self.source.meters.lost.inc();
                span::outcome(|| span.clone(), "lost");
                if self.source.signals.grace_over.is_cancelled() {
                    self.source.signals.leave_behind(1);
                }
                span.in_scope(|| {
                    tracing::warn!(item = %item.id, reason, "item failed, and is gone: its delivery is at-most-once");
                });
            }
        }
        self.source.signals.leave_behind(batch.not_begun());
    }
}

/// Why an item was not handled.
fn failure(outcome: Outcome) -> Option<String> {
    match outcome {
        Outcome::Done => None,
        Outcome::Retry(reason) | Outcome::RetryAfter(_, reason) | Outcome::Dead(reason) => Some(reason),
        Outcome::Release => Some("the handler gave it back".to_owned()),
    }
}
