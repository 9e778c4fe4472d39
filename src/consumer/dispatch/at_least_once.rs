//! Items on a lease: at-least-once and exactly-once delivery.

use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use foundationdb::{FdbError, Transaction};
use kvqueue_queue::{Item, ItemOutcome, MAX_RESULT};
use tokio::time::sleep;
use tokio_util::future::FutureExt;
use tracing::{Instrument, Span};

use super::{Dispatcher, outcome};
use crate::{
    base::{
        clock,
        times::{between, whole_millis},
    },
    config::Delivery,
    consumer::{
        expiry::rest,
        lease::{CommitOutcome, LeaseHandle},
        sharing::{LeasedBatch, Lender},
    },
    handlers::{CallResult, Interruption, LeakedThread, Outcome, log_throttle},
    telemetry::span,
};

/// How often a handler runs again because its transaction did not commit.
pub(crate) const MAX_RUNS: u32 = 16;

/// A consumer pauses after its handler released an item, since its next fetch may get that item again.
const AFTER_RELEASE: Duration = Duration::from_millis(100);

/// By the items' indexes in the slice.
type Outcomes = Vec<(usize, ItemOutcome)>;

/// The end of one run of a handler with a transaction.
enum Run {
    /// Acknowledge these outcomes without the transaction.
    Acknowledge(Outcomes),
    /// All items are acknowledged, or the lease is lost.
    Over,
    /// Run the handler again in this transaction.
    Again(Transaction, FdbError),
}

/// The outcome of items whose transaction did not commit in [`MAX_RUNS`] runs, the last time for this reason.
pub(crate) fn not_committed(cause: Option<FdbError>) -> Outcome {
    let cause = cause.map(|cause| cause.to_string()).unwrap_or_default();
    Outcome::Retry(format!("its transaction did not commit in {MAX_RUNS} runs: {cause}"))
}

impl Dispatcher {
    /// Handles the items while the lease lasts. When the consumer stops, or the handler cannot work,
    /// the items that were not begun are released.
    pub(crate) async fn at_least_once(self, items: Vec<Item>, lease: LeaseHandle) {
        let _trial = self.trial();
        if self.handle_all(items, lease).await {
            let _ = sleep(AFTER_RELEASE).with_cancellation_token(&self.stop).await;
        }
    }

    /// Returns whether the handler released an item.
    async fn handle_all(&self, items: Vec<Item>, lease: LeaseHandle) -> bool {
        let size = self.items_of_a_call(items.len());
        let lends = items.len() > size && self.runtime.config.delivery != Delivery::ExactlyOnce;
        let batch = Arc::new(LeasedBatch::new(items, lease));
        let _lending = lends.then(|| self.runtime.sharing.add(&batch));
        let (items, lease) = (&batch.items, &batch.lease);
        let mut released = false;
        while !batch.remaining().items().is_empty() {
            if lease.is_lost() {
                return false;
            }
            if self.stop.is_cancelled() || self.runtime.breaker.holds_back(self.status.id) {
                self.release(batch.remaining().take(usize::MAX), lease);
                return false;
            }
            let Some(range) = batch.remaining().begin(size) else { break };
            let parts: Vec<_> = lease.open_parts(range).collect();
            for part in parts {
                for range in self.without_expired(items, part, lease).await {
                    self.begin(&items[range.clone()]);
                    let span = self.span(&items[range.clone()]);
                    released |= self.handle(items, range, lease).instrument(span).await;
                }
            }
        }
        released
    }

    /// Releases items that were not begun.
    fn release(&self, items: Range<usize>, lease: &LeaseHandle) {
        if items.is_empty() {
            return;
        }
        tracing::debug!(
            event = "items_released",
            queue = %self.runtime.name,
            items = items.len(),
            "items released"
        );
        items.for_each(|index| lease.acknowledge(index, ItemOutcome::Release));
    }

    /// The parts of a call that are left without items that have expired, which get an outcome here.
    async fn without_expired(
        &self,
        items: &[Item],
        range: Range<usize>,
        lease: &LeaseHandle,
    ) -> Vec<Range<usize>> {
        let (clock, lag) = (&self.runtime.clock, &self.runtime.meters.clock_lag);
        let expired = self.runtime.expiry.expired(&items[range.clone()], clock, lag).await;
        let indexes: Vec<_> = expired.iter().map(|(index, _)| range.start + index).collect();
        for (index, (_, outcome)) in indexes.iter().zip(expired) {
            self.log_expired(&items[*index]);
            lease.acknowledge(*index, outcome);
        }
        rest(range, indexes.into_iter())
    }

