//! One take, in turn with the queue's other consumers.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use kvqueue_queue::{RetryPolicy, Session, SessionId, TakeError, Taken};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::source::Source;

/// How long a take tries before it counts as failed and is logged. What it may have removed by then stays in the
/// session and comes with the next take.
const TAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How a take ended.
pub(crate) enum Attempt {
    /// It was this consumer's turn only after it had been told to stop.
    GivenUp,
    /// The database refused.
    Failed(TakeError),
    /// Items, or a watch.
    Taken(Taken),
}

/// A consumer's session: an identity that no other consumer has, or has had.
pub(crate) fn session(source: &Source) -> Session {
    let id = SessionId(Uuid::now_v7().into_bytes());
    let policy = RetryPolicy { timeout: Some(TAKE_TIMEOUT), ..RetryPolicy::default() };
    Session::new(source.queue.clone(), id).with_policy(policy)
}

/// Waits for the turn and takes. Once begun, a take is seen through; `stop` only ends the waiting.
pub(crate) async fn take(
    source: Arc<Source>,
    mut session: Session,
    k: NonZeroUsize,
    stop: CancellationToken,
) -> (Session, Attempt) {
    let turn = tokio::select! {
        biased;
        () = stop.cancelled() => None,
        turn = source.turn.lock() => Some(turn),
    };
    let attempt = match turn {
        None => Attempt::GivenUp,
        Some(_turn) => match session.take(&source.db, k).await {
            Ok(taken) => Attempt::Taken(taken),
            Err(error) => Attempt::Failed(error),
        },
    };
    (session, attempt)
}
