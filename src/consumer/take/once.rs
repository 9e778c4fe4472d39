//! One take, for some of those who ask.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use kvqueue_queue::{Attempts, FetchError, FetchOptions, Item, RetryPolicy, Session, Watch, retry};
use tokio::time::Instant;

use super::{Attempt, Turn, Wish, line::Request, share};
use crate::{
    config::Delivery,
    consumer::{
        batch::{Batch, InHand},
        holder::{Holder, Leased},
        identity,
        source::Source,
    },
    metrics::QueueMeters,
};

/// How long a take tries before it counts as failed and is logged. What it may have removed by then stays in the
/// session and comes with the next take.
const TAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a take has found.
enum Found {
    /// Nothing; and a watch, if one was asked for.
    Nothing(Option<Watch>),
    /// Items on a lease.
    Leased(Box<Leased>),
    /// Items that have left the queue.
    Taken(Vec<Item>),
}

/// An identity that no other session has, or has had.
pub(super) fn session(source: &Source) -> Session {
    Session::with_id(source.queue.clone(), identity::session_id())
        .with_policy(policy())
        .with_quarantine(&source.suspects.quarantine)
        .with_history(&source.history)
}

fn policy() -> RetryPolicy {
    RetryPolicy { timeout: Some(TAKE_TIMEOUT), ..RetryPolicy::default() }
}

/// Takes for all of these at once, and answers each; or puts it back in the line, if there was not enough.
pub(super) async fn serve(source: &Arc<Source>, turn: &mut Turn, mut asked: Vec<Request>) {
    // Of a short queue those get something who have nothing.
    asked.sort_by_key(|request| request.wish.ahead);
    let (began, ended) = (Instant::now(), source.suspects.ended());
    let taken = take(source, turn, &asked).await;
    turn.took = began.elapsed();
    turn.served = asked.len();
    count(&source.meters, &taken, turn.took);
    match taken {
        Err(error) => refuse(asked, error),
        Ok((Found::Leased(leased), attempts)) => hand_out(source, asked, *leased, attempts),
        Ok((Found::Taken(items), attempts)) => give(source, asked, items, attempts),
        Ok((Found::Nothing(watch), _)) => match at_rest(source).await {
            Err(error) => refuse(asked, error),
            Ok(at_rest) => {
                send_away(source, asked, watch, at_rest);
                source.suspects.wait(source, ended);
            }
        },
    }
}

/// Counts a take, however it ended.
fn count(meters: &QueueMeters, taken: &Result<(Found, Attempts), FetchError>, took: Duration) {
    let attempts = match taken {
        Err(error) => error.attempts(),
        Ok((_, attempts)) => *attempts,
    };
    meters.conflicts.add(u64::from(attempts.conflicts));
    let items = match taken {
        Err(_) => return meters.takes_failed.inc(),
        Ok((Found::Nothing(_), _)) => return meters.takes_empty.inc(),
        Ok((Found::Leased(leased), _)) => leased.lease.open().count(),
        Ok((Found::Taken(items), _)) => items.len(),
    };
    meters.takes_items.inc();
    meters.taken.add(items as u64);
    meters.take_seconds.observe(took);
}

async fn take(source: &Source, turn: &mut Turn, asked: &[Request]) -> Result<(Found, Attempts), FetchError> {
    let k = asked.iter().map(|request| request.wish.items()).reduce(|k, more| k.saturating_add(more.get()));
    let session = turn.session.get_or_insert_with(|| session(source));
    let mut take = FetchOptions::new(k.unwrap_or(NonZeroUsize::MIN), source.lease, &mut turn.approach)
        .with_watch(source.idle.wants_watch() && asked.iter().any(|request| !request.wish.ahead));
    tracing::trace!(queue = %source.name, consumers = asked.len(), "fetching");
    match source.delivery {
        Delivery::AtMostOnce => remove(source, session, &mut take).await,
        Delivery::AtLeastOnce | Delivery::ExactlyOnce => lease(source, session, &mut take).await,
    }
}

async fn lease(
    source: &Source,
    session: &mut Session,
    take: &mut FetchOptions<'_>,
) -> Result<(Found, Attempts), FetchError> {
    let taken_at = Instant::now();
    let leased = session.fetch(&source.db, take).await?;
    source.taker.clock.learn(leased.version);
    let found = match leased.lease {
        Some(lease) => {
            // By the time at which it began, little would be left of the lease that a long take has made, or nothing.
            let took_long = taken_at.elapsed() > source.lease / 3 * 2;
            let doubtful = leased.recovered || took_long;
            Found::Leased(Box::new(Leased { lease, taken_at, doubtful }))
        }
        None => Found::Nothing(leased.watch),
    };
    Ok((found, leased.attempts))
}

