//! Keyed queues: keys take turns, and scopes have limits.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::Duration;

use fdb_embedded::Faults;
use foundationdb::tuple::{Bytes, Versionstamp, pack, unpack};
use kvqueue_queue::{
    Approach, Failure, ItemOutcome, Kind, Lease, LimitError, Limits, NewItem, Pattern, PushError,
    PushOptions, Queue, from_millis,
};
use tokio::sync::watch;

use crate::common::keyed::{
    acknowledge, fetch, idle, is_woken, keyed, limit, names, push, push_one, running, running_scopes,
};
use crate::common::{Rng, SHORT, TestDb, fetch_options, later, on_database, payloads, record, rules, seeds};

/// The rows under (q, `second`), each as what follows in its key.
async fn index(t: &TestDb, q: &Queue, second: &str) -> Vec<Vec<u8>> {
    t.records(q, second).await.into_iter().map(|(key, _)| key).collect()
}

/// How many rows there are of everything that belongs to keys with items.
async fn index_rows(t: &TestDb, q: &Queue) -> usize {
    let mut rows = 0;
    for second in ["kval", "listed", "active", "parked", "hold", "onhold"] {
        rows += index(t, q, second).await.len();
    }
    rows + running_scopes(t, q).await
}

#[test]
fn keys_take_turns_and_items_of_a_key_stay_in_order() {
    on_database(async |t| {
        let q = keyed(t);
        push(t, &q, "a", (0..20).map(|n| format!("a{n}"))).await;
        let mut session = t.session(&q);
        let mut first = fetch(t, &mut session, 6).await.unwrap();
        assert_eq!(payloads(first.items()), ["a0", "a1", "a2", "a3", "a4", "a5"]);
        // A key that comes later waits for one turn at most.
        push(t, &q, "b", ["b0"]).await;
        push(t, &q, "c", ["c0", "c1", "c2"]).await;
        let mut second = fetch(t, &mut session, 6).await.unwrap();
        assert_eq!(payloads(second.items()), ["a6", "a7", "a8", "b0", "c0", "c1"]);
        assert_eq!(t.len(&q).await, 12);
        t.acknowledge(&mut first, &ItemOutcome::Done).await;
        t.acknowledge(&mut second, &ItemOutcome::Release).await;
        // Released items come before those behind them.
        let rest = payloads(fetch(t, &mut session, 100).await.unwrap().items());
        let of = |key: &str| rest.iter().filter(|name| name.starts_with(key)).cloned().collect::<Vec<_>>();
        assert_eq!(of("a"), (6..20).map(|n| format!("a{n}")).collect::<Vec<_>>());
        assert_eq!((of("b"), of("c")), (vec!["b0".into()], vec!["c0".into(), "c1".into(), "c2".into()]));
    });
}

#[test]
fn a_key_without_items_has_no_rows() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "*", running(3)).await;
        for n in 0..50 {
            push(t, &q, &format!("key {n}"), ["x", "y"]).await;
        }
        let mut session = t.session(&q);
        let mut taken = 0;
        while let Some(mut lease) = fetch(t, &mut session, 7).await {
            taken += lease.items().len();
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        }
        assert_eq!((taken, index_rows(t, &q).await, t.len(&q).await), (100, 0, 0));
    });
}

#[test]
fn no_more_items_of_a_key_run_than_its_limit() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "tenant-*", running(2)).await;
        limit(t, &q, "tenant-vip", running(3)).await;
        for key in ["tenant-1", "tenant-vip", "free"] {
            push(t, &q, key, (0..5).map(|n| format!("{key} {n}"))).await;
        }
        let mut session = t.session(&q);
        let mut lease = fetch(t, &mut session, 100).await.unwrap();
        let of = |lease: &Lease, key: &str| {
            payloads(lease.items()).iter().filter(|name| name.starts_with(key)).count()
        };
        assert_eq!(["tenant-1", "tenant-vip", "free"].map(|key| of(&lease, key)), [2, 3, 5]);
        assert!(fetch(t, &mut session, 100).await.is_none());
        // Each slot that becomes free lets one more item run.
        let vip = payloads(lease.items()).iter().position(|name| name == "tenant-vip 0").unwrap();
        lease.acknowledge(&t.db, &Default::default(), &[(vip, ItemOutcome::Done)]).await.unwrap();
        let more = fetch(t, &mut session, 100).await.unwrap();
        assert_eq!(payloads(more.items()), ["tenant-vip 3"]);
        // A raised limit lets the others run, a lowered one none.
        limit(t, &q, "tenant-1", running(4)).await;
        limit(t, &q, "tenant-vip", running(1)).await;
        let more = fetch(t, &mut session, 100).await.unwrap();
        assert_eq!(payloads(more.items()), ["tenant-1 2", "tenant-1 3"]);
        t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        let more = fetch(t, &mut session, 100).await.unwrap();
        assert_eq!(payloads(more.items()), ["tenant-1 4"]);
        // Without a rule nothing holds the last one back.
        limit(t, &q, "tenant-vip", Limits::default()).await;
        limit(t, &q, "tenant-*", Limits::default()).await;
        let more = fetch(t, &mut session, 100).await.unwrap();
        assert_eq!(payloads(more.items()), ["tenant-vip 4"]);
    });
}

