//! Items on a lease.

use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use foundationdb::{FdbError, Transaction};
use kvqueue_queue::{Item, ItemOutcome as Settlement, millis};
use tokio::time::sleep;
use tokio_util::future::FutureExt;
use tracing::{Instrument, Span};

use super::{Dispatcher, settlement};
use crate::{
    config::Delivery,
    consumer::{
        ambient,
        holder::{Holding, Verdict},
    },
    handlers::{Cut, Ended, Outcome, Running},
    telemetry::span,
};

/// How often a handler is run in a row because its transaction did not commit.
const MAX_RUNS: u32 = 16;

/// How long a consumer rests whose handler gave something back: the next take may well get it again, and so on.
const AFTER_RELEASE: Duration = Duration::from_millis(100);

/// What is to be settled, by the items' indexes.
type Settlements = Vec<(usize, Settlement)>;

/// How a run of a handler with a transaction ended.
enum Run {
    /// With this to be settled, apart from any transaction.
    Settle(Settlements),
    /// Settled, or lost.
    Over,
    /// It has to be run again, in this transaction, because of this.
    Again(Transaction, FdbError),
}

impl Dispatcher {
    /// Handles the items for as long as the lease is held. Those that are not begun when the consumer is to stop, or the handler cannot
    /// work, are given back.
    pub(crate) async fn leased(self, items: Vec<Item>, holding: Holding) {
        let holding = Arc::new(holding);
        let _trial = self.trial();
        let mut released = false;
        for range in self.calls(items.len()) {
            if holding.is_lost() {
                return;
            }
            if self.stop.is_cancelled() || self.source.breaker.holds_back(self.status.id) {
                (range.start..items.len()).for_each(|index| holding.settle(index, Settlement::Release));
                tracing::debug!(
                    event = "items_released",
                    queue = %self.source.name,
                    items = items.len() - range.start,
                    "items released"
                );
                return;
            }
            self.begin(&items[range.clone()]);
            let span = self.span(&items[range.clone()]);
            released |= self.handle(&items, range, &holding).instrument(span).await;
        }
        drop(holding);
        if released {
            let _ = sleep(AFTER_RELEASE).with_cancellation_token(&self.stop).await;
        }
    }

    /// Handles the items of one call. Returns whether the handler gave one back.
    async fn handle(&self, items: &[Item], range: Range<usize>, holding: &Arc<Holding>) -> bool {
        let settlements = match self.source.delivery {
            Delivery::ExactlyOnce => self.transact(items, range, holding).await,
            Delivery::AtLeastOnce | Delivery::AtMostOnce => {
                let ended =
                    self.call(&self.source.tried, &items[range.clone()], &holding.cancelled, None).await;
                self.settlements(items, range, ended, holding)
            }
        };
        // One that has nothing left to hold is gone, too.
        if holding.is_lost() {
            if !settlements.is_empty() {
                span::outcome(Span::current, "lost");
            }
            return false;
        }
        let released = settlements.iter().any(|(_, settlement)| *settlement == Settlement::Release);
        for (index, settlement) in settlements {
            log(&items[index], &settlement);
            holding.settle(index, settlement);
        }
        released
    }

    /// Exactly-once: runs the handler until its transaction has committed, or is not to. Returns what is left to be settled.
    async fn transact(&self, items: &[Item], range: Range<usize>, holding: &Arc<Holding>) -> Settlements {
        let Ok(mut transaction) = holding.begin().await else {
            span::outcome(Span::current, "lost");
            return Vec::new();
        };
        let mut refused = None;
        for _ in 0..MAX_RUNS {
            if holding.cancelled.is_cancelled() {
                return range.map(|index| (index, Settlement::Release)).collect();
            }
            match self.run(items, range.clone(), holding, transaction).await {
                Run::Settle(settlements) => return settlements,
                Run::Over => return Vec::new(),
                Run::Again(next, cause) => {
                    tracing::debug!(
                        event = "transaction_retried",
                        %cause,
                        "the transaction did not commit; the handler runs again"
                    );
                    (transaction, refused) = (next, Some(cause));
                }
            }
        }
        let cause = refused.map(|cause| cause.to_string()).unwrap_or_default();
        let outcome = Outcome::Retry(format!("its transaction did not commit in {MAX_RUNS} runs: {cause}"));
        self.alike(items, range, &outcome)
    }