    /// Handles the items of one call. Returns whether the handler released one.
    async fn handle(&self, items: &[Item], range: Range<usize>, lease: &Arc<LeaseHandle>) -> bool {
        let outcomes = match self.runtime.config.delivery {
            Delivery::ExactlyOnce => self.transact(items, range, lease).await,
            Delivery::AtLeastOnce | Delivery::AtMostOnce => {
                let (token, _call) = lease.begin_call(&range);
                let result = self
                    .call(
                        &self.runtime.tried,
                        &items[range.clone()],
                        token,
                        (None, Some(lease.progress.clone())),
                    )
                    .await;
                self.outcomes(items, range, result, lease)
            }
        };
        // Also true if all items of the lease are acknowledged already; then there are no outcomes.
        if lease.is_lost() {
            if !outcomes.is_empty() {
                span::outcome(Span::current, "lost");
            }
            return false;
        }
        let is_released =
            |(index, outcome): &(_, _)| *outcome == ItemOutcome::Release && !lease.is_cancelled(*index);
        let released = outcomes.iter().any(is_released);
        for (index, outcome) in outcomes {
            match lease.is_cancelled(index) {
                true => span::outcome(Span::current, "cancelled"),
                false => log(&items[index], &outcome),
            }
            lease.acknowledge(index, outcome);
        }
        released
    }

