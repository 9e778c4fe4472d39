//! Workers that die in the middle of their work, sweepers that take turns, and commits that fail: every item ends once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fdb_embedded::Faults;
use kvqueue_queue::{
    Approach, Counts, Failure, ItemOutcome, NewItem, PushOptions, Queue, RetryPolicy, from_millis,
};

use crate::common::{Rng, SHORT, TestDb, at_most, fetch_options, k, on_database, seeds, sweeper};

const ITEMS: usize = 60;
const WORKERS: usize = 4;
const SWEEPERS: usize = 2;
const MAX_ATTEMPTS: u32 = 6;

/// What the workers and sweepers of a run share.
struct World<'t> {
    t: &'t TestDb,
    queue: Queue,
    /// Goes on with every sweep.
    clock: AtomicU64,
    over: AtomicBool,
}

#[test]
fn every_item_ends_once_when_any_process_dies() {
    on_database(async |t| {
        for seed in seeds(6) {
            println!("KVQUEUE_TEST_SEED={seed} cargo test -p kvqueue-queue --test it every_item_ends_once");
            let p = if seed % 2 == 0 { 0.0 } else { 0.08 };
            let faults = Faults::seeded(seed).unknown_committed(p).unknown_not_committed(p).conflict(p);
            if p > 0.0 && !t.install(faults) {
                return;
            }
            let queue = t.queue(format!("mortal {seed}"));
            let world = World { t, queue, clock: AtomicU64::new(1), over: AtomicBool::new(false) };
            tokio::time::timeout(Duration::from_secs(120), world.run(seed))
                .await
                .expect("it comes to an end");
            t.end_faults();
        }
    });
}

impl World<'_> {
    async fn run(&self, seed: u64) {
        let mut rng = Rng::new(seed);
        let due = |n: usize| n.is_multiple_of(3).then_some(n as u64);
        let items: Vec<_> = (0..ITEMS)
            .map(|n| {
                let mut item = NewItem::new(n.to_string());
                item.due = due(n).map(from_millis);
                item
            })
            .collect();
        let mut producer = self.t.session(&self.queue);
        producer.push_items(&self.t.db, &items, &PushOptions::default()).await.unwrap();
        let workers = (0..WORKERS).map(|_| self.work(Rng::new(rng.next())));
        let workers = futures::future::join_all(workers.collect::<Vec<_>>());
        let sweepers = futures::future::join_all((0..SWEEPERS).map(|_| self.sweep()));
        let (ended, _) = tokio::join!(workers, sweepers);

        let (done, dead): (Vec<_>, Vec<_>) = ended.into_iter().unzip();
        let mut times = BTreeMap::new();
        done.into_iter().flatten().for_each(|payload| *times.entry(payload).or_insert(0) += 1);
        assert!(times.values().all(|times| *times == 1), "finished more than once: {times:?}");
        let counts = self.t.run(async |tr| self.queue.counts(tr).await).await;
        let letters = ITEMS - times.len();
        assert!(letters >= dead.iter().sum(), "{letters} dead letters");
        let expected = Counts {
            done: times.len() as u64,
            dead: letters as i64,
            pushed: Some(ITEMS as u64),
            ..Counts::default()
        };
        assert_eq!(counts, expected);
        let listed = self.t.run(async |tr| self.queue.dead_list(tr, None, k(ITEMS)).await).await;
        assert_eq!(listed.len(), letters);
        assert!(listed.iter().all(|letter| !letter.meta.failures.is_empty()));
    }

    /// Takes items, and dies over them, or settles them; what it finished, and how many it let die.
    async fn work(&self, mut rng: Rng) -> (Vec<String>, usize) {
        let mut session = self.t.session(&self.queue);
        let (mut done, mut dead) = (Vec::new(), 0);
        while !self.over.load(Ordering::Relaxed) {
            let dies = rng.below(3) == 0;
            let length = if dies { SHORT } else { 30_000_000 };
            let mut approach = Approach::default();
            let mut take = fetch_options(rng.below(5) + 1, length, &mut approach, false);
            let Some(mut lease) = session.fetch(&self.t.db, &mut take).await.unwrap().got else {
                tokio::task::yield_now().await;
                continue;
            };
            if dies {
                continue;
            }
            let outcomes: Vec<_> = lease
                .open()
                .map(|index| (index, self.outcome(&mut rng, lease.items()[index].attempt)))
                .collect();
            lease.acknowledge(&self.t.db, &RetryPolicy::default(), &outcomes).await.unwrap();
            for (index, outcome) in outcomes {
                match outcome {
                    ItemOutcome::Done | ItemOutcome::DoneWith(_) => {
                        done.push(String::from_utf8(lease.items()[index].payload.to_vec()).unwrap());
                    }
                    ItemOutcome::Dead(_) => dead += 1,
                    ItemOutcome::Retry { .. }
                    | ItemOutcome::Release
                    | ItemOutcome::Postpone { .. }
                    | ItemOutcome::Throttle { .. }
                    | ItemOutcome::Expired { .. } => {}
                }
            }
        }
        (done, dead)
    }

    fn outcome(&self, rng: &mut Rng, attempt: u32) -> ItemOutcome {
        let failure = Failure::new(from_millis(1), attempt, "no");
        match rng.below(8) {
            0 => ItemOutcome::Release,
            1 if attempt >= MAX_ATTEMPTS => ItemOutcome::Dead(failure),
            1 => ItemOutcome::Retry { due: None, failure },
            2 => {
                ItemOutcome::Retry { due: Some(from_millis(self.clock.load(Ordering::Relaxed) + 5)), failure }
            }
            3 => ItemOutcome::Dead(failure),
            4 => ItemOutcome::Postpone { due: from_millis(self.clock.load(Ordering::Relaxed) + 5) },
            _ => ItemOutcome::Done,
        }
    }

    /// Sweeps until nothing is left that could still end.
    async fn sweep(&self) {
        let mut sweeper = sweeper(&self.queue);
        let rules = at_most(MAX_ATTEMPTS);
        while !self.over.load(Ordering::Relaxed) {
            let now = self.clock.fetch_add(1, Ordering::Relaxed);
            self.t.sweep(&mut sweeper, now, &rules).await;
            if self.t.run(async |tr| self.queue.unfinished(tr).await).await.is_none() {
                self.over.store(true, Ordering::Relaxed);
            }
            tokio::task::yield_now().await;
        }
    }
}
