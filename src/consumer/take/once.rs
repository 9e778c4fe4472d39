//! One take, for some of those who ask.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use kvqueue_queue::{Attempts, Item, RetryPolicy, Session, SessionId, Take, TakeError, Watch, retry};
use tokio::time::Instant;
use uuid::Uuid;

use super::{Attempt, Turn, line::Request, share};
use crate::{
    config::Delivery,
    consumer::{
        batch::{Batch, InHand},
        holder::{Holder, Leased},
        source::Source,
    },
};

/// How long a take tries before it counts as failed and is logged. What it may have removed by then stays in the
/// session and comes with the next take.
const TAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a take has found.
enum Found {
    /// Nothing; and a watch, if one was asked for.
    Nothing(Option<Watch>),
    /// Items on a lease.
    Leased(Leased),
    /// Items that have left the queue.
    Taken(Vec<Item>),
}

/// An identity that no other session has, or has had.
pub(super) fn session(source: &Source) -> Session {
    let id = SessionId(Uuid::now_v7().into_bytes());
    Session::new(source.queue.clone(), id).with_policy(policy())
}

fn policy() -> RetryPolicy {
    RetryPolicy { timeout: Some(TAKE_TIMEOUT), ..RetryPolicy::default() }
}

/// Takes for all of these at once, and answers each; or puts it back in the line, if there was not enough.
pub(super) async fn serve(source: &Arc<Source>, turn: &mut Turn, mut asked: Vec<Request>) {
    // Of a short queue those get something who have nothing.
    asked.sort_by_key(|request| request.ahead);
    match take(source, turn, &asked).await {
        Err(error) => refuse(asked, error),
        Ok((Found::Leased(leased), attempts)) => hand_out(source, asked, leased, attempts),
        Ok((Found::Taken(items), attempts)) => give(source, asked, items, attempts),
        Ok((Found::Nothing(watch), _)) => match at_rest(source).await {
            Err(error) => refuse(asked, error),
            Ok(at_rest) => send_away(source, asked, watch, at_rest),
        },
    }
}

async fn take(source: &Source, turn: &mut Turn, asked: &[Request]) -> Result<(Found, Attempts), TakeError> {
    let k = asked.iter().map(|request| request.k).reduce(|k, more| k.saturating_add(more.get()));
    let session = turn.session.get_or_insert_with(|| session(source));
    let mut take = Take {
        k: k.unwrap_or(NonZeroUsize::MIN),
        length: source.lease_versions(),
        approach: &mut turn.approach,
        watch: source.idle.wants_watch() && asked.iter().any(|request| !request.ahead),
    };
    match source.delivery {
        Delivery::AtMostOnce => remove(source, session, &mut take).await,
        Delivery::AtLeastOnce | Delivery::ExactlyOnce => lease(source, session, &mut take).await,
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
            // By the time at which it began, little would be left of the lease that a long take has made, or nothing.
            let took_long = taken_at.elapsed() > source.lease / 3 * 2;
            let doubtful = leased.recovered || took_long;
            Found::Leased(Leased { lease, taken_at, doubtful })
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
        false => Found::Taken(taken.items),
        true => Found::Nothing(taken.watch),
    };
    Ok((found, taken.attempts))
}

/// Whether the consumers are to end with the queue, and it has nothing that is ready, leased by anyone, or to become ready later.
async fn at_rest(source: &Source) -> Result<bool, TakeError> {
    if !source.until_empty {
        return Ok(false);
    }
    let policy = policy();
    let rest = retry::run(&source.db, &policy, |tr| async move {
        let rest = source.queue.rest(&tr).await;
        (tr, rest)
    });
    Ok(rest.await?.value.is_none())
}

fn refuse(asked: Vec<Request>, error: TakeError) {
    let error = Arc::new(error);
    for request in asked {
        // Whoever is gone needs no answer.
        let _ = request.answer.send(Attempt::Failed(error.clone()));
    }
}

fn send_away(source: &Source, asked: Vec<Request>, mut watch: Option<Watch>, at_rest: bool) {
    if at_rest {
        source.idle.rested();
    }
    for Request { member, ahead, answer, .. } in asked {
        let _ = answer.send(match (ahead, at_rest) {
            (true, _) => Attempt::NothingAhead,
            (false, true) => Attempt::AtRest,
            (false, false) => Attempt::Nothing(source.idle.empty(member, watch.take())),
        });
    }
}

/// One holder for the lease, and a part of it for each. What nobody wants is given back: an earlier take may have asked for more, and who
/// asked may be gone.
fn hand_out(source: &Arc<Source>, mut asked: Vec<Request>, leased: Leased, attempts: Attempts) {
    let items = leased.lease.items().len();
    let mut shares = share::out(items, asked.iter().map(|request| request.k.get()));
    let unserved = asked.split_off(shares.len());
    let taken = shares.last().map_or(0, |share| share.end);
    if taken < items {
        shares.push(taken..items);
    }
    let (holder, slices) = Holder::new(source.clone(), leased, &shares);
    source.work.spawn(holder.run());
    let mut slices = slices.into_iter();
    for (Request { member, answer, .. }, slice) in asked.into_iter().zip(&mut slices) {
        source.idle.found(member, attempts.conflicts > 0);
        if let Err(Attempt::Items(InHand::Leased(slice))) = answer.send(Attempt::Items(InHand::Leased(slice)))
        {
            drop(slice.give_back());
        }
    }
    slices.for_each(|slice| drop(slice.give_back()));
    put_back(source, unserved);
}

/// What is more than was asked for goes to the last: it is nowhere else any more.
fn give(source: &Source, mut asked: Vec<Request>, mut items: Vec<Item>, attempts: Attempts) {
    let shares = share::out(items.len(), asked.iter().map(|request| request.k.get()));
    let unserved = asked.split_off(shares.len());
    let mut parts: Vec<Vec<Item>> = shares.iter().rev().map(|share| items.split_off(share.start)).collect();
    for Request { member, answer, .. } in asked {
        source.idle.found(member, attempts.conflicts > 0);
        let batch = Batch::new(source.name.clone(), parts.pop().unwrap_or_default());
        // A batch that nobody takes says so when it is dropped.
        let _ = answer.send(Attempt::Items(InHand::Taken(batch)));
    }
    put_back(source, unserved);
}

/// For those who have nothing to handle the next take looks again, and brings a watch. The others hear that there was not enough.
fn put_back(source: &Source, unserved: Vec<Request>) {
    let (ahead, hungry): (Vec<_>, Vec<_>) = unserved.into_iter().partition(|request| request.ahead);
    source.taker.line.put_back(hungry);
    for request in ahead {
        let _ = request.answer.send(Attempt::NothingAhead);
    }
}
