//! One call of a handler: in a task of its own, with a time limit, behind a boundary that panics do
//! not cross.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use kvqueue_queue::Item;
use tokio::{
    task::JoinError,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::Instrument;

use super::{AnyHandler, Context, Outcome};
use crate::telemetry::panic_text;

/// How long a handler that is cancelled may go on before it is dropped.
pub(crate) const ABORT_DELAY: Duration = Duration::from_secs(1);

/// How long dropping the handler takes at most, unless it blocks its thread.
const DROP_TIMEOUT: Duration = Duration::from_millis(250);

/// The result of one call.
#[derive(Debug)]
pub(crate) struct CallResult {
    /// The outcomes that the handler returned, in the order of the items.
    pub(crate) returned: Vec<Outcome>,
    /// Why the call ended before the handler returned.
    pub(crate) interruption: Option<Interruption>,
    /// The handler was dropped but blocks its thread, so it goes on.
    pub(crate) leaked_thread: Option<LeakedThread>,
}

/// A handler that blocks its thread, so that it cannot be stopped.
#[derive(Debug)]
pub(crate) struct LeakedThread(AbortOnDropHandle<Vec<Outcome>>);

impl LeakedThread {
    /// Waits until the handler returns, for its outcomes in the order of the items. There are none
    /// if it panicked, or was dropped when it did not block its thread any more.
    pub(crate) async fn returned(self) -> Vec<Outcome> {
        self.0.await.unwrap_or_default()
    }
}

/// Why a call ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// The time limit.
    TimeUp(Duration),
    /// The caller cancelled its token.
    Cancelled,
    /// The handler panicked with this message.
    Panicked(String),
}

/// Calls the handler and waits for its end. A handler of single items gets one item. Dropping the
/// call drops the handler's future.
///
/// The context's `deadline` and `limit` are set here. Its `cancelled` should be a child of the
/// token by which the caller cancels.
pub(crate) async fn call(
    handling: &AnyHandler,
    items: Arc<[Item]>,
    mut context: Context,
    limit: Option<Duration>,
) -> CallResult {
    context.deadline = limit.map(|limit| Instant::now() + limit);
    context.limit = limit;
    let limit = handling.limit(limit);
    let cancelled = context.cancelled.clone();
    let handling = handling.clone();
    let handled = async move { handling.handle(&items, &context).await };
    let mut task = AbortOnDropHandle::new(tokio::spawn(handled.in_current_span()));
    let interruption = tokio::select! {
        // First, because an outcome of a cancelled handler is not the reason of its end.
        biased;
        () = cancelled.cancelled() => Interruption::Cancelled,
        done = &mut task => return CallResult::of(done).unless(&cancelled),
        limit = time_up(limit) => Interruption::TimeUp(limit),
    };
    cancelled.cancel();
    // The handler may still return. Its panic would only be a consequence of the interruption.
    let mut done = timeout(ABORT_DELAY, &mut task).await;
    if done.is_err() {
        task.abort();
        done = timeout(DROP_TIMEOUT, &mut task).await;
    }
    let leaked_thread = done.is_err().then(|| LeakedThread(task));
    let returned = done.ok().and_then(Result::ok).unwrap_or_default();
    CallResult { returned, interruption: Some(interruption), leaked_thread }
}

/// Resolves at the end of the time limit.
async fn time_up(limit: Option<Duration>) -> Duration {
    match limit {
        Some(limit) => {
            sleep(limit).await;
            limit
        }
        None => std::future::pending().await,
    }
}

impl AnyHandler {
    async fn handle(&self, items: &[Item], context: &Context) -> Vec<Outcome> {
        match self {
            Self::Batch(handler) => handler.handle(items, context).await,
            Self::Each(handler) => {
                let mut outcomes = Vec::with_capacity(items.len());
                for item in items {
                    outcomes.push(handler.handle(item, context).await);
                }
                outcomes
            }
        }
    }
}

impl CallResult {
    fn of(done: Result<Vec<Outcome>, JoinError>) -> Self {
        match done.map_err(JoinError::try_into_panic) {
            Ok(returned) => Self { returned, interruption: None, leaked_thread: None },
            Err(Ok(panic)) => Self::interrupted(Interruption::Panicked(panic_text(&*panic).to_owned())),
            // Only the end of the runtime cancels a task that is awaited.
            Err(Err(_)) => Self::interrupted(Interruption::Cancelled),
        }
    }

    /// A cancelled handler may return before this function sees the cancellation.
    fn unless(self, cancelled: &CancellationToken) -> Self {
        match self.interruption {
            None if cancelled.is_cancelled() => Self { interruption: Some(Interruption::Cancelled), ..self },
            _ => self,
        }
    }

    fn interrupted(interruption: Interruption) -> Self {
        Self { returned: Vec::new(), interruption: Some(interruption), leaked_thread: None }
    }

    /// The outcome of each item: the one that the handler returned, or `cancelled` if the call was
    /// cancelled first.
    ///
    /// After an interruption only the outcomes `Done` and `Dead` count. Any other may be a
    /// consequence of the interruption.
    pub(crate) fn outcomes(self, items: usize, cancelled: &Outcome) -> Vec<Outcome> {
        let otherwise = match &self.interruption {
            None => missing_outcome(),
            Some(Interruption::TimeUp(limit)) => Outcome::Retry(time_up_reason(*limit)),
            Some(Interruption::Cancelled) => cancelled.clone(),
            Some(Interruption::Panicked(text)) => Outcome::Retry(format!("the handler panicked: {text}")),
        };
        let was_interrupted = self.interruption.is_some();
        let counts =
            |outcome: &Outcome| !was_interrupted || outcome.is_done() || matches!(outcome, Outcome::Dead(_));
        let returned = self.returned.into_iter().map(Some).chain(std::iter::repeat(None)).take(items);
        returned.map(|outcome| outcome.filter(counts).unwrap_or_else(|| otherwise.clone())).collect()
    }
}

/// Why an item failed whose time is up.
pub(crate) fn time_up_reason(limit: Duration) -> String {
    format!("not done after {} ms (handler-timeout)", limit.as_millis())
}

/// The outcome of an item for which the handler returned none.
pub(crate) fn missing_outcome() -> Outcome {
    Outcome::retry("the handler returned no outcome for it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(returned: &[Outcome], interruption: Option<Interruption>) -> Vec<Outcome> {
        CallResult { returned: returned.to_vec(), interruption, leaked_thread: None }
            .outcomes(3, &Outcome::Release)
    }

    #[test]
    fn an_item_without_an_outcome_is_retried() {
        let silent = Outcome::retry("the handler returned no outcome for it");
        assert_eq!(outcomes(&[Outcome::Done], None), [Outcome::Done, silent.clone(), silent]);
        assert_eq!(outcomes(&vec![Outcome::Release; 4], None), vec![Outcome::Release; 3]);
    }

    #[test]
    fn after_an_interruption_only_done_and_dead_count() {
        let returned = [Outcome::Done, Outcome::dead("no"), Outcome::retry("killed")];
        let time_up = Outcome::retry("not done after 20 ms (handler-timeout)");
        let interruption = Interruption::TimeUp(Duration::from_millis(20));
        assert_eq!(outcomes(&returned, Some(interruption)), [Outcome::Done, Outcome::dead("no"), time_up]);
        assert_eq!(outcomes(&returned, Some(Interruption::Cancelled))[2], Outcome::Release);
        let panicked = Outcome::retry("the handler panicked: oh");
        assert_eq!(outcomes(&[], Some(Interruption::Panicked("oh".to_owned()))), vec![panicked; 3]);
    }
}