#[test]
fn limits_of_the_queue_and_of_a_tenant_hold_over_all_their_keys() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "", running(5)).await;
        limit(t, &q, "a", running(3)).await;
        limit(t, &q, "*/slow", running(1)).await;
        for host in ["slow", "x", "y"] {
            push(t, &q, &format!("a/{host}"), (0..4).map(|n| format!("a/{host} {n}"))).await;
        }
        push(t, &q, "b/slow", (0..4).map(|n| format!("b/slow {n}"))).await;
        push(t, &q, "b/z", (0..4).map(|n| format!("b/z {n}"))).await;
        let (mut session, mut leases) = (t.session(&q), Vec::new());
        let (mut done, mut running) = (0, BTreeMap::<String, usize>::new());
        let mut rng = Rng::new(1);
        loop {
            if let Some(lease) = fetch(t, &mut session, 2).await {
                for name in payloads(lease.items()) {
                    let (key, _) = name.split_once(' ').unwrap();
                    let (tenant, _) = key.split_once('/').unwrap();
                    for scope in ["", tenant, key] {
                        *running.entry(scope.to_owned()).or_default() += 1;
                    }
                }
                leases.push(lease);
            } else if leases.is_empty() {
                break;
            }
            let count = |scope: &str| running.get(scope).copied().unwrap_or_default();
            assert!(count("") <= 5 && count("a") <= 3, "{running:?}");
            assert!(count("a/slow") <= 1 && count("b/slow") <= 1, "{running:?}");
            if rng.below(2) == 0 && !leases.is_empty() {
                let mut lease = leases.swap_remove(rng.below(leases.len()));
                t.acknowledge(&mut lease, &ItemOutcome::Done).await;
                for name in payloads(lease.items()) {
                    done += 1;
                    let (key, _) = name.split_once(' ').unwrap();
                    let (tenant, _) = key.split_once('/').unwrap();
                    for scope in ["", tenant, key] {
                        *running.get_mut(scope).unwrap() -= 1;
                    }
                }
            }
        }
        assert_eq!((done, index_rows(t, &q).await), (20, 0));
    });
}

#[test]
fn keys_are_served_by_their_weights() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "heavy", Limits::default().with_weight(NonZeroU32::new(3).unwrap())).await;
        for key in ["heavy", "light"] {
            push(t, &q, key, (0..1_000).map(|_| key)).await;
        }
        let (mut session, mut heavy) = (t.session(&q), 0);
        for _ in 0..100 {
            let mut lease = fetch(t, &mut session, 10).await.unwrap();
            heavy += payloads(lease.items()).iter().filter(|name| *name == "heavy").count();
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        }
        assert!(
            (735..=765).contains(&heavy),
            "{heavy} of 1000 were of the key of weight 3, next to one of weight 1"
        );
    });
}

