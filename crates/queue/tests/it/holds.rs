//! Holds of ordered keys: transactions that overlap, and everything at the same time.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use fdb_embedded::Faults;
use kvqueue_queue::{
    Approach, HeldBy, ItemChange, ItemId, ItemOutcome, Kind, Lease, LeaseError, Limits, NewItem, PushOptions,
    Queue, RetryPolicy, RetryRules, Session, from_millis,
};
use tokio::sync::watch;

use crate::common::gate::overlaps;
use crate::common::keyed::{fetch, limit, names, push_one};
use crate::common::ordered::{
    blocked, blocking, dead, has_no_rows, held, is_idle, ordered, queue, run_one, run_rest, unblock,
};
use crate::common::{Rng, SHORT, TestDb, fetch_options, later, on_database, payloads, rules, seeds, sweeper};

/// Two items of the key `a` ran when it became ordered, and both are scheduled again. The key is on hold.
async fn two_holds(t: &TestDb) -> (Queue, Session, [ItemId; 2]) {
    let (q, mut session) = queue(t, Limits::default(), &["1", "2", "3"]).await;
    let mut lease = fetch(t, &mut session, 2).await.unwrap();
    limit(t, &q, "*", ordered()).await;
    t.acknowledge(&mut lease, &later(10)).await;
    assert!(is_idle(t, &mut session).await);
    let ids = [0, 1].map(|at: usize| lease.items()[at].id.clone());
    (q, session, ids)
}

#[test]
fn a_key_with_two_holds_goes_on_after_both() {
    on_database(async |t| {
        let (q, mut session, [first, second]) = two_holds(t).await;
        assert_eq!(held(t, &q).await, [(b"a".to_vec(), HeldBy::Scheduled(first.clone()))]);
        q.retry_item(&t.db, &RetryPolicy::default(), &second).await.unwrap();
        assert!(is_idle(t, &mut session).await);
        q.retry_item(&t.db, &RetryPolicy::default(), &first).await.unwrap();
        assert_eq!(run_rest(t, &mut session).await, ["1", "2", "3"]);
        assert!(has_no_rows(t, &q).await);
    });
}

#[test]
fn a_key_whose_two_holds_end_at_the_same_time_goes_on() {
    on_database(async |t| {
        let (q, mut session, [first, second]) = two_holds(t).await;
        let policy = RetryPolicy::default();
        let Some(gate) = t.close_gate() else { return };
        let late = q.delete_item(&t.db, &policy, &first);
        let early = q.delete_item(&t.db, &policy, &second);
        let (conflicted, late, early) = overlaps(gate, late, early).await;
        assert!([late, early].into_iter().all(|change| matches!(change.unwrap(), ItemChange::Done(_))));
        assert!(conflicted, "both give the key its place back");
        assert_eq!(run_rest(t, &mut session).await, ["3"]);
        assert!(has_no_rows(t, &q).await);
    });
}

/// Fetches for good take no slot, so the limit of one running item does not keep them back.
#[test]
fn a_fetch_for_good_does_not_take_an_item_of_a_key_that_is_held_meanwhile() {
    on_database(async |t| {
        let (q, mut session) = queue(t, ordered(), &["1"]).await;
        let mut lease = fetch(t, &mut session, 1).await.unwrap();
        push_one(t, &q, "a").await;
        let Some(gate) = t.close_gate() else { return };
        let (outcome, mut approach) = (later(10), Approach::Front);
        let mut options = fetch_options(1, 0, &mut approach, false);
        let take = session.take_with(&t.db, &mut options);
        let (conflicted, taken, ()) = overlaps(gate, take, t.acknowledge(&mut lease, &outcome)).await;
        assert!(conflicted && taken.unwrap().got.is_empty());
    });
}

#[test]
fn a_hold_that_ends_twice_is_counted_once() {
    on_database(async |t| {
        let (q, mut session) = queue(t, blocking(), &["1"]).await;
        let id = run_one(t, &mut session, "1", &dead()).await;
        let Some(gate) = t.close_gate() else { return };
        let purge = t.run(async |tr| q.dead_purge(tr, &id).await);
        let (conflicted, purged, was_held) = overlaps(gate, purge, unblock(t, &q, "a")).await;
        assert!(conflicted && purged && was_held);
        assert_eq!(blocked(t, &q).await, 0);
    });
}

