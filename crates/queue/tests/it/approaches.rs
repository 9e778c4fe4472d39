//! Many sessions take from one queue at once, each as if in a process of its own: by every approach, from queues of every kind, for
//! good and on leases. Whatever the weather, what was pushed is finished, once, and nothing is left behind.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fdb_embedded::{Fault, Faults};
use futures::FutureExt;
use kvqueue_queue::{
    Approach, End, Failure, Item, ItemOutcome, Kind, Lease, Queue, RetryPolicy, Spread, Staged, from_millis,
};

use crate::common::{KINDS, Rng, TestDb, fetch_options, kinds_of_records, on_database, payloads, seeds};

const SESSIONS: u64 = 8;
const ITEMS: usize = 120;

/// Ten minutes in versions: no lease runs out.
const LONG: u64 = 600_000_000;

/// How items are taken.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    ForGood,
    OnLease,
}

fn approaches() -> [Approach; 3] {
    [Approach::Front, Approach::Spread(Spread::default()), Approach::Staged(Staged::default())]
}

/// One storm.
#[derive(Clone)]
struct Storm<'t> {
    t: &'t TestDb,
    queue: Queue,
    approach: Approach,
    mode: Mode,
    seed: u64,
    /// Whether items are there from the start.
    filled: bool,
}

#[test]
fn a_take_cut_by_its_byte_limit_does_not_report_a_short_queue() {
    on_database(async |t| {
        let q = t.queue("q");
        for _ in 0..8 {
            t.push(&q, &["x".repeat(64_000).as_str(); 10]).await;
        }
        for mode in [Mode::ForGood, Mode::OnLease] {
            let (mut approach, mut session) = (Approach::Spread(Spread::long_from(1)), t.session(&q));
            let mut take = fetch_options(70, LONG, &mut approach, false);
            let taken = match mode {
                Mode::ForGood => session.take_with(&t.db, &mut take).await.unwrap().got.len(),
                Mode::OnLease => {
                    let mut lease = session.fetch(&t.db, &mut take).await.unwrap().got.unwrap();
                    t.acknowledge(&mut lease, &ItemOutcome::Release).await;
                    lease.items().len()
                }
            };
            assert!(taken < 70);
            assert!(!format!("{approach:?}").contains("Short"), "{mode:?}: {approach:?}");
            t.push(&q, &["x".repeat(64_000).as_str(); 70]).await;
        }
    });
}

#[test]
fn a_take_reports_whether_the_queue_is_long() {
    on_database(async |t| {
        // A priority queue is taken in order, however long it is, and a keyed queue by its keys.
        let is_taken_so = |kind: &Kind| !matches!(kind, Kind::Priority(..) | Kind::Keyed);
        let kinds = KINDS.into_iter().filter(is_taken_so);
        for (i, kind) in kinds.enumerate() {
            let q = t.queue_of(format!("{i}"), kind);
            t.fill(&q, &["x"; 10]).await;
            for (runs, is_long) in [(6, false), (5, true), (4, true)] {
                // Who meets nobody does not look.
                if !t.install(Faults::script([Fault::Conflict])) {
                    return;
                }
                let (mut approach, mut session) = (Approach::Spread(Spread::long_from(runs)), t.session(&q));
                let mut take = fetch_options(2, LONG, &mut approach, false);
                let mut lease = session.fetch(&t.db, &mut take).await.unwrap().got.unwrap();
                t.acknowledge(&mut lease, &ItemOutcome::Release).await;
                let seen = format!("{approach:?}").contains(if is_long { "Long" } else { "Short" });
                assert!(seen, "{kind:?}, {runs} runs of 2 in 10 items: {approach:?}");
            }
        }
    });
}

#[test]
fn every_strategy_works_with_concurrent_producers() {
    on_database(async |t| every(t, 0, false).await);
}

#[test]
fn every_strategy_survives_faults() {
    on_database(async |t| {
        for seed in seeds(2) {
            let run = AssertUnwindSafe(every(t, seed, true)).catch_unwind().await;
            if let Err(panic) = run {
                eprintln!(
                    "seed {seed} failed; repeat it with\n  \
                     KVQUEUE_TEST_SEED={seed} cargo test -p kvqueue-queue --test it every_strategy_survives"
                );
                std::panic::resume_unwind(panic);
            }
        }
    });
}

/// Every combination of approach, kind and mode; with faults half of the kinds, by turns.
async fn every(t: &TestDb, seed: u64, foul: bool) {
    for approach in approaches() {
        for (i, kind) in KINDS.into_iter().enumerate().filter(|(i, _)| !foul || *i as u64 % 2 == seed % 2) {
            for mode in [Mode::ForGood, Mode::OnLease] {
                let queue = t.queue_of(format!("{seed} {i} {mode:?} {approach:?}"), kind);
                let storm = Storm { t, queue, approach: approach.clone(), mode, seed, filled: foul };
                let result = tokio::time::timeout(Duration::from_secs(120), storm.run());
                let conflicts =
                    result.await.unwrap_or_else(|_| panic!("{kind:?} {mode:?} {approach:?} hangs"));
                let name = format!("{approach:?}");
                let name = name.split(['(', ' ']).next().unwrap();
                println!("{name} {kind:?} {mode:?}: {conflicts} conflicts for {ITEMS} items");
            }
        }
    }
}