    async fn run(
        &self,
        items: &[Item],
        range: Range<usize>,
        holding: &Arc<Holding>,
        transaction: Transaction,
    ) -> Run {
        let transaction = Arc::new(transaction);
        let ended = self
            .call(&self.source.tried, &items[range.clone()], &holding.cancelled, Some(transaction.clone()))
            .await;
        let settlements = self.settlements(items, range.clone(), ended, holding);
        if settlements.iter().all(|(_, settlement)| *settlement != Settlement::Done) {
            return Run::Settle(settlements);
        }
        let Some(transaction) = Arc::into_inner(transaction) else {
            // A handler that has ended has no share in it any more, and one that has not says nothing is done.
            let outcome = Outcome::retry("its transaction is still in use");
            return Run::Settle(self.alike(items, range, &outcome));
        };
        match holding.commit(transaction, settlements.clone()).await {
            Ok(Verdict::Settled) => {
                settlements.iter().for_each(|(index, settlement)| log(&items[*index], settlement));
                Run::Over
            }
            Ok(Verdict::Again(transaction, cause)) => Run::Again(transaction, cause),
            Ok(Verdict::Refused(cause)) => {
                let outcome = Outcome::Retry(format!("the database refused its transaction: {cause}"));
                Run::Settle(self.alike(items, range, &outcome))
            }
            Err(_lost) => {
                span::outcome(Span::current, "lost");
                Run::Over
            }
        }
    }

    /// What becomes of the items of a call. Nothing yet if their handler blocks its thread.
    fn settlements(
        &self,
        items: &[Item],
        range: Range<usize>,
        mut ended: Ended,
        holding: &Arc<Holding>,
    ) -> Settlements {
        match (ended.running.take(), &ended.cut) {
            (None, _) => self.said(items, range, ended),
            (Some(running), Some(Cut::TimeUp(_))) => {
                self.keep(items, range, ended, running, holding);
                Vec::new()
            }
            (Some(_), _) => {
                tracing::error!(
                    event = "handler_not_stopped",
                    "the handler did not stop when it was cancelled"
                );
                Vec::new()
            }
        }
    }

    /// What the handler said of each item.
    fn said(&self, items: &[Item], range: Range<usize>, ended: Ended) -> Settlements {
        let outcomes = ended.outcomes(range.len(), &Outcome::Release);
        range.zip(outcomes).map(|(index, outcome)| (index, self.settlement(&items[index], outcome))).collect()
    }

    /// Keeps the lease of items whose handler blocks its thread after its time is up, until it returns: nobody else may handle them
    /// meanwhile. The consumer goes on with others. A stop waits for the handler as long as the shutdown timeout lasts.
    fn keep(
        &self,
        items: &[Item],
        range: Range<usize>,
        ended: Ended,
        running: Running,
        holding: &Arc<Holding>,
    ) {
        tracing::error!(
            event = "handler_overdue",
            "the handler blocks its thread after its time limit; its lease is extended until it returns"
        );
        holding.leave(range.clone());
        let (this, items, holding) = (self.clone(), items.to_vec(), holding.clone());
        let kept = async move {
            let began = Instant::now();
            let _in_flight = this.source.meters.in_flight.hold(range.len());
            let Some(said) = holding.cancelled.run_until_cancelled(running.returned()).await else {
                tracing::error!(
                    event = "handler_not_stopped",
                    "the handler did not stop when it was cancelled"
                );
                return;
            };
            tracing::warn!(
                event = "handler_returned",
                overdue_ms = began.elapsed().as_millis(),
                "the overdue handler has returned"
            );
            for (index, settlement) in this.said(&items, range, Ended { said, ..ended }) {
                log(&items[index], &settlement);
                holding.settle(index, settlement);
            }
        };
        self.source.work.spawn(kept.in_current_span());
    }

    /// The same for all items of a call.
    fn alike(&self, items: &[Item], range: Range<usize>, outcome: &Outcome) -> Settlements {
        range.map(|index| (index, self.settlement(&items[index], outcome.clone()))).collect()
    }

    fn settlement(&self, item: &Item, outcome: Outcome) -> Settlement {
        let random = if outcome == Outcome::Done { 0 } else { ambient::random() };
        settlement::of(outcome, item.attempt, &self.source.retry, ambient::now(), random)
    }
}

/// In the item's span.
fn log(item: &Item, settlement: &Settlement) {
    span::outcome(Span::current, settlement::name(settlement));
    let is_named = span::names_item();
    let attempt = (!is_named).then_some(item.attempt);
    let item = (!is_named).then_some(tracing::field::display(&item.id));
    match settlement {
        Settlement::Done => {}
        Settlement::Release => tracing::debug!(event = "item_released", item, attempt, "item released"),
        Settlement::Retry { due, failure } => {
            let pause_ms = due.map_or(0, |due| millis(due).saturating_sub(failure.at));
            tracing::warn!(
                event = "item_failed",
                item,
                attempt,
                pause_ms,
                reason = failure.reason,
                "item failed; it will be retried"
            );
        }
        Settlement::Dead(failure) => {
            tracing::error!(
                event = "item_dead",
                item,
                attempt,
                reason = failure.reason,
                "item failed for good; it is now a dead letter"
            );
        }
    }
}