/// The key `a` is held and still active, and has a ready item.
async fn held_and_active(t: &TestDb) -> (Queue, Session) {
    let (q, mut session) = queue(t, ordered(), &["1"]).await;
    run_one(t, &mut session, "1", &later(10)).await;
    push_one(t, &q, "a").await;
    (q, session)
}

#[test]
fn a_key_is_not_put_on_hold_for_a_hold_that_ends_meanwhile() {
    on_database(async |t| {
        let (q, mut session) = held_and_active(t).await;
        let Some(gate) = t.close_gate() else { return };
        let (conflicted, lease, was_held) =
            overlaps(gate, fetch(t, &mut session, 1), unblock(t, &q, "a")).await;
        assert!(conflicted && was_held, "the key is on hold, and nobody makes it active again");
        assert_eq!(names(lease.as_ref()), ["a"]);
    });
}

#[test]
fn the_end_of_a_hold_sees_a_key_that_is_put_on_hold_meanwhile() {
    on_database(async |t| {
        let (q, mut session) = held_and_active(t).await;
        let Some(gate) = t.close_gate() else { return };
        let (conflicted, was_held, none) =
            overlaps(gate, unblock(t, &q, "a"), fetch(t, &mut session, 1)).await;
        assert!(conflicted && was_held && none.is_none());
        let lease = fetch(t, &mut session, 1).await;
        assert_eq!(names(lease.as_ref()), ["a"], "the key is on hold, and nobody makes it active again");
    });
}

#[test]
fn a_hold_and_a_change_of_the_rules_do_not_miss_each_other() {
    on_database(async |t| {
        for is_late in [true, false] {
            let (q, mut session) = queue(t, blocking(), &["1", "2"]).await;
            let mut lease: Lease = fetch(t, &mut session, 1).await.unwrap();
            let Some(gate) = t.close_gate() else { return };
            let outcome = dead();
            let change = limit(t, &q, "*", ordered());
            let end = t.acknowledge(&mut lease, &outcome);
            let (conflicted, ..) = match is_late {
                true => overlaps(gate, end, change).await,
                false => overlaps(gate, change, end).await,
            };
            assert!(conflicted);
            assert_eq!(run_rest(t, &mut session).await, ["2"]);
            assert!(has_no_rows(t, &q).await, "a hold stays that the rules do not ask for");
        }
    });
}

const PRODUCERS: u64 = 2;
const CONSUMERS: u64 = 4;
const KEYS: u64 = 5;
const ITEMS_OF_EACH: u64 = 12;

/// Producers, consumers, a sweeper and an operator at the same time, under random faults. Consumers fail, die, and declare items dead, which
/// block their keys until the operator retries them. Consumers without items wait on their watches alone.
#[test]
fn items_of_a_key_run_in_order_under_concurrency_and_faults() {
    on_database(async |t| {
        for seed in seeds(4) {
            println!("KVQUEUE_TEST_SEED={seed} cargo test -p kvqueue-queue --test it holds::");
            let q = t.queue_of(format!("storm {seed}"), Kind::Keyed);
            limit(t, &q, "*", blocking()).await;
            limit(t, &q, "", Limits::default().with_running(3)).await;
            let faults =
                Faults::seeded(seed).unknown_committed(0.1).unknown_not_committed(0.1).conflict(0.05);
            if seed % 2 == 1 && !t.install(faults) {
                return;
            }
            let storm = Storm { t, q, seed, begun: Mutex::default(), finished: watch::Sender::default() };
            let producers = futures::future::join_all((0..PRODUCERS).map(|n| storm.produce(n)));
            let consumers = futures::future::join_all((0..CONSUMERS).map(|n| storm.consume(n)));
            let work = async { tokio::join!(producers, consumers, storm.operate()) };
            tokio::time::timeout(Duration::from_secs(60), work).await.expect("no item is stuck");
            t.end_faults();
            assert!(fetch(t, &mut t.session(&storm.q), 1).await.is_none());
            assert!(has_no_rows(t, &storm.q).await);
        }
    });
}

