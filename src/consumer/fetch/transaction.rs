//! One fetch: a transaction that moves items to a lease, and who gets which of them.

use std::{num::NonZeroUsize, ops::Range, sync::Arc, time::Duration};

use kvqueue_queue::{Approach, FetchError, FetchOptions, Fetched, Item, Lease, RetryPolicy, Session, retry};
use tokio::time::Instant;

use super::FetchRequest;
use crate::{
    base::identity,
    config::Delivery,
    consumer::{
        claimed::{Claimed, NotBegun},
        lease::{LeaseKeeper, LeaseTimer},
        runtime::QueueRuntime,
    },
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

impl Fetching {
    /// For a queue without consumers yet.
    pub(crate) fn new(approach: Approach) -> Self {
        Self { session: None, approach, requests: 0, took: Duration::ZERO }
    }

    /// Fetches for all of these requests in one transaction, or the last item of the queue alone. Returns batches for the first
    /// requests, in the order of the requests; `None` if nothing is ready, scheduled or running, and the consumers end with the queue.
    pub(crate) async fn fetch(
        &mut self,
        runtime: &Arc<QueueRuntime>,
        requests: &[FetchRequest],
        (watch, last): (bool, bool),
    ) -> Result<Option<Fetched<Vec<NotBegun>>>, FetchError> {
        let (began, ended) = (Instant::now(), runtime.suspects.ended());
        self.requests = requests.len();
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
        let fetched = match runtime.config.delivery {
            Delivery::AtMostOnce => {
                let taken = session.take_with(&runtime.db, &mut options).await;
                self.ended(runtime, began, &taken, Vec::len);
                taken?.map(|items| taken_batches(runtime, requests, items))
            }
            Delivery::AtLeastOnce | Delivery::ExactlyOnce => {
                let leased = session.fetch(&runtime.db, &mut options).await;
                let open = |lease: &Option<Lease>| lease.iter().flat_map(Lease::open).count();
                self.ended(runtime, began, &leased, open);
                let leased = leased?;
                // Measured from the fetch's beginning, little or nothing would be left of a lease after a long fetch.
                let age_unknown = leased.recovered || self.took > runtime.config.lease / 3 * 2;
                leased.map(|lease| match lease {
                    Some(lease) => {
                        let items = lease.items().len();
                        let timer = LeaseTimer::new(runtime.config.lease, began, age_unknown, items);
                        leased_batches(runtime, requests, lease, timer)
                    }
                    None => Vec::new(),
                })
            }
        };
        if fetched.got.is_empty() {
            if is_exhausted(runtime).await? && !runtime.sharing.has_items() {
                return Ok(None);
            }
            runtime.suspects.wait(&runtime.look_again, ended);
        }
        Ok(Some(fetched.map(|batches| by_request(requests, batches))))
    }

    /// Notes how long a fetch took, and counts it. `items`: how many items it has got.
    fn ended<T>(
        &mut self,
        runtime: &QueueRuntime,
        began: Instant,
        fetched: &Result<Fetched<T>, FetchError>,
        items: impl FnOnce(&T) -> usize,
    ) {
        self.took = began.elapsed();
        let meters = &runtime.meters;
        let attempts = match fetched {
            Err(error) => error.attempts(),
            Ok(fetched) => fetched.attempts,
        };
        meters.conflicts.inc_by(u64::from(attempts.conflicts));
        let Ok(fetched) = fetched else {
            meters.fetches_failed.inc();
            return;
        };
        runtime.clock.learn(fetched.version);
        match items(&fetched.got) {
            0 => _ = meters.fetches_empty.inc(),
            items => {
                meters.fetches_items.inc();
                meters.fetched.inc_by(items as u64);
                meters.fetch_seconds.observe(self.took.as_secs_f64());
            }
        }
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
fn leased_batches(
    runtime: &Arc<QueueRuntime>,
    requests: &[FetchRequest],
    lease: Lease,
    timer: LeaseTimer,
) -> Vec<Claimed> {
    let items = lease.items().len();
    let mut shares = share_out(items, requests.iter().flat_map(FetchRequest::batch_sizes));
    let batches = shares.len();
    let shared_out = shares.last().map_or(0, |share| share.end);
    if shared_out < items {
        shares.push(shared_out..items);
    }
    let (keeper, mut slices) = LeaseKeeper::new(runtime.clone(), lease, timer, &shares);
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

/// The batches of each request, as far as there are any.
fn by_request(requests: &[FetchRequest], batches: Vec<Claimed>) -> Vec<NotBegun> {
    let mut batches = batches.into_iter();
    let of_each = requests.iter().map(|it| batches.by_ref().take(it.batches.get()).collect());
    of_each.take_while(|batches: &NotBegun| !batches.is_empty()).collect()
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