async fn remove(
    source: &Source,
    session: &mut Session,
    take: &mut FetchOptions<'_>,
) -> Result<(Found, Attempts), FetchError> {
    let taken = session.take_with(&source.db, take).await?;
    source.taker.clock.learn(taken.version);
    let found = match taken.items.is_empty() {
        false => Found::Taken(taken.items),
        true => Found::Nothing(taken.watch),
    };
    Ok((found, taken.attempts))
}

/// Whether the consumers are to end with the queue, and it has nothing that is ready, leased by anyone, or to become ready later.
async fn at_rest(source: &Source) -> Result<bool, FetchError> {
    let Some(words) = &source.until_empty else { return Ok(false) };
    let policy = policy();
    let rest = retry::run(&source.db, &policy, |tr| async move {
        let rest = source.queue.rest(&tr).await;
        (tr, rest)
    });
    let rest = rest.await?.value;
    if !rest.is_none() {
        words.wait_for(&source.name, rest);
    }
    Ok(rest.is_none())
}

fn refuse(asked: Vec<Request>, error: FetchError) {
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
    for Request { wish: Wish { member, ahead, .. }, answer, .. } in asked {
        let _ = answer.send(match (ahead, at_rest) {
            (true, _) => Attempt::NothingAhead,
            (false, true) => Attempt::AtRest,
            (false, false) => Attempt::Nothing(source.idle.empty(member, watch.take())),
        });
    }
}

/// One holder for the lease, and a slice of it for each batch. What nobody wants is given back: an earlier take may have asked for more, and
/// who asked may be gone.
fn hand_out(source: &Arc<Source>, asked: Vec<Request>, leased: Leased, attempts: Attempts) {
    let items = leased.lease.items().len();
    let mut shares = share::out(items, asked.iter().flat_map(ks));
    let batches = shares.len();
    let shared_out = shares.last().map_or(0, |share| share.end);
    if shared_out < items {
        shares.push(shared_out..items);
    }
    let (holder, mut slices) = Holder::new(source.clone(), leased, &shares);
    source.work.spawn(holder.run());
    for nobodys in slices.split_off(batches) {
        drop(nobodys.give_back());
    }
    for batch in answer(source, asked, slices.into_iter().map(InHand::Leased), attempts) {
        if let InHand::Leased(slice) = batch {
            drop(slice.give_back());
        }
    }
}

/// What is more than was asked for goes to the last: it is nowhere else any more.
fn give(source: &Source, asked: Vec<Request>, mut items: Vec<Item>, attempts: Attempts) {
    let shares = share::out(items.len(), asked.iter().flat_map(ks));
    let mut parts: Vec<Vec<Item>> = shares.iter().rev().map(|share| items.split_off(share.start)).collect();
    parts.reverse();
    let batches = parts.into_iter().map(|items| InHand::Taken(Batch::new(source, items)));
    // A batch that nobody takes says so when it is dropped.
    drop(answer(source, asked, batches, attempts));
}

/// The K of each batch that a request asks for.
fn ks(request: &Request) -> impl Iterator<Item = usize> + use<> {
    std::iter::repeat_n(request.wish.k.get(), request.wish.batches.get())
}

/// Gives each its batches, as many as there are. Returns those of whoever is gone.
fn answer(
    source: &Source,
    asked: Vec<Request>,
    mut batches: impl Iterator<Item = InHand>,
    attempts: Attempts,
) -> Vec<InHand> {
    source.contention.took(attempts.conflicts);
    let (mut nobodys, mut hungry) = (Vec::new(), Vec::new());
    for request in asked {
        let Wish { member, batches: room, ahead, .. } = request.wish;
        let own: Vec<_> = batches.by_ref().take(room.get()).collect();
        match own.is_empty() {
            // The next take looks again, and brings a watch.
            true if !ahead => hungry.push(request),
            true => {
                let _ = request.answer.send(Attempt::NothingAhead);
            }
            false => {
                source.idle.found(member, attempts.conflicts > 0);
                if let Err(Attempt::Batches(own)) = request.answer.send(Attempt::Batches(own)) {
                    nobodys.extend(own);
                }
            }
        }
    }
    source.taker.line.put_back(hungry);
    nobodys
}
