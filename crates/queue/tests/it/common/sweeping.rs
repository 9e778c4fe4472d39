//! Short ways to take on leases, to put aside, and to sweep.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kvqueue_queue::{
    Approach, Failure, FetchOptions, ItemOutcome, Lease, Queue, RetryRules, SweepCounts, SweepRules, Sweeper,
    Swept, VersionHistory, from_millis,
};

use super::{TestDb, k};
use crate::common::Millis;

/// A sweep of leases this short may follow at once. Versions go on with the clock, so it comes to an end.
pub(crate) const SHORT: u64 = 1;

/// More looks than any lease of [`SHORT`] length needs to run out.
const LOOKS: usize = 100_000;

/// Rules that look at everything each time, and give the items of an expired lease back without a pause.
pub(crate) fn rules() -> SweepRules {
    let retry = RetryRules { base: Duration::ZERO, ..RetryRules::default() };
    alone().with_lease(Duration::ZERO).with_retry(retry)
}

/// The default rules, for tests in which nobody asks what the clocks of others say.
pub(crate) fn alone() -> SweepRules {
    SweepRules::default().with_clock_tolerance(Duration::MAX)
}

/// The same, with so many attempts.
pub(crate) fn at_most(max_attempts: u32) -> SweepRules {
    let rules = rules();
    rules.with_retry(RetryRules { max_attempts, ..rules.retry })
}

/// Settles an item as one to be tried again at a time.
pub(crate) fn later(due: Millis) -> ItemOutcome {
    ItemOutcome::Retry { due: Some(from_millis(due)), failure: Failure::new(from_millis(1), 1, "not yet") }
}

/// A new sweeper, whose clock runs so fast that versions alone say when a lease has run out.
pub(crate) fn sweeper(queue: &Queue) -> Sweeper {
    let ticks = AtomicU64::new(0);
    let clock = move || Duration::from_hours(ticks.fetch_add(1, Ordering::Relaxed));
    Sweeper::new(queue.clone(), VersionHistory::new(clock))
}

/// A clock that the test sets, and a new sweeper that goes by it.
pub(crate) fn sweeper_with_clock(queue: &Queue) -> (Arc<AtomicU64>, Sweeper) {
    let clock = Arc::<AtomicU64>::default();
    let its = Arc::clone(&clock);
    let history = VersionHistory::new(move || Duration::from_micros(its.load(Ordering::Relaxed)));
    (clock, Sweeper::new(queue.clone(), history))
}

/// The options of a fetch of up to `n` items, on a lease of this many microseconds.
pub(crate) fn fetch_options(n: usize, lease: u64, approach: &mut Approach, watch: bool) -> FetchOptions<'_> {
    FetchOptions::new(k(n), Duration::from_micros(lease), approach).with_watch(watch)
}

impl TestDb {
    /// Takes up to `n` items on a lease of this length, in versions.
    pub(crate) async fn lease_for(&self, queue: &Queue, n: usize, length: u64) -> Option<Lease> {
        let mut approach = Approach::Front;
        let mut take = fetch_options(n, length, &mut approach, false);
        self.session(queue).fetch(&self.db, &mut take).await.unwrap().got
    }

    /// Pushes items, and puts each aside until its time.
    pub(crate) async fn put_aside(&self, queue: &Queue, items: &[(&str, Millis)]) {
        for (payload, due) in items {
            self.push(queue, &[payload]).await;
            let mut lease = self.lease(queue, 1).await.unwrap();
            self.acknowledge(&mut lease, &later(*due)).await;
        }
    }

    /// One sweep in which nothing fails.
    pub(crate) async fn sweep(&self, sweeper: &mut Sweeper, now: Millis, rules: &SweepRules) -> Swept {
        let swept = sweeper.sweep(&self.db, &|| from_millis(now), rules).await.unwrap();
        assert!(swept.trouble.is_none(), "{:?}", swept.trouble);
        swept
    }

    /// Sweeps until this many leases have expired. Returns the counts.
    pub(crate) async fn sweep_leases(&self, queue: &Queue, n: usize, rules: &SweepRules) -> SweepCounts {
        let (mut sweeper, mut moved) = (sweeper(queue), SweepCounts::default());
        for _ in 0..LOOKS {
            moved += self.sweep(&mut sweeper, 0, rules).await.moved;
            if moved.leases >= n {
                return moved;
            }
        }
        panic!("after {LOOKS} sweeps {} of {n} leases had run out", moved.leases);
    }
}
