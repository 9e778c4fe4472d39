//! A limit that binds is used: sessions whose commits overlap keep nearly all slots taken, and the ends of items seldom conflict.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use fdb_embedded::{Fault, Gate, HeldCommit};
use futures::poll;
use kvqueue_queue::{Lease, NewItem, Queue, Session};

use crate::common::keyed::{acknowledge, fetch, keyed, limit, running};
use crate::common::{Rng, TestDb, on_database, on_shared_database, seeds};

/// Delays what a guest and its host send to each other, in milliseconds.
const DELAY_VARIABLE: &str = "FDB_EMBEDDED_LINK_DELAY_MS";
const SESSIONS: usize = 8;
pub(crate) const SLOTS: usize = 20;
/// How many items a session can use at once: together twice as many as there are slots.
const CONSUMERS: usize = 5;
/// Steps until the slots are taken for the first time.
const WARM_UP: u64 = 200;
const STEPS: u64 = 1_000;
/// More than run in all steps.
const ITEMS: usize = 1_000;
/// A commit takes 1 to this many steps.
const LATENCY: usize = 3;
/// For how many versions a slot stays free before others take it. While the gate is closed only commits raise the version: one in three steps.
const IDLE_VERSIONS: usize = 5;
/// How long an item runs, in steps.
const RUN: std::ops::Range<usize> = 60..160;

/// What a session or a lease is at.
enum Done {
    Fetched(Box<(Session, Option<Lease>)>),
    Ended,
}

/// An operation whose commit is under way.
struct Doing<'t> {
    future: Pin<Box<dyn Future<Output = Done> + 't>>,
    commit: Option<(u64, HeldCommit)>,
    ends_item: bool,
}

/// What a run has seen after its first steps.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// In how many steps at least nine tenths of the slots were taken.
    full: usize,
    pub(crate) ends: usize,
    pub(crate) conflicts_of_ends: usize,
    pub(crate) conflicts_of_fetches: usize,
}

/// The sessions, and the leases that they hold, on one thread.
struct Crowd<'t> {
    t: &'t TestDb,
    gate: Gate,
    rng: Rng,
    step: u64,
    idle: Vec<Session>,
    held: Vec<(u64, Lease)>,
    doing: Vec<Doing<'t>>,
    seen: Seen,
}

impl<'t> Crowd<'t> {
    fn begin(&mut self) {
        let t = self.t;
        let running = |session: &Session| {
            self.held.iter().filter(|(_, lease)| lease.id().session == session.id()).count()
        };
        let wants = self.idle.extract_if(.., |session| running(session) < CONSUMERS);
        for mut session in wants.collect::<Vec<_>>() {
            let future = Box::pin(async move {
                let lease = fetch(t, &mut session, 1).await;
                Done::Fetched(Box::new((session, lease)))
            });
            self.doing.push(Doing { future, commit: None, ends_item: false });
        }
        let step = self.step;
        for (_, lease) in self.held.extract_if(.., |(end, _)| *end <= step) {
            let future = Box::pin(async move {
                acknowledge(t, lease).await;
                Done::Ended
            });
            self.doing.push(Doing { future, commit: None, ends_item: true });
        }
    }

    /// Lets commits arrive whose time has come, and goes on with what waited for them, in any order.
    async fn go_on(&mut self) {
        for at in (1..self.doing.len()).rev() {
            let other = self.rng.below(at + 1);
            self.doing.swap(at, other);
        }
        for mut doing in std::mem::take(&mut self.doing) {
            match doing.commit.take() {
                Some((due, commit)) if due > self.step => doing.commit = Some((due, commit)),
                Some((_, commit)) => self.arrive(&doing, commit),
                None => {}
            }
            if doing.commit.is_none() && !self.advance(&mut doing).await {
                continue;
            }
            self.doing.push(doing);
        }
    }