    /// Exactly-once: runs the handler until its transaction has committed or must not commit. Returns
    /// the outcomes that are not acknowledged yet.
    async fn transact(&self, items: &[Item], range: Range<usize>, lease: &Arc<LeaseHandle>) -> Outcomes {
        let Ok(mut transaction) = lease.begin().await else {
            span::outcome(Span::current, "lost");
            return Vec::new();
        };
        let mut refused = None;
        for _ in 0..MAX_RUNS {
            if lease.cancelled.is_cancelled() || lease.has_cancelled(&range) {
                return range.map(|index| (index, ItemOutcome::Release)).collect();
            }
            match self.run(items, range.clone(), lease, transaction).await {
                Run::Acknowledge(outcomes) => return outcomes,
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
        self.all_same(items, range, &not_committed(refused))
    }

    async fn run(
        &self,
        items: &[Item],
        range: Range<usize>,
        lease: &Arc<LeaseHandle>,
        transaction: Transaction,
    ) -> Run {
        let transaction = Arc::new(transaction);
        let (token, call) = lease.begin_call(&range);
        let result = self
            .call(
                &self.runtime.tried,
                &items[range.clone()],
                token,
                (Some(transaction.clone()), Some(lease.progress.clone())),
            )
            .await;
        drop(call);
        let outcomes = self.outcomes(items, range.clone(), result, lease);
        if outcomes.iter().all(|(_, outcome)| !outcome.is_done()) {
            return Run::Acknowledge(outcomes);
        }
        let Some(transaction) = Arc::into_inner(transaction) else {
            // A handler that has returned has no reference to it; one that has not has no outcome Done.
            let outcome = Outcome::retry("its transaction is still in use");
            return Run::Acknowledge(self.all_same(items, range, &outcome));
        };
        match lease.commit(transaction, outcomes.clone()).await {
            Ok(CommitOutcome::Committed) => {
                outcomes.iter().for_each(|(index, outcome)| log(&items[*index], outcome));
                Run::Over
            }
            // The other items of the call are released: what the handler did about them was not stored.
            Ok(CommitOutcome::Cancelled) => {
                Run::Acknowledge(range.map(|index| (index, ItemOutcome::Release)).collect())
            }
            Ok(CommitOutcome::Retry(transaction, cause)) => Run::Again(transaction, cause),
            Ok(CommitOutcome::Refused(cause)) => {
                let outcome = Outcome::Retry(format!("the database refused its transaction: {cause}"));
                Run::Acknowledge(self.all_same(items, range, &outcome))
            }
            Err(_lost) => {
                span::outcome(Span::current, "lost");
                Run::Over
            }
        }
    }

    /// The outcomes of a call; none yet if the handler blocks its thread.
    fn outcomes(
        &self,
        items: &[Item],
        range: Range<usize>,
        mut result: CallResult,
        lease: &Arc<LeaseHandle>,
    ) -> Outcomes {
        match (result.leaked_thread.take(), &result.interruption) {
            (None, _) => self.returned(items, range, result),
            (Some(leaked_thread), Some(Interruption::TimeUp(_))) => {
                self.keep(items, range, result, leaked_thread, lease);
                Vec::new()
            }
            (Some(leaked_thread), _) => {
                tracing::error!(
                    event = "handler_not_stopped",
                    "the handler did not stop when it was cancelled"
                );
                // An item was cancelled, and the lease goes on.
                if lease.has_cancelled(&range) && !lease.cancelled.is_cancelled() {
                    self.keep(items, range, result, leaked_thread, lease);
                }
                Vec::new()
            }
        }
    }

    /// The outcomes that the handler returned.
    fn returned(&self, items: &[Item], range: Range<usize>, result: CallResult) -> Outcomes {
        let outcomes = result.outcomes(range.len(), &Outcome::Release);
        range.zip(outcomes).map(|(index, outcome)| (index, self.outcome(&items[index], outcome))).collect()
    }

    /// Extends the lease of items whose handler blocks its thread after its time limit, until the
    /// handler returns: nothing else may handle the items meanwhile. The consumer goes on with other
    /// items. A stop waits for the handler until the shutdown timeout.
    fn keep(
        &self,
        items: &[Item],
        range: Range<usize>,
        result: CallResult,
        leaked_thread: LeakedThread,
        lease: &Arc<LeaseHandle>,
    ) {
        tracing::error!(
            event = "handler_overdue",
            "the handler blocks its thread after its time limit, or after its item was cancelled; its lease is extended until it returns"
        );
        lease.leave(range.clone());
        let (this, items, lease) = (self.clone(), items.to_vec(), lease.clone());
        let kept = async move {
            let began = Instant::now();
            let _in_flight = this.runtime.meters.in_flight.hold(range.len());
            let Some(returned) = lease.cancelled.run_until_cancelled(leaked_thread.returned()).await else {
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
            for (index, outcome) in this.returned(&items, range, CallResult { returned, ..result }) {
                log(&items[index], &outcome);
                lease.acknowledge(index, outcome);
            }
        };
        self.runtime.work.spawn(kept.in_current_span());
    }

    /// The same outcome for all items of a call.
    fn all_same(&self, items: &[Item], range: Range<usize>, outcome: &Outcome) -> Outcomes {
        range.map(|index| (index, self.outcome(&items[index], outcome.clone()))).collect()
    }

    fn outcome(&self, item: &Item, outcome: Outcome) -> ItemOutcome {
        log_throttle(item, &outcome);
        outcome::of(outcome, item, &self.runtime.retry, clock::now(), clock::random)
    }
}

/// Logs an outcome in the item's span.
fn log(item: &Item, outcome: &ItemOutcome) {
    span::outcome(Span::current, outcome::name(outcome));
    let is_named = span::names_item();
    let attempt = (!is_named).then_some(item.attempt);
    let item = (!is_named).then_some(tracing::field::display(&item.id));
    match outcome {
        ItemOutcome::Done | ItemOutcome::Expired { .. } => {}
        ItemOutcome::DoneWith(result) if result.len() > MAX_RESULT => {
            tracing::warn!(
                event = "result_too_long",
                item,
                attempt,
                most_bytes = MAX_RESULT,
                "the result of the item is too long and not kept; the item is done"
            );
        }
        ItemOutcome::DoneWith(_) => {}
        ItemOutcome::Release | ItemOutcome::Postpone { .. } | ItemOutcome::Throttle { .. } => {
            tracing::debug!(event = "item_released", item, attempt, "item released");
        }
        ItemOutcome::Retry { due, failure } => {
            let pause_ms = due.map_or(0, |due| whole_millis(between(failure.at, due)));
            tracing::warn!(
                event = "item_failed",
                item,
                attempt,
                pause_ms,
                reason = failure.reason,
                "item failed; it will be retried"
            );
        }
        ItemOutcome::Dead(failure) => {
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