#[test]
fn slots_become_free_however_an_item_leaves_its_lease() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "a", running(1)).await;
        push(t, &q, "a", ["1", "2"]).await;
        let failure = || Failure::new(from_millis(1), 1, "no");
        let outcomes = [
            ItemOutcome::Release,
            ItemOutcome::Retry { due: None, failure: failure() },
            ItemOutcome::Postpone { due: from_millis(5) },
            ItemOutcome::Dead(failure()),
        ];
        let mut session = t.session(&q);
        for outcome in outcomes {
            let mut lease = fetch(t, &mut session, 5).await.unwrap();
            assert_eq!(lease.items().len(), 1, "{outcome:?}");
            assert!(fetch(t, &mut session, 5).await.is_none(), "{outcome:?}");
            t.acknowledge(&mut lease, &outcome).await;
        }
        // The first is put aside, the second a dead letter.
        assert!(fetch(t, &mut session, 5).await.is_none());
        let mut sweeper = crate::common::sweeper(&q);
        assert_eq!(t.sweep(&mut sweeper, 10, &rules()).await.moved.promoted, 1);
        // An expired lease frees its slot too.
        let mut approach = Approach::Front;
        let mut options = fetch_options(5, SHORT, &mut approach, false);
        assert!(session.fetch(&t.db, &mut options).await.unwrap().got.is_some());
        t.sweep_leases(&q, 1, &rules()).await;
        let mut lease = fetch(t, &mut session, 5).await.unwrap();
        assert_eq!(names(Some(&lease)), ["1"]);
        t.acknowledge(&mut lease, &later(20)).await;
        assert_eq!(index_rows(t, &q).await, 0);
    });
}

#[test]
fn keys_are_refused_where_a_queue_has_none_and_where_they_are_too_long() {
    on_database(async |t| {
        let refused = async |q: &Queue, item: NewItem| {
            t.session(q).push_items(&t.db, &[item], &PushOptions::default()).await.unwrap_err()
        };
        let error = refused(&t.queue("plain"), NewItem::new("x").with_key("a")).await;
        assert!(matches!(error, PushError::NoKeys { kind: Kind::Fifo }));
        let error = refused(&keyed(t), NewItem::new("x").with_key([b'x'; 257])).await;
        assert!(matches!(error, PushError::ItemKeyTooLong { len: 257, limit: 256 }));
        assert!(matches!(Pattern::keys(""), Err(LimitError::PatternLength { len: 0 })));
    });
}

#[test]
fn the_turn_of_a_key_without_a_slot_goes_to_the_next_key() {
    on_database(async |t| {
        let (q, mut leases) = (keyed(t), Vec::new());
        limit(t, &q, "a", running(1)).await;
        for key in ["a", "b", "c", "d"] {
            push(t, &q, key, [0, 1, 2].map(|n| format!("{key}{n}"))).await;
        }
        let mut session = t.session(&q);
        // Nothing is acknowledged. So `a` stands first with the third fetch, and has no slot.
        for items in [["a0", "b0"], ["c0", "d0"], ["b1", "c1"]] {
            let lease = fetch(t, &mut session, 2).await;
            assert_eq!(names(lease.as_ref()), items);
            leases.extend(lease);
        }
    });
}

#[test]
fn the_rule_of_the_whole_queue_cannot_have_what_is_for_keys() {
    on_database(async |t| {
        let (q, tr) = (keyed(t), t.db.create_trx().unwrap());
        let limits = Limits::default();
        for limits in [
            limits.with_weight(NonZeroU32::MIN),
            limits.with_ordered(true),
            limits.with_running(1).with_blocks_on_dead(false),
        ] {
            let refused = q.set_rule(&tr, &Pattern::QUEUE, &limits).await.unwrap_err();
            assert!(matches!(refused, LimitError::ForKeys), "{refused:?}");
        }
        q.set_rule(&tr, &Pattern::QUEUE, &limits.with_running(1)).await.unwrap();
    });
}

/// Producers and consumers at the same time, under random faults. Consumers without items wait on their watches alone, so a wake-up that is
/// missing stops the test.
#[test]
fn limits_hold_under_concurrency_and_faults() {
    on_database(async |t| {
        for seed in seeds(4) {
            println!("KVQUEUE_TEST_SEED={seed} cargo test -p kvqueue-queue --test it keyed::");
            let q = t.queue_of(format!("storm {seed}"), Kind::Keyed);
            // With the higher limits, fetches are far from them at times and near them at others.
            let (of_key, most, consumers) = if seed % 4 < 2 { (2, 6, 4) } else { (20, 20, 12) };
            limit(t, &q, "key-*", running(of_key)).await;
            limit(t, &q, "", running(most)).await;
            let faults =
                Faults::seeded(seed).unknown_committed(0.1).unknown_not_committed(0.1).conflict(0.05);
            if seed % 2 == 1 && !t.install(faults) {
                continue;
            }
            let most = (of_key as i32, most as i32);
            let storm =
                Storm { t, q, seed, most, running: Mutex::default(), finished: watch::Sender::default() };
            let producers = futures::future::join_all((0..PRODUCERS).map(|n| storm.produce(n)));
            let consumers = futures::future::join_all((0..consumers).map(|n| storm.consume(n)));
            let work = async { tokio::join!(producers, consumers) };
            tokio::time::timeout(Duration::from_secs(60), work).await.expect("no item is stuck");
            t.end_faults();
            storm.check_end().await;
        }
    });
}

