//! One take, in turn with the queue's other consumers.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use kvqueue_queue::{
    Approach, Attempts, RetryError, RetryPolicy, Session, SessionId, Take, TakeError, Watch, retry,
};
use tokio::{sync::oneshot, time::Instant};
use tokio_util::{future::FutureExt, sync::CancellationToken};
use uuid::Uuid;

use super::{
    batch::{Batch, InHand},
    holder::Leased,
    idle::Member,
    source::Source,
};
use crate::config::Delivery;

/// How long a take tries before it counts as failed and is logged. What it may have removed by then stays in the
/// session and comes with the next take.
const TAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How a take ended.
pub(crate) enum Attempt {
    /// It was this consumer's turn only after it had been told to stop.
    GivenUp,
    /// The database refused.
    Failed(TakeError),
    /// There is nothing, until this resolves.
    Nothing(oneshot::Receiver<()>),
    /// There is nothing, and nothing that could become something: no lease, no item for later.
    AtRest,
    /// Items.
    Items(InHand),
}

/// A consumer's session: an identity that no other consumer has, or has had.
pub(crate) fn session(source: &Source) -> Session {
    let id = SessionId(Uuid::now_v7().into_bytes());
    Session::new(source.queue.clone(), id).with_policy(policy())
}

fn policy() -> RetryPolicy {
    RetryPolicy { timeout: Some(TAKE_TIMEOUT), ..RetryPolicy::default() }
}

/// Waits for the turn and takes. Once begun, a take is seen through; `stop` only ends the waiting.
pub(crate) async fn take(
    source: Arc<Source>,
    mut session: Session,
    k: NonZeroUsize,
    member: Member,
    stop: CancellationToken,
) -> (Session, Attempt) {
    let attempt = match source.turn.lock().with_cancellation_token(&stop).await {
        None => Attempt::GivenUp,
        Some(mut turn) => {
            let taken = in_turn(&source, &mut session, k, member, &mut turn).await;
            taken.unwrap_or_else(Attempt::Failed)
        }
    };
    (session, attempt)
}

/// What a take has found.
enum Found {
    Items(InHand),
    Nothing(Option<Watch>),
}

async fn in_turn(
    source: &Source,
    session: &mut Session,
    k: NonZeroUsize,
    member: Member,
    approach: &mut Approach,
) -> Result<Attempt, TakeError> {
    let watch = source.idle.wants_watch();
    let mut take = Take { k, length: source.lease_versions(), approach, watch };
    let (found, attempts) = match source.delivery {
        Delivery::AtMostOnce => remove(source, session, &mut take).await?,
        Delivery::AtLeastOnce | Delivery::ExactlyOnce => lease(source, session, &mut take).await?,
    };
    match found {
        Found::Items(items) => {
            source.idle.found(member, attempts.conflicts > 0);
            Ok(Attempt::Items(items))
        }
        Found::Nothing(_) if source.until_empty && is_at_rest(source).await? => {
            source.idle.rested();
            Ok(Attempt::AtRest)
        }
        Found::Nothing(watch) => Ok(Attempt::Nothing(source.idle.empty(member, watch))),
    }
}

async fn lease(
    source: &Source,
    session: &mut Session,
    take: &mut Take<'_>,
) -> Result<(Found, Attempts), TakeError> {
    let taken_at = Instant::now();
    let leased = session.lease(&source.db, take).await?;
    let found = match leased.lease {
        Some(lease) => {
            // One that waited in line may have got its items long after it began: then only the database knows how long they are held.
            let recovered = leased.recovered || taken_at.elapsed() > source.lease / 3;
            Found::Items(InHand::Leased(Leased { lease, taken_at, recovered }))
        }
        None => Found::Nothing(leased.watch),
    };
    Ok((found, leased.attempts))
}

async fn remove(
    source: &Source,
    session: &mut Session,
    take: &mut Take<'_>,
) -> Result<(Found, Attempts), TakeError> {
    let taken = session.take_by(&source.db, take).await?;
    let found = match taken.items.is_empty() {
        false => Found::Items(InHand::Taken(Batch::new(source.name.clone(), taken.items))),
        true => Found::Nothing(taken.watch),
    };
    Ok((found, taken.attempts))
}

/// Whether the queue has nothing that is ready, leased by anyone, or to become ready later.
async fn is_at_rest(source: &Source) -> Result<bool, TakeError> {
    let policy = policy();
    let rest = retry::run(&source.db, &policy, |tr| async move {
        let rest = source.queue.rest(&tr).await;
        (tr, rest)
    });
    Ok(rest.await?.value.is_none())
}

/// Closes the session of a consumer that takes no more. What a take on a lease may have got whose outcome was never known is
/// given back; what another removed is returned.
pub(crate) async fn close(source: &Source, session: Session) -> Result<Option<InHand>, RetryError> {
    let left = session.close(&source.db).await?;
    Ok((!left.is_empty()).then(|| InHand::Taken(Batch::new(source.name.clone(), left))))
}
