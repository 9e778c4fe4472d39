//! Sessions that die in the middle of a take on a lease, at any step of it: what they had got, or get from others after their death,
//! comes back, and every item is finished once.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use kvqueue_queue::{
    Approach, End, Fetched, ItemOutcome, Kind, Lease, Packing, Queue, RetryPolicy, Session, Spread, Staged,
    from_millis,
};

use crate::common::{Rng, TestDb, at_most, fetch_options, on_database, payloads, seeds, sweeper};

const SESSIONS: u64 = 5;
const ITEMS: usize = 80;
/// A second in versions: the dead do not keep their items for long, and the living finish theirs in time, also on a machine that is
/// busy.
const LENGTH: u64 = 1_000_000;
/// One take of this many is the last of its session. They are rare enough that most takes find living ones before them: each dead one that
/// is served keeps its items for five seconds.
const DEATHS: usize = 4;
/// A session dies after looks at its take that are fewer than a power of two, up to this one: how many a take needs depends on the
/// machine.
const LOOKS: usize = 14;

const KINDS: [Kind; 3] = [Kind::Fifo, Kind::Recipe(Packing::Tuple), Kind::Priority(End::Max, Packing::Raw)];

/// One queue, and who processes it.
struct World<'t> {
    t: &'t TestDb,
    queue: Queue,
    approach: Approach,
    finished: AtomicUsize,
}

#[test]
fn items_of_dead_sessions_are_returned_under_every_strategy() {
    on_database(async |t| {
        for seed in seeds(1) {
            println!("KVQUEUE_TEST_SEED={seed} cargo test -p kvqueue-queue --test it stranded::");
            let approaches =
                [Approach::Front, Approach::Spread(Spread::default()), Approach::Staged(Staged::default())];
            let all = approaches.iter().flat_map(|approach| KINDS.map(|kind| (approach, kind)));
            // All at once: most of the time is spent waiting for leases to run out.
            let runs = (0..).zip(all).map(async |(i, (approach, kind))| {
                let queue = t.queue_of(format!("{seed} {i}"), kind);
                let world = World { t, queue, approach: approach.clone(), finished: AtomicUsize::new(0) };
                let run = tokio::time::timeout(Duration::from_secs(120), world.run(seed << 8 | i));
                run.await.unwrap_or_else(|_| panic!("{kind:?} {approach:?} hangs"))
            });
            let returned: usize = futures::future::join_all(runs).await.iter().sum();
            println!("{returned} items came back");
            assert!(returned > 0, "nobody died with items");
        }
    });
}

impl World<'_> {
    /// Returns how many items came back.
    async fn run(&self, seed: u64) -> usize {
        let names: Vec<String> = (0..ITEMS).map(|n| format!("{n:03}")).collect();
        self.t.fill(&self.queue, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let consumers = (0..SESSIONS).map(|n| self.consume(Rng::new(seed * SESSIONS + n)));
        let (finished, returned) = tokio::join!(futures::future::join_all(consumers), self.sweep());
        let mut all = finished.concat();
        all.sort_unstable();
        assert_eq!(all, names, "{:?}", self.queue);
        assert_eq!(self.t.len(&self.queue).await, 0);
        // Requests of the dead may be left until the next take asks.
        assert_eq!(self.t.records(&self.queue, "lease").await, []);
        returned
    }

    fn is_over(&self) -> bool {
        self.finished.load(Ordering::SeqCst) >= ITEMS
    }

    /// Gives back what is in leases that ran out, until all is finished; returns how many items that were.
    async fn sweep(&self) -> usize {
        let mut returned = 0;
        let mut sweeper = sweeper(&self.queue);
        let rules = at_most(u32::MAX);
        while !self.is_over() {
            let swept = sweeper.sweep(&self.t.db, &|| from_millis(0), &rules).await.unwrap();
            assert!(swept.trouble.is_none());
            returned += swept.moved.returned;
            let _ = tokio::time::timeout(Duration::from_millis(10), swept.watch).await;
        }
        returned
    }

    /// One consumer after another, each until it dies. Returns what they finished.
    async fn consume(&self, mut rng: Rng) -> Vec<String> {
        let t = self.t;
        let (mut session, mut approach) = (t.session(&self.queue), self.approach.clone());
        let mut finished = Vec::new();
        while !self.is_over() {
            let most = 1 << rng.below(LOOKS + 1);
            let looks = if rng.below(DEATHS) == 0 { rng.below(most) } else { usize::MAX };
            let n = rng.below(3) + 1;
            let Some(leased) = self.take(&mut session, &mut approach, n, looks).await else {
                session = t.session(&self.queue);
                continue;
            };
            if let Some(mut lease) = leased.got {
                let names = payloads(lease.items());
                let done: Vec<_> = lease.open().map(|index| (index, ItemOutcome::Done)).collect();
                // A process that is too slow has lost it and finishes nothing.
                if lease.acknowledge(&t.db, &RetryPolicy::default(), &done).await.is_ok() {
                    self.finished.fetch_add(names.len(), Ordering::SeqCst);
                    finished.extend(names);
                }
            }
            if let Some(watch) = leased.watch {
                let _ = tokio::time::timeout(Duration::from_millis(10), watch).await;
            }
        }
        // Nobody closes the sessions of the dead, and those of the living need no more.
        session.close(&t.db).await.unwrap();
        finished
    }

    /// Takes; `None` if the session died over it.
    async fn take(
        &self,
        session: &mut Session,
        approach: &mut Approach,
        n: usize,
        looks: usize,
    ) -> Option<Fetched<Option<Lease>>> {
        let mut take = fetch_options(n, LENGTH, approach, true);
        let mut taking = pin!(session.fetch(&self.t.db, &mut take));
        let mut left = looks;
        std::future::poll_fn(|cx| {
            if left == 0 {
                return Poll::Ready(None);
            }
            left = left.saturating_sub(1);
            if looks < usize::MAX {
                // So that it is looked at again, without anything to look for.
                cx.waker().wake_by_ref();
            }
            taking.as_mut().poll(cx).map(|leased| Some(leased.unwrap()))
        })
        .await
    }
}