    fn arrive(&mut self, doing: &Doing<'_>, commit: HeldCommit) {
        let conflicted = commit.pass(Fault::None).is_err();
        if self.step >= WARM_UP {
            match doing.ends_item {
                true => self.seen.conflicts_of_ends += usize::from(conflicted),
                false => self.seen.conflicts_of_fetches += usize::from(conflicted),
            }
        }
    }

    /// Goes on to the next commit, or to the end. Returns whether there is a commit.
    async fn advance(&mut self, doing: &mut Doing<'_>) -> bool {
        loop {
            if let Poll::Ready(done) = poll!(doing.future.as_mut()) {
                match done {
                    Done::Fetched(fetched) => {
                        let (session, lease) = *fetched;
                        let end = self.step + (RUN.start + self.rng.below(RUN.len())) as u64;
                        self.held.extend(lease.map(|lease| (end, lease)));
                        self.idle.push(session);
                    }
                    Done::Ended => self.seen.ends += usize::from(self.step >= WARM_UP),
                }
                return false;
            }
            drop(self.gate.backoffs());
            if let Some(commit) = self.gate.arrived().pop() {
                doing.commit = Some((self.step + 1 + self.rng.below(LATENCY) as u64, commit));
                return true;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn run(mut self) -> Seen {
        while self.step < WARM_UP + STEPS {
            self.begin();
            self.go_on().await;
            let taken = self.held.len() + self.doing.iter().filter(|doing| doing.ends_item).count();
            assert!(taken <= SLOTS);
            self.seen.full += usize::from(self.step >= WARM_UP && 10 * taken >= 9 * SLOTS);
            self.step += 1;
        }
        // The gate opens, so that what is under way ends.
        for doing in std::mem::take(&mut self.doing) {
            if let Some((_, commit)) = doing.commit {
                let _told_to_its_client = commit.pass(Fault::None);
            }
        }
        self.seen
    }
}

/// Lets the sessions work for all steps. `None` on a cluster.
pub(crate) async fn run(t: &TestDb, q: &Queue, keys: &[String], seed: u64) -> Option<Seen> {
    let item = |at: usize| NewItem::new("x").with_key(keys[at % keys.len()].clone());
    let items: Vec<_> = (0..ITEMS).map(item).collect();
    t.push_items(q, &items).await;
    let idle = (0..SESSIONS).map(|_| t.session(q)).collect();
    let gate = t.close_gate()?;
    let (held, doing) = (Vec::new(), Vec::new());
    let crowd = Crowd { t, gate, rng: Rng::new(seed), step: 0, idle, held, doing, seen: Seen::default() };
    Some(crowd.run().await)
}

/// How many conflicts may be, in percent of the ends of items.
struct Most {
    of_ends: usize,
    of_fetches: usize,
}

/// Runs with `n` keys, and at most `slots` running items of each scope that the pattern matches. Sessions choose at random,
/// so that the conflicts of all runs together are judged.
fn check(pattern: &str, slots: usize, keys: impl Fn(usize) -> String, n: usize, most: &Most) {
    let mut all = Seen::default();
    for seed in seeds(3) {
        on_database(async |t| {
            let q = keyed(t);
            limit(t, &q, pattern, running(u32::try_from(slots).unwrap())).await;
            let keys: Vec<_> = (0..n).map(&keys).collect();
            let _bounds = mutant::Bounds::default().with("lane-idle", IDLE_VERSIONS).enter();
            let Some(seen) = run(t, &q, &keys, seed).await else { return };
            println!("seed {seed}: {seen:?}");
            assert!(seen.ends > 100, "{seen:?}");
            assert!(10 * seen.full >= 9 * STEPS as usize, "slots stay free: {seen:?}");
            all.ends += seen.ends;
            all.conflicts_of_ends += seen.conflicts_of_ends;
            all.conflicts_of_fetches += seen.conflicts_of_fetches;
        });
    }
    assert!(100 * all.conflicts_of_ends <= most.of_ends * all.ends, "{all:?}");
    assert!(100 * all.conflicts_of_fetches <= most.of_fetches * all.ends, "{all:?}");
}

#[test]
fn a_limit_of_the_whole_queue_is_used() {
    check("", SLOTS, |at| format!("k{at}"), 200, &Most { of_ends: 0, of_fetches: 200 });
}

#[test]
fn a_limit_of_a_tenant_is_used() {
    check("t", SLOTS, |at| format!("t/k{at}"), 200, &Most { of_ends: 5, of_fetches: 650 });
}

#[test]
fn limits_of_keys_are_used() {
    check("*", 1, |at| format!("k{at}"), SLOTS, &Most { of_ends: 5, of_fetches: 700 });
}

/// How long an item runs over a slow link, how long that is looked at, and after which time.
const SLOW_RUN: Duration = Duration::from_millis(400);
const SLOW_TIME: Duration = Duration::from_secs(3);
const SLOW_WARM_UP: Duration = Duration::from_millis(1_000);
/// How often it is looked at for that time at most, until so many slots are taken in the mean.
const SLOW_LOOKS: usize = 4;
const ENOUGH: f64 = 0.7 * SLOTS as f64;
/// How long a session waits that has found nothing, and how often the slots are counted.
const LOOK: Duration = Duration::from_millis(5);
/// Milliseconds that each way takes, as to a cluster near by.
const DELAY: &str = "3";

/// Keeps a session fetching, and starts each item. `taken` counts items until their ends are acknowledged.
async fn keep_fetching(t: Arc<TestDb>, q: Queue, taken: Arc<AtomicUsize>) {
    let mut session = t.session(&q);
    loop {
        let Some(lease) = fetch(&t, &mut session, 1).await else {
            tokio::time::sleep(LOOK).await;
            continue;
        };
        taken.fetch_add(1, Ordering::Relaxed);
        let (t, taken) = (Arc::clone(&t), Arc::clone(&taken));
        tokio::spawn(async move {
            tokio::time::sleep(SLOW_RUN).await;
            acknowledge(&t, lease).await;
            taken.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// In the process that is a guest over a slow link.
#[test]
fn guest_over_a_slow_link() {
    if std::env::var_os(DELAY_VARIABLE).is_none() {
        return;
    }
    on_shared_database(async |t| {
        let q = keyed(&t);
        limit(&t, &q, "", running(u32::try_from(SLOTS).unwrap())).await;
        let items: Vec<_> =
            (0..ITEMS).map(|at| NewItem::new("x").with_key(format!("k{}", at % 200))).collect();
        t.push_items(&q, &items).await;
        let taken = Arc::<AtomicUsize>::default();
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|_| tokio::spawn(keep_fetching(Arc::clone(&t), q.clone(), Arc::clone(&taken))))
            .collect();
        tokio::time::sleep(SLOW_WARM_UP).await;
        // On a machine that has other work, slots stay free too. A fault of the layer keeps them free each time.
        let mut means = Vec::new();
        while means.len() < SLOW_LOOKS && means.last().is_none_or(|mean| *mean < ENOUGH) {
            let (mut sum, mut looks, began) = (0, 0, Instant::now());
            while began.elapsed() < SLOW_TIME {
                let now = taken.load(Ordering::Relaxed);
                assert!(now <= SLOTS, "{now} items run");
                (sum, looks) = (sum + now, looks + 1);
                tokio::time::sleep(LOOK).await;
            }
            means.push(sum as f64 / looks as f64);
        }
        sessions.iter().for_each(tokio::task::JoinHandle::abort);
        println!("of {SLOTS} slots are taken: {means:.1?}");
        assert!(
            means.last().is_some_and(|mean| *mean >= ENOUGH),
            "slots stay free: {means:.1?} of {SLOTS} are taken"
        );
    });
}

#[test]
fn a_limit_is_used_over_a_slow_link() {
    on_database(async |t| {
        let Some(url) = t.embedded_url() else { return };
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "limits_used::guest_over_a_slow_link"])
            .env(DELAY_VARIABLE, DELAY)
            .env("KVQUEUE_TEST_CLUSTER_FILE", url)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stderr) + String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && said.contains("slots are taken:"), "{said}");
        println!("{said}");
    });
}
