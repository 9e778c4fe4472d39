//! One call of a handler: in a task of its own, with a time limit, behind a boundary that panics do not cross.

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

use super::{Context, Handling, Outcome};
use crate::telemetry::panic_text;

/// How long a handler that is cancelled may go on before it is dropped.
pub(crate) const LAST_MOMENT: Duration = Duration::from_secs(1);

/// How long after that it may take to drop it. Longer takes only one that blocks its thread.
const DROPPED: Duration = Duration::from_millis(250);

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// What the handler said, in the order of the items.
    pub(crate) said: Vec<Outcome>,
    /// Why that was not waited for, or is not to be had.
    pub(crate) cut: Option<Cut>,
    /// The handler was dropped and goes on all the same: it blocks its thread.
    pub(crate) running: Option<Running>,
}

/// A handler that blocks its thread, so that nobody can stop it.
#[derive(Debug)]
pub(crate) struct Running(AbortOnDropHandle<Vec<Outcome>>);

impl Running {
    /// Waits until it returns. What it said then is in the order of the items; nothing if it panicked, or was dropped when it no longer
    /// blocked its thread.
    pub(crate) async fn returned(self) -> Vec<Outcome> {
        self.0.await.unwrap_or_default()
    }
}

/// What cut a call short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Its time was up.
    TimeUp(Duration),
    /// Its token was cancelled, by whoever holds the token above it.
    Cancelled,
    /// It panicked, saying this.
    Panicked(String),
}

/// Calls the handler and sees the call to its end. A handler of single items is to get one. Dropping the call drops the handler's future.
///
/// The context's `deadline` is set here, from `limit`. Its `cancelled` should be a child of the token by which the caller cancels.
pub(crate) async fn call(
    handling: &Handling,
    items: Arc<[Item]>,
    mut context: Context,
    limit: Option<Duration>,
) -> Ended {
    context.deadline = limit.map(|limit| Instant::now() + limit);
    let cancelled = context.cancelled.clone();
    let handling = handling.clone();
    let handled = async move { handling.handle(&items, &context).await };
    let mut task = AbortOnDropHandle::new(tokio::spawn(handled.in_current_span()));
    let cut = tokio::select! {
        // First: what a handler says because it was cancelled is not why it ended.
        biased;
        () = cancelled.cancelled() => Cut::Cancelled,
        done = &mut task => return Ended::of(done).unless(&cancelled),
        limit = time_up(limit) => Cut::TimeUp(limit),
    };
    cancelled.cancel();
    // It may still finish. A panic says nothing that the cut does not.
    let mut done = timeout(LAST_MOMENT, &mut task).await;
    if done.is_err() {
        task.abort();
        done = timeout(DROPPED, &mut task).await;
    }
    let running = done.is_err().then(|| Running(task));
    let said = done.ok().and_then(Result::ok).unwrap_or_default();
    Ended { said, cut: Some(cut), running }
}

/// Resolves when a call that begins now has had its time.
async fn time_up(limit: Option<Duration>) -> Duration {
    match limit {
        Some(limit) => {
            sleep(limit).await;
            limit
        }
        None => std::future::pending().await,
    }
}

impl Handling {
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

impl Ended {
    fn of(done: Result<Vec<Outcome>, JoinError>) -> Self {
        match done.map_err(JoinError::try_into_panic) {
            Ok(said) => Self { said, cut: None, running: None },
            Err(Ok(panic)) => Self::cut(Cut::Panicked(panic_text(&*panic).to_owned())),
            // Nobody aborts a task that is waited for: its runtime ends.
            Err(Err(_)) => Self::cut(Cut::Cancelled),
        }
    }

    /// A handler that hears of its cancellation may end before the call hears of it.
    fn unless(self, cancelled: &CancellationToken) -> Self {
        match self.cut {
            None if cancelled.is_cancelled() => Self { cut: Some(Cut::Cancelled), ..self },
            _ => self,
        }
    }

    fn cut(cut: Cut) -> Self {
        Self { said: Vec::new(), cut: Some(cut), running: None }
    }

    /// What becomes of each of so many items: what the handler said; `cancelled` where it was cancelled before it said so.
    ///
    /// After a cut only what is definite counts, done or dead: that it failed is what the cut made of it.
    pub(crate) fn outcomes(self, items: usize, cancelled: &Outcome) -> Vec<Outcome> {
        let otherwise = match &self.cut {
            None => unsaid(),
            Some(Cut::TimeUp(limit)) => {
                Outcome::Retry(format!("not done after {} ms (handler-timeout)", limit.as_millis()))
            }
            Some(Cut::Cancelled) => cancelled.clone(),
            Some(Cut::Panicked(text)) => Outcome::Retry(format!("the handler panicked: {text}")),
        };
        let cut = self.cut.is_some();
        let counts = |outcome: &Outcome| !cut || matches!(outcome, Outcome::Done | Outcome::Dead(_));
        let said = self.said.into_iter().map(Some).chain(std::iter::repeat(None)).take(items);
        said.map(|outcome| outcome.filter(counts).unwrap_or_else(|| otherwise.clone())).collect()
    }
}

/// The outcome of an item for which the handler returned none.
pub(crate) fn unsaid() -> Outcome {
    Outcome::retry("the handler did not say what becomes of it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(said: &[Outcome], cut: Option<Cut>) -> Vec<Outcome> {
        Ended { said: said.to_vec(), cut, running: None }.outcomes(3, &Outcome::Release)
    }

    #[test]
    fn an_item_of_which_nothing_is_said_is_retried() {
        let silent = Outcome::retry("the handler did not say what becomes of it");
        assert_eq!(outcomes(&[Outcome::Done], None), [Outcome::Done, silent.clone(), silent]);
        assert_eq!(outcomes(&vec![Outcome::Release; 4], None), vec![Outcome::Release; 3]);
    }

    #[test]
    fn after_a_cut_only_what_is_definite_counts() {
        let said = [Outcome::Done, Outcome::dead("no"), Outcome::retry("killed")];
        let time_up = Outcome::retry("not done after 20 ms (handler-timeout)");
        let cut = Cut::TimeUp(Duration::from_millis(20));
        assert_eq!(outcomes(&said, Some(cut)), [Outcome::Done, Outcome::dead("no"), time_up]);
        assert_eq!(outcomes(&said, Some(Cut::Cancelled))[2], Outcome::Release);
        let panicked = Outcome::retry("the handler panicked: oh");
        assert_eq!(outcomes(&[], Some(Cut::Panicked("oh".to_owned()))), vec![panicked; 3]);
    }
}
