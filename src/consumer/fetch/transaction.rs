//! One fetch: a transaction that moves items to a lease, and who gets which of them.

use std::{num::NonZeroUsize, ops::Range, sync::Arc, time::Duration};

use kvqueue_queue::{Approach, Attempts, FetchError, FetchOptions, Item, RetryPolicy, Session, Watch, retry};
use tokio::time::Instant;

use super::FetchRequest;
use crate::{
    base::identity,
    config::Delivery,
    consumer::{
        claimed::{Claimed, NotBegun},
        lease::{LeaseKeeper, Leased},
        runtime::QueueRuntime,
    },
    meters::QueueMeters,
};

/// How long a fetch tries before it counts as failed and is logged. What it may have removed by
/// then stays in the session and comes with the next fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// The state that the fetches of a queue in this process share.
pub(crate) struct Fetching {
    /// Made by the first fetch, closed when the last consumer leaves.
    pub(crate) session: Option<Session>,
    /// Which items the next fetch tries to get. It learns from conflicts with other processes.
    approach: Approach,
    /// How many requests the last fetch was for.
    pub(crate) requests: usize,
    /// How long it took.
    pub(crate) took: Duration,
}

/// How a fetch ended.
pub(crate) enum Fetched {
    /// Batches for the first requests, in the order of the requests.
    Batches {
        batches: Vec<NotBegun>,
        /// It lost against another process before.
        conflicts: bool,
    },
    /// Nothing is ready.
    Empty(Idle),
    /// Nothing is ready, scheduled or running.
    Exhausted,
    Failed(FetchError),
}

/// What to wait for if nothing is ready.
pub(crate) struct Idle {
    /// Resolves after the next push, if it was asked for.
    pub(crate) watch: Option<Watch>,
    /// Whether the queue is full, or its free slots are left to other sessions for now. Then the watch is for a slot.
    pub(crate) is_full: bool,
    /// When further items may start, though nothing has changed by then.
    pub(crate) look_again_in: Option<Duration>,
}

/// The result of a fetch.
enum Got {
    Nothing(Idle),
    /// Items on a lease.
    Leased(Box<Leased>),
    /// Items that have left the queue.
    Taken(Vec<Item>),
}

impl Fetching {
    /// For a queue without consumers yet.
    pub(crate) fn new(approach: Approach) -> Self {
        Self { session: None, approach, requests: 0, took: Duration::ZERO }
    }

    /// Fetches for all of these requests in one transaction, or the last item of the queue alone.
    pub(crate) async fn fetch(
        &mut self,
        runtime: &Arc<QueueRuntime>,
        requests: &[FetchRequest],
        (watch, last): (bool, bool),
    ) -> Fetched {
        let (began, ended) = (Instant::now(), runtime.suspects.ended());
        let session = self.session.get_or_insert_with(|| session(runtime));
        let items = requests.iter().map(FetchRequest::items);
        let k = items.reduce(|k, more| k.saturating_add(more.get())).unwrap_or(NonZeroUsize::MIN);
        let mut options =
            FetchOptions::new(k, runtime.config.lease, &mut self.approach).with_watch(watch).with_last(last);
        tracing::trace!(
            event = "fetch_started",
            queue = %runtime.name,
            consumers = requests.len(),
            "fetching"
        );
        let got = match runtime.config.delivery {
            Delivery::AtMostOnce => remove(runtime, session, &mut options).await,
            Delivery::AtLeastOnce | Delivery::ExactlyOnce => lease(runtime, session, &mut options).await,
        };
        (self.took, self.requests) = (began.elapsed(), requests.len());
        count(&runtime.meters, &got, self.took);
        let (got, attempts) = match got {
            Ok(got) => got,
            Err(error) => return Fetched::Failed(error),
        };
        let conflicts = attempts.conflicts > 0;
        let batches = match got {
            Got::Leased(leased) => leased_batches(runtime, requests, *leased),
            Got::Taken(items) => taken_batches(runtime, requests, items),
            Got::Nothing(idle) => {
                return match is_exhausted(runtime).await {
                    Err(error) => Fetched::Failed(error),
                    Ok(true) if !runtime.sharing.has_items() => Fetched::Exhausted,
                    Ok(_) => {
                        runtime.suspects.wait(&runtime.look_again, ended);
                        Fetched::Empty(idle)
                    }
                };
            }
        };
        let mut batches = batches.into_iter();
        let by_request = requests.iter().map(|it| batches.by_ref().take(it.batches.get()).collect());
        let batches = by_request.take_while(|batches: &NotBegun| !batches.is_empty()).collect();
        Fetched::Batches { batches, conflicts }
    }
}

/// An identity that no other session has, or has had.
fn session(runtime: &QueueRuntime) -> Session {
    Session::with_id(runtime.queue.clone(), identity::session_id())
        .with_policy(policy())
        .with_quarantine(&runtime.suspects.quarantine)
        .with_history(&runtime.history)
}

fn policy() -> RetryPolicy {
    RetryPolicy { timeout: Some(FETCH_TIMEOUT), ..RetryPolicy::default() }
}