const PRODUCERS: u64 = 3;
const ITEMS_OF_EACH: u64 = 60;

struct Storm<'t> {
    t: &'t TestDb,
    q: Queue,
    seed: u64,
    /// The limits of a key and of the queue.
    most: (i32, i32),
    /// How many items of a key run.
    running: Mutex<BTreeMap<String, i32>>,
    /// The payloads of finished items.
    finished: watch::Sender<Vec<String>>,
}

impl Storm<'_> {
    async fn produce(&self, n: u64) {
        let (mut session, mut rng) = (self.t.session(&self.q), Rng::new(self.seed * 10 + n));
        for item in 0..ITEMS_OF_EACH {
            let key = format!("key-{}", rng.below(5));
            let item = NewItem::new(format!("{key} {n} {item}")).with_key(key);
            session.push_items(&self.t.db, &[item], &PushOptions::default()).await.unwrap();
        }
    }

    async fn consume(&self, n: u64) {
        let (mut session, mut rng) = (self.t.session(&self.q), Rng::new(self.seed * 100 + n));
        let all_finished = |finished: &Vec<String>| finished.len() as u64 == PRODUCERS * ITEMS_OF_EACH;
        let mut end = self.finished.subscribe();
        while !all_finished(&self.finished.borrow()) {
            let mut approach = Approach::Front;
            let mut options = fetch_options(1 + rng.below(3), 30_000_000, &mut approach, true);
            let fetched = session.fetch(&self.t.db, &mut options).await.unwrap();
            match (fetched.got, fetched.watch) {
                (Some(lease), _) => self.handle(lease, rng.below(4) > 0).await,
                (None, Some(watch)) => {
                    tokio::select! {
                        _ = watch => {}
                        _ = end.wait_for(all_finished) => {}
                    }
                }
                (None, None) => {}
            }
        }
    }

    async fn handle(&self, mut lease: Lease, is_done: bool) {
        let names = payloads(lease.items());
        let keys = || names.iter().map(|name| name.split_once(' ').unwrap().0);
        {
            let mut running = self.running.lock().unwrap();
            keys().for_each(|key| *running.entry(key.to_owned()).or_default() += 1);
            assert!(running.values().all(|n| *n <= self.most.0), "{running:?}");
            assert!(running.values().sum::<i32>() <= self.most.1, "{running:?}");
        }
        tokio::task::yield_now().await;
        {
            // Before the commit: afterwards others may run.
            let mut running = self.running.lock().unwrap();
            keys().for_each(|key| *running.get_mut(key).unwrap() -= 1);
        }
        let outcome = if is_done { ItemOutcome::Done } else { ItemOutcome::Release };
        self.t.acknowledge(&mut lease, &outcome).await;
        if is_done {
            self.finished.send_modify(|finished| finished.extend(names));
        }
    }

    /// Each item was finished once, and every slot is free.
    async fn check_end(&self) {
        let finished: BTreeSet<String> = self.finished.borrow().iter().cloned().collect();
        assert_eq!(finished.len() as u64, PRODUCERS * ITEMS_OF_EACH);
        // It takes keys out of the index that fetches have left there.
        assert!(fetch(self.t, &mut self.t.session(&self.q), 1).await.is_none());
        assert_eq!((index_rows(self.t, &self.q).await, self.t.len(&self.q).await), (0, 0));
    }
}