struct Storm<'t> {
    t: &'t TestDb,
    q: Queue,
    seed: u64,
    /// The number of the last item of each key that a handler has finished, whether or not the acknowledgement has arrived.
    begun: Mutex<BTreeMap<String, u64>>,
    /// How many items were acknowledged.
    finished: watch::Sender<u64>,
}

impl Storm<'_> {
    /// Pushes the items of its own keys, numbered from 1.
    async fn produce(&self, n: u64) {
        let mut session = self.t.session(&self.q);
        for number in 1..=ITEMS_OF_EACH {
            for key in (0..KEYS).filter(|key| key % PRODUCERS == n) {
                let item = NewItem::new(format!("{key} {number}")).with_key(format!("{key}"));
                session.push_items(&self.t.db, &[item], &PushOptions::default()).await.unwrap();
            }
        }
    }

    fn is_over(finished: &u64) -> bool {
        *finished == KEYS * ITEMS_OF_EACH
    }

    async fn consume(&self, n: u64) {
        let (mut session, mut rng) = (self.t.session(&self.q), Rng::new(self.seed * 100 + n));
        let mut end = self.finished.subscribe();
        while !Storm::is_over(&self.finished.borrow()) {
            let dies = rng.below(12) == 0;
            let (mut approach, length) = (Approach::Front, if dies { SHORT } else { 60_000_000 });
            let mut options = fetch_options(1 + rng.below(3), length, &mut approach, true);
            let fetched = session.fetch(&self.t.db, &mut options).await.unwrap();
            match (fetched.got, fetched.watch) {
                (Some(lease), _) if dies => self.begin(&lease),
                (Some(lease), _) => self.handle(lease, &mut rng).await,
                (None, Some(watch)) => {
                    tokio::select! {
                        _ = watch => {}
                        _ = end.wait_for(Storm::is_over) => {}
                    }
                }
                (None, None) => {}
            }
        }
    }

    /// Each item is the next one of its key, or the last one again, whose acknowledgement did not arrive.
    fn begin(&self, lease: &Lease) {
        let begun = self.begun.lock().unwrap();
        for name in payloads(lease.items()) {
            let (key, number) = name.split_once(' ').unwrap();
            let (last, number) = (begun.get(key).copied().unwrap_or(0), number.parse::<u64>().unwrap());
            assert!(number == last + 1 || number == last && last > 0, "{name} runs after {last}");
        }
    }

    async fn handle(&self, mut lease: Lease, rng: &mut Rng) {
        self.begin(&lease);
        tokio::task::yield_now().await;
        for index in 0..lease.items().len() {
            let outcome = match rng.below(10) {
                0 => ItemOutcome::Release,
                1 | 2 => later(5),
                3 => ItemOutcome::Postpone { due: from_millis(5) },
                4 => dead(),
                _ => ItemOutcome::Done,
            };
            let is_done = outcome == ItemOutcome::Done;
            if is_done {
                let name = payloads(&lease.items()[index..=index]).remove(0);
                let (key, number) = name.split_once(' ').unwrap();
                // Before the commit: afterwards the next item may run.
                self.begun.lock().unwrap().insert(key.to_owned(), number.parse().unwrap());
            }
            match lease.acknowledge(&self.t.db, &RetryPolicy::default(), &[(index, outcome)]).await {
                Ok(()) if is_done => self.finished.send_modify(|finished| *finished += 1),
                Ok(()) => {}
                Err(LeaseError::Lost) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Sweeps, and retries dead letters.
    async fn operate(&self) {
        let (db, policy) = (&self.t.db, RetryPolicy::default());
        let retry = RetryRules { base: Duration::from_millis(5), ..RetryRules::default() };
        let (mut sweeper, rules, mut now) = (sweeper(&self.q), rules().with_retry(retry), 0);
        while !Storm::is_over(&self.finished.borrow()) {
            now += 1_000_000;
            sweeper.sweep(db, &|| from_millis(now), &rules).await.unwrap();
            self.q.retry_all_dead(db, &policy, None).await.unwrap();
            tokio::task::yield_now().await;
        }
    }
}