/// Counts a fetch, however it ended.
fn count(meters: &QueueMeters, got: &Result<(Got, Attempts), FetchError>, took: Duration) {
    let attempts = match got {
        Err(error) => error.attempts(),
        Ok((_, attempts)) => *attempts,
    };
    meters.conflicts.inc_by(u64::from(attempts.conflicts));
    let items = match got {
        Err(_) => {
            meters.fetches_failed.inc();
            return;
        }
        Ok((Got::Nothing(_), _)) => {
            meters.fetches_empty.inc();
            return;
        }
        Ok((Got::Leased(leased), _)) => leased.lease.open().count(),
        Ok((Got::Taken(items), _)) => items.len(),
    };
    meters.fetches_items.inc();
    meters.fetched.inc_by(items as u64);
    meters.fetch_seconds.observe(took.as_secs_f64());
}

async fn lease(
    runtime: &QueueRuntime,
    session: &mut Session,
    options: &mut FetchOptions<'_>,
) -> Result<(Got, Attempts), FetchError> {
    let fetched_at = Instant::now();
    let leased = session.fetch(&runtime.db, options).await?;
    runtime.clock.learn(leased.version);
    let found = match leased.lease {
        Some(lease) => {
            // Measured from the fetch's beginning, little or nothing would be left of a lease after a long fetch.
            let took_long = fetched_at.elapsed() > runtime.config.lease / 3 * 2;
            let age_unknown = leased.recovered || took_long;
            Got::Leased(Box::new(Leased { lease, fetched_at, age_unknown }))
        }
        None => Got::Nothing(Idle {
            watch: leased.watch,
            is_full: leased.is_full,
            look_again_in: leased.look_again_in,
        }),
    };
    Ok((found, leased.attempts))
}

async fn remove(
    runtime: &QueueRuntime,
    session: &mut Session,
    options: &mut FetchOptions<'_>,
) -> Result<(Got, Attempts), FetchError> {
    let taken = session.take_with(&runtime.db, options).await?;
    runtime.clock.learn(taken.version);
    let found = match taken.items.is_empty() {
        false => Got::Taken(taken.items),
        true => Got::Nothing(Idle { watch: taken.watch, is_full: false, look_again_in: None }),
    };
    Ok((found, taken.attempts))
}

/// Whether the consumers are to end with the queue, and it has nothing that is ready, scheduled or running.
async fn is_exhausted(runtime: &QueueRuntime) -> Result<bool, FetchError> {
    let Some(log) = &runtime.until_empty else { return Ok(false) };
    let policy = policy();
    let read = retry::run(&runtime.db, &policy, |tr| async move {
        let unfinished = runtime.queue.unfinished(&tr).await;
        (tr, unfinished)
    });
    let unfinished = read.await?.value;
    if !unfinished.is_none() {
        log.wait_for(&runtime.name, unfinished);
    }
    Ok(unfinished.is_none())
}

/// A batch for each share of a lease, and one keeper for the lease. An earlier fetch of unknown
/// outcome may have asked for more: what nobody asks for now is released.
fn leased_batches(runtime: &Arc<QueueRuntime>, requests: &[FetchRequest], leased: Leased) -> Vec<Claimed> {
    let items = leased.lease.items().len();
    let mut shares = share_out(items, requests.iter().flat_map(FetchRequest::batch_sizes));
    let batches = shares.len();
    let shared_out = shares.last().map_or(0, |share| share.end);
    if shared_out < items {
        shares.push(shared_out..items);
    }
    let (keeper, mut slices) = LeaseKeeper::new(runtime.clone(), leased, &shares);
    runtime.work.spawn(keeper.run());
    for unwanted in slices.split_off(batches) {
        drop(unwanted.release());
    }
    slices.into_iter().map(Claimed::Leased).collect()
}

/// A batch for each share of items that have left the queue. The last share has all that nobody
/// asks for, since these items are nowhere else any more.
fn taken_batches(runtime: &QueueRuntime, requests: &[FetchRequest], mut items: Vec<Item>) -> Vec<Claimed> {
    let shares = share_out(items.len(), requests.iter().flat_map(FetchRequest::batch_sizes));
    let mut parts: Vec<Vec<Item>> = shares.iter().rev().map(|share| items.split_off(share.start)).collect();
    parts.reverse();
    parts.into_iter().map(|items| Claimed::Taken(runtime.batch(items))).collect()
}

/// Shares out the items of a fetch in their order: each request, in the order of the requests, gets as many as it asked
/// for until none are left. There is one range for each request that gets any. Pure.
fn share_out(items: usize, asked: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
    let mut next = 0_usize;
    let share = |k: usize| {
        let share = next..items.min(next.saturating_add(k));
        next = share.end;
        (!share.is_empty()).then_some(share)
    };
    asked.into_iter().map_while(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_request_that_gets_items_gets_the_rest() {
        assert_eq!(share_out(6, [2, 3, 4, 1]), [0..2, 2..5, 5..6]);
        assert_eq!(share_out(5, [2, 3, 4]), [0..2, 2..5]);
        assert!(share_out(0, [2]).is_empty());
    }

    #[test]
    fn no_request_gets_more_than_it_asked_for() {
        assert_eq!(share_out(9, [2, 3]), [0..2, 2..5]);
    }
}