/// The rows that a program in another language has to know.
#[test]
fn rows_of_a_keyed_queue_are_as_documented() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "t-*", running(1)).await;
        push(t, &q, "t-1/h", ["v"]).await;
        push(t, &q, "t-1", ["w", "x"]).await;
        let rows = t.rows().await;
        let of = |second: &str| -> Vec<(Vec<u8>, Vec<u8>)> { crate::common::records(&rows, &q, second) };
        let items = of("kval");
        let (key, stamp): (Bytes<'_>, Versionstamp) = unpack(&items[0].0).unwrap();
        assert_eq!((&*key, stamp.user_version(), items[0].1.as_slice()), (&b"t-1"[..], 0, &b"w"[..]));
        let key = |key: &'static str| pack(&(Bytes::from(key.as_bytes()),));
        assert_eq!(of("listed"), [(key("t-1"), vec![]), (key("t-1/h"), vec![])]);
        let place = |position: u64, key: &'static str| pack(&(position, Bytes::from(key.as_bytes())));
        assert_eq!(of("active"), [(place(1 << 20, "t-1"), vec![]), (place(1 << 20, "t-1/h"), vec![])]);
        assert_eq!(of("rule"), [(key("t-*"), vec![1, 4, 0, 0, 0, 1, 0, 0, 0])]);
        let mut session = t.session(&q);
        let lease = fetch(t, &mut session, 9).await.unwrap();
        assert_eq!(payloads(lease.items()), ["w"]);
        let rows = t.rows().await;
        let of = |second: &str| -> Vec<(Vec<u8>, Vec<u8>)> { crate::common::records(&rows, &q, second) };
        let one = 1_u64.to_le_bytes().to_vec();
        assert_eq!(of("running"), [(key(""), one.clone()), (key("t-1"), one)]);
        let parked = |position: u64, of: &'static str| {
            pack(&(0, Bytes::from(&b"t-1"[..]), position, Bytes::from(of.as_bytes())))
        };
        assert_eq!(of("parked"), [(parked(1 << 20, "t-1/h"), vec![]), (parked(2 << 20, "t-1"), vec![])]);
        assert_eq!((of("active"), of("rules").len(), of("vtime").len()), (vec![], 1, 1));
    });
}

#[test]
fn an_idle_consumer_is_woken_when_a_key_can_be_served() {
    on_database(async |t| {
        let q = keyed(t);
        let watch = idle(t, &q).await;
        push_one(t, &q, "a").await;
        is_woken(watch).await;
        let mut session = t.session(&q);
        let first = fetch(t, &mut session, 1).await.unwrap();
        limit(t, &q, "a", running(1)).await;
        push(t, &q, "a", ["2", "3"]).await;
        // A slot becomes free.
        let watch = idle(t, &q).await;
        acknowledge(t, first).await;
        is_woken(watch).await;
        let _second = fetch(t, &mut session, 9).await.unwrap();
        // The limit is raised.
        let watch = idle(t, &q).await;
        limit(t, &q, "a", running(2)).await;
        is_woken(watch).await;
        assert_eq!(names(fetch(t, &mut session, 9).await.as_ref()), ["3"]);
    });
}

/// An item that cannot be read does not stop the others of its key.
#[test]
fn an_unreadable_item_of_a_key_becomes_a_dead_letter() {
    on_database(async |t| {
        let q = keyed(t);
        let item = NewItem::new("bad").with_key("a").with_attribute("k", "v");
        t.push_items(&q, &[item]).await;
        push(t, &q, "a", ["good"]).await;
        let (begin, end) = q.range();
        let meta = t.rows().await.into_iter().map(|(key, _)| [t.prefix.clone(), key].concat());
        let meta = meta.filter(|key| key.starts_with(&[&begin[..begin.len() - 1], b"\x01meta\x00"].concat()));
        let keys: Vec<_> = meta.filter(|key| *key < end).collect();
        assert_eq!(keys.len(), 1);
        t.run(async |tr| {
            tr.set(&keys[0], &[1]);
            Ok(())
        })
        .await;
        let lease = fetch(t, &mut t.session(&q), 9).await;
        assert_eq!(names(lease.as_ref()), ["good"]);
        assert_eq!(t.run(async |tr| q.counts(tr).await).await.dead, 1);
    });
}

#[test]
fn a_row_that_cannot_be_read_keeps_no_key_from_a_fetch() {
    on_database(async |t| {
        let q = t.queue_of("q", Kind::Keyed);
        let items: Vec<_> = (0..20).map(|n| NewItem::new("x").with_key(format!("k{n}"))).collect();
        t.push_items(&q, &items).await;
        let alien = record(&q, "active", &[1]);
        t.run(async |tr| {
            tr.set(&alien, b"");
            Ok(())
        })
        .await;
        assert_eq!(t.lease(&q, 20).await.unwrap().items().len(), 20);
    });
}