impl Storm<'_> {
    /// Runs it; returns the number of conflicts.
    async fn run(&self) -> u32 {
        let names: Vec<String> = (0..ITEMS).map(|n| format!("{n:03}")).collect();
        if self.filled {
            self.t.fill(&self.queue, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
            let plan = Faults::seeded(self.seed);
            if !self.t.install(plan.unknown_committed(0.1).unknown_not_committed(0.1).conflict(0.05)) {
                return 0;
            }
        }
        let finished = AtomicUsize::new(0);
        let consumers = (0..SESSIONS).map(|n| self.consume(n, &finished));
        let produce = async {
            if !self.filled {
                for pair in names.chunks(2) {
                    futures::future::join_all(pair.iter().map(|name| self.t.push_by(&self.queue, 1, name)))
                        .await;
                }
            }
        };
        let (consumed, ()) = tokio::join!(futures::future::join_all(consumers), produce);
        self.t.end_faults();
        let conflicts = consumed.iter().map(|(_, conflicts)| conflicts).sum();
        let mut all: Vec<String> = consumed.into_iter().flat_map(|(finished, _)| finished).collect();
        all.sort_unstable();
        assert_eq!(all, names);
        assert_eq!((self.t.len(&self.queue).await, self.t.list(&self.queue).await.len()), (0, 0));
        let left: BTreeSet<String> = kinds_of_records(self.t, &self.queue).await;
        // The producers' sessions are not closed.
        let expected = ["nactive", "nback", "ndone", "npop", "npush", "token", "vtime"];
        let expected = BTreeSet::from(expected.map(String::from));
        assert!(left.is_subset(&expected), "{left:?} of {:?} are left", self.queue);
        conflicts
    }

    /// One consumer; returns what it finished, and its conflicts.
    async fn consume(&self, n: u64, finished: &AtomicUsize) -> (Vec<String>, u32) {
        let (t, mut rng) = (self.t, Rng::new(self.seed * SESSIONS + n));
        let (mut session, mut approach) = (t.session(&self.queue), self.approach.clone());
        let (mut mine, mut conflicts) = (Vec::new(), 0);
        let mut last: Option<Item> = None;
        while finished.load(Ordering::SeqCst) < ITEMS {
            let mut take = fetch_options(rng.below(4) + 1, LONG, &mut approach, true);
            let watch = match self.mode {
                Mode::ForGood => {
                    let taken = session.take_with(&t.db, &mut take).await.unwrap();
                    conflicts += taken.attempts.conflicts;
                    // Nothing is given back here and nothing comes before what is there, so the order shows.
                    if self.filled && !matches!(self.approach, Approach::Spread(_)) {
                        let run = last.iter().chain(&taken.got);
                        assert!(run.is_sorted_by(|a, b| self.ordered(a, b)), "{:?}", payloads(&taken.got));
                        last = taken.got.last().cloned().or(last);
                    }
                    finished.fetch_add(taken.got.len(), Ordering::SeqCst);
                    mine.extend(payloads(&taken.got));
                    taken.watch
                }
                Mode::OnLease => {
                    let leased = session.fetch(&t.db, &mut take).await.unwrap();
                    conflicts += leased.attempts.conflicts;
                    if let Some(lease) = leased.got {
                        mine.extend(self.acknowledge(lease, &mut rng, finished).await);
                    }
                    leased.watch
                }
            };
            if let Some(watch) = watch {
                // Others may finish the last item, and then nothing comes to wake this one.
                let _ = tokio::time::timeout(Duration::from_millis(20), watch).await;
            }
        }
        assert!(session.close(&t.db).await.unwrap().is_empty());
        (mine, conflicts)
    }

    fn ordered(&self, a: &Item, b: &Item) -> bool {
        if matches!(self.queue.kind(), Kind::Priority(End::Max, _)) { a.id > b.id } else { a.id < b.id }
    }

    /// Finishes most items of a lease, and gives the others back, one way or another. Returns those finished.
    async fn acknowledge(&self, mut lease: Lease, rng: &mut Rng, finished: &AtomicUsize) -> Vec<String> {
        let mut done = Vec::new();
        let names = payloads(lease.items());
        let outcomes: Vec<_> = (0..names.len())
            .map(|index| match rng.below(8) {
                0 => (index, ItemOutcome::Release),
                1 => {
                    (index, ItemOutcome::Retry { due: None, failure: Failure::new(from_millis(0), 1, "no") })
                }
                _ => {
                    done.push(names[index].clone());
                    (index, ItemOutcome::Done)
                }
            })
            .collect();
        lease.acknowledge(&self.t.db, &RetryPolicy::default(), &outcomes).await.unwrap();
        finished.fetch_add(done.len(), Ordering::SeqCst);
        done
    }
}
