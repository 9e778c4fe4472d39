//! Keyed queues: how many items of a scope start in a time, and throttles.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use foundationdb::Transaction;
use kvqueue_queue::{
    Approach, AtLeast, FetchOptions, Fetched, HeldBy, ItemOutcome, Kind, Lease, Limits, Queue, Rate, Scope,
    Session, WaitsOn,
};

use crate::common::gate::overlaps;
use crate::common::keyed::{self, keyed, limit};
use crate::common::{TestDb, k, later, on_database, payloads};

async fn push(t: &TestDb, q: &Queue, key: &str, n: usize) {
    keyed::push(t, q, key, (0..n).map(|n| format!("{key} {n}"))).await;
}

fn rate(items: u32, per: Duration) -> Limits {
    Limits::default().with_rate(Rate::new(NonZeroU32::new(items).unwrap(), per).unwrap())
}

/// A rate of which nothing becomes free during a test.
fn hourly(burst: u32) -> Limits {
    let rate = Rate::new(NonZeroU32::MIN, Duration::from_secs(3_600)).unwrap();
    Limits::default().with_rate(rate.with_burst(NonZeroU32::new(burst).unwrap()))
}

async fn fetch(t: &TestDb, session: &mut Session, n: usize) -> Fetched<Option<Lease>> {
    let mut approach = Approach::Front;
    let mut options = FetchOptions::new(k(n), Duration::from_secs(30), &mut approach).with_watch(true);
    session.fetch(&t.db, &mut options).await.unwrap()
}

/// How many items of each key a fetch gets.
async fn counts(t: &TestDb, session: &mut Session, n: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let lease = fetch(t, session, n).await.got;
    for item in lease.iter().flat_map(|lease| lease.items()) {
        let key = String::from_utf8(item.id.key().unwrap()).unwrap();
        *counts.entry(key).or_default() += 1;
    }
    counts
}

fn of<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    counts.map(|(key, n)| (key.to_owned(), n)).into()
}

/// The rows under (q, `second`).
async fn rows(t: &TestDb, q: &Queue, second: &str) -> usize {
    t.records(q, second).await.len()
}

#[test]
fn each_key_starts_its_burst_and_then_waits() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "tenant-*", hourly(3)).await;
        limit(t, &q, "tenant-vip", hourly(5)).await;
        for key in ["tenant-1", "tenant-2", "tenant-vip", "other"] {
            push(t, &q, key, 10).await;
        }
        let mut session = t.session(&q);
        let first = counts(t, &mut session, 100).await;
        assert_eq!(first, of([("tenant-1", 3), ("tenant-2", 3), ("tenant-vip", 5), ("other", 10)]));
        let idle = fetch(t, &mut session, 100).await;
        assert!(idle.got.is_none() && idle.watch.is_some());
        let wait = idle.look_again_in.unwrap();
        assert!(wait > Duration::from_secs(3_000) && wait <= Duration::from_secs(3 * 3_600), "{wait:?}");
        assert_eq!((rows(t, &q, "parked").await, rows(t, &q, "timer").await), (3, 3));
        // A further push to a key that waits changes nothing of it.
        push(t, &q, "tenant-1", 1).await;
        assert!(fetch(t, &mut session, 100).await.got.is_none());
    });
}

#[test]
fn tenants_and_the_whole_queue_have_rates_of_their_own() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "t", hourly(4)).await;
        limit(t, &q, "t/*", hourly(3)).await;
        limit(t, &q, "", hourly(9)).await;
        for key in ["t/1", "t/2", "u"] {
            push(t, &q, key, 10).await;
        }
        let mut session = t.session(&q);
        let first = counts(t, &mut session, 100).await;
        assert_eq!(first["t/1"] + first["t/2"], 4, "{first:?}");
        assert_eq!(first["u"], 5);
        // For the rate of the queue no key is parked, and consumers know when to look again.
        let idle = fetch(t, &mut session, 100).await;
        assert!(idle.got.is_none() && idle.look_again_in.is_some());
        assert_eq!(rows(t, &q, "parked").await, 2);
        limit(t, &q, "", Limits::default()).await;
        assert_eq!(counts(t, &mut session, 100).await, of([("u", 5)]));
    });
}

#[test]
fn a_changed_or_removed_rate_takes_effect_at_once() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "*", hourly(1)).await;
        push(t, &q, "a", 100).await;
        push(t, &q, "b", 100).await;
        let mut session = t.session(&q);
        assert_eq!(counts(t, &mut session, 100).await, of([("a", 1), ("b", 1)]));
        let idle = fetch(t, &mut session, 100).await;
        assert!(idle.got.is_none());
        limit(t, &q, "a", rate(1_000, Duration::from_secs(1))).await;
        // The change wakes who waits.
        tokio::time::timeout(Duration::from_secs(10), idle.watch.unwrap()).await.unwrap().unwrap();
        let more = within(async || counts(t, &mut session, 100).await, |more| !more.is_empty()).await;
        assert!(more.contains_key("a") && !more.contains_key("b"), "{more:?}");
        limit(t, &q, "*", Limits::default()).await;
        limit(t, &q, "a", Limits::default()).await;
        let (mut a, mut b) = (more["a"], 0);
        while a + b < 198 {
            let more = counts(t, &mut session, 100).await;
            a += more.get("a").unwrap_or(&0);
            b += more.get("b").unwrap_or(&0);
        }
        assert_eq!((a, b, rows(t, &q, "parked").await), (99, 99, 0));
    });
}

/// What `ask` returns when it is as wanted.
async fn within<T>(mut ask: impl AsyncFnMut() -> T, is_wanted: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = ask().await;
        if is_wanted(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "it did not come in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// How many items of two keys 8 consumers start in a second, each with fetches of one item as a rate that binds makes them.
async fn starts_without_a_rate(t: &TestDb) -> f64 {
    let q = keyed(t);
    push(t, &q, "a", 1_000).await;
    push(t, &q, "b", 1_000).await;
    let (begin, span) = (Instant::now(), Duration::from_secs(1));
    let consumer = async || {
        let mut session = t.session(&q);
        let mut started = 0;
        while begin.elapsed() < span {
            let Some(mut lease) = fetch(t, &mut session, 1).await.got else { continue };
            started += lease.items().len();
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        }
        started
    };
    let started: usize = futures::future::join_all((0..8).map(|_| consumer())).await.into_iter().sum();
    t.run(async |tr| {
        q.delete(tr);
        Ok(())
    })
    .await;
    started as f64 / begin.elapsed().as_secs_f64()
}

#[test]
fn consumers_that_wait_for_timers_keep_the_rate_and_do_not_fall_behind() {
    on_database(async |t| {
        let (per_second, span) = (200, Duration::from_secs(3));
        let possible = starts_without_a_rate(t).await;
        let q = keyed(t);
        limit(t, &q, "*", rate(per_second, Duration::from_secs(1))).await;
        push(t, &q, "a", 900).await;
        push(t, &q, "b", 900).await;
        let started: Mutex<Vec<(u64, String, u64)>> = Mutex::default();
        let begin = Instant::now();
        let consumer = async || {
            let mut session = t.session(&q);
            while begin.elapsed() < span {
                let fetched = fetch(t, &mut session, 10).await;
                let Some(mut lease) = fetched.got else {
                    let wait = fetched.look_again_in.unwrap_or(Duration::from_secs(5));
                    let _ = tokio::time::timeout(wait, fetched.watch.unwrap()).await;
                    continue;
                };
                let version = fetched.version.unwrap();
                for item in lease.items() {
                    let key = String::from_utf8(item.id.key().unwrap()).unwrap();
                    started.lock().unwrap().push((version, key, 1));
                }
                t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            }
        };
        futures::future::join_all((0..8).map(|_| consumer())).await;
        let mut started = started.into_inner().unwrap();
        started.sort();
        for key in ["a", "b"] {
            let of: Vec<u64> =
                started.iter().filter(|(_, of, _)| of == key).map(|(version, ..)| *version).collect();
            // A fetch counts at the version that it reads, up to some time before its commit.
            let (burst, slack) = (21, 20);
            for (at, first) in of.iter().enumerate() {
                for (n, last) in (1..).zip(&of[at..]) {
                    let most = (last - first) * u64::from(per_second) / 1_000_000 + burst + slack;
                    assert!(n <= most, "{n} of {key} started in {} versions, {most} may", last - first);
                }
            }
            if possible < 4.0 * f64::from(per_second) {
                println!(
                    "only in part: it needs a database that starts {} items a second; here it is {possible:.0}",
                    4 * per_second
                );
                continue;
            }
            let wanted = 0.95 * f64::from(per_second) * (of[of.len() - 1] - of[0]) as f64 / 1e6;
            assert!(of.len() as f64 >= wanted, "{} of {key} started, of {wanted}", of.len());
        }
    });
}

#[test]
fn rows_of_unused_keys_do_not_gather() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "*", rate(1_000, Duration::from_millis(100))).await;
        let mut session = t.session(&q);
        for n in 0..60 {
            push(t, &q, &format!("key {n:02}"), 1).await;
            let mut lease = fetch(t, &mut session, 10).await.got.unwrap();
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            let version = t.version().await;
            t.until_past(version + 1_000).await;
        }
        let rows = rows(t, &q, "rate").await;
        assert!(rows < 20, "{rows} rows for 60 keys");
    });
}

#[test]
fn a_throttle_holds_a_key_a_tenant_or_the_queue_and_spends_no_attempt() {
    on_database(async |t| {
        for (scope, waiting) in [
            (Scope::Key, vec!["t/1"]),
            (Scope::Tenant, vec!["t/1", "t/2"]),
            (Scope::Queue, vec!["t/1", "t/2", "u"]),
        ] {
            let q = t.queue_of(format!("{scope:?}"), Kind::Keyed);
            push(t, &q, "t/1", 2).await;
            let mut session = t.session(&q);
            let mut lease = fetch(t, &mut session, 1).await.got.unwrap();
            push(t, &q, "t/2", 1).await;
            push(t, &q, "u", 1).await;
            let wait = Duration::from_secs(1);
            t.acknowledge(&mut lease, &ItemOutcome::Throttle { scope, wait }).await;
            let begin = Instant::now();
            let others: Vec<_> =
                ["t/1", "t/2", "u"].into_iter().filter(|key| !waiting.contains(key)).collect();
            let got = counts(t, &mut session, 10).await;
            assert_eq!(got.keys().collect::<Vec<_>>(), others, "{scope:?}");
            let idle = fetch(t, &mut session, 10).await;
            assert!(idle.got.is_none());
            let wait = idle.look_again_in.unwrap();
            assert!(wait <= Duration::from_secs(1), "{wait:?}");
            let lease = within(async || fetch(t, &mut session, 10).await.got, Option::is_some).await.unwrap();
            assert!(begin.elapsed() >= Duration::from_millis(900), "{:?}", begin.elapsed());
            let first = lease.items().iter().find(|item| item.payload == "t/1 0").unwrap();
            assert_eq!(first.attempt, 1);
            let mut names = payloads(lease.items());
            names.sort();
            names.dedup_by_key(|name| name[..name.len() - 2].to_owned());
            assert_eq!(names.len(), waiting.len());
            assert_eq!((rows(t, &q, "timer").await, rows(t, &q, "parked").await), (0, 0), "{scope:?}");
        }
    });
}

#[test]
fn a_shorter_throttle_does_not_end_a_longer_one() {
    on_database(async |t| {
        let q = keyed(t);
        push(t, &q, "a", 2).await;
        let mut session = t.session(&q);
        let mut first = fetch(t, &mut session, 1).await.got.unwrap();
        let mut second = fetch(t, &mut session, 1).await.got.unwrap();
        let throttle = |secs| ItemOutcome::Throttle { scope: Scope::Key, wait: Duration::from_secs(secs) };
        t.acknowledge(&mut first, &throttle(1_000)).await;
        t.acknowledge(&mut second, &throttle(1)).await;
        let idle = fetch(t, &mut session, 1).await;
        assert!(idle.got.is_none() && idle.look_again_in.unwrap() > Duration::from_secs(900));
        assert_eq!(rows(t, &q, "timer").await, 1);
        // The same goes for items that leave the queue.
        let idle = session.take(&t.db, k(1)).await.unwrap();
        assert!(idle.got.is_empty() && idle.look_again_in.unwrap() > Duration::from_secs(900));
    });
}

#[test]
fn a_throttle_of_no_key_and_of_a_queue_without_keys_is_a_release() {
    on_database(async |t| {
        let throttle = ItemOutcome::Throttle { scope: Scope::Key, wait: Duration::from_secs(1_000) };
        for kind in [Kind::Keyed, Kind::Fifo] {
            let q = t.queue_of(format!("{kind}"), kind);
            t.push(&q, &["x"]).await;
            let mut session = t.session(&q);
            let mut lease = fetch(t, &mut session, 1).await.got.unwrap();
            t.acknowledge(&mut lease, &throttle).await;
            assert!(fetch(t, &mut session, 1).await.got.is_some());
        }
    });
}

#[test]
fn an_idle_consumer_of_another_process_learns_of_a_first_timer() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "*", rate(1, Duration::from_secs(2))).await;
        let (mut one, mut other) = (t.session(&q), t.session(&q));
        let idle = fetch(t, &mut other, 1).await;
        assert!(idle.got.is_none() && idle.look_again_in.is_none());
        push(t, &q, "a", 2).await;
        idle.watch.unwrap().await.unwrap();
        // It looks again before the other one has fetched, and loses the race.
        assert!(fetch(t, &mut one, 1).await.got.is_some());
        let idle = fetch(t, &mut other, 1).await;
        assert!(idle.got.is_none() && idle.look_again_in.is_some());
        // A timer of another key that is set while it waits wakes it.
        push(t, &q, "b", 1).await;
        idle.watch.unwrap().await.unwrap();
        let idle = fetch(t, &mut other, 1).await;
        assert!(idle.got.is_some());
    });
}

#[test]
fn fetches_of_two_keys_of_a_tenant_do_not_both_take_its_last_start() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "t", hourly(1)).await;
        push(t, &q, "t/b", 1).await;
        let (mut session, mut other) = (t.session(&q), t.session(&q));
        let Some(gate) = t.close_gate() else { return };
        let early = async {
            // It comes first, so that the two fetches want different keys.
            push(t, &q, "t/a", 1).await;
            keyed::fetch(t, &mut other, 1).await
        };
        let (conflicted, late, early) = overlaps(gate, keyed::fetch(t, &mut session, 1), early).await;
        assert_eq!(keyed::names(early.as_ref()), ["t/a 0"]);
        assert!(conflicted && late.is_none(), "two items of a tenant start, and one may");
    });
}

#[test]
fn a_key_is_not_parked_for_a_timer_that_ends_meanwhile() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "t", hourly(1)).await;
        push(t, &q, "t/a", 1).await;
        let (mut session, mut other) = (t.session(&q), t.session(&q));
        assert!(keyed::fetch(t, &mut session, 1).await.is_some());
        push(t, &q, "t/a", 1).await;
        assert!(keyed::fetch(t, &mut session, 1).await.is_none());
        push(t, &q, "t/b", 1).await;
        let Some(gate) = t.close_gate() else { return };
        // The one parks t/b for the timer; the other serves the timer, whose last key is then gone.
        let timer = async {
            t.jump(86_400_000_000);
            keyed::fetch(t, &mut other, 9).await
        };
        let (conflicted, late, early) = overlaps(gate, keyed::fetch(t, &mut session, 9), timer).await;
        let started = [early, late].iter().flatten().map(|lease| lease.items().len()).sum::<usize>();
        assert!(conflicted && started == 1, "{started} items start");
        assert!(!t.records(&q, "timer").await.is_empty(), "a key waits, and there is no timer");
    });
}

#[test]
fn the_reason_why_an_item_waits_can_be_read() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "slow", hourly(1)).await;
        limit(t, &q, "two", Limits::default().with_running(2)).await;
        limit(t, &q, "line", Limits::default().with_ordered(true)).await;
        push(t, &q, "line", 2).await;
        let mut session = t.session(&q);
        let mut first = fetch(t, &mut session, 1).await.got.unwrap();
        let held = first.items()[0].id.clone();
        t.acknowledge(&mut first, &later(4_000_000_000_000)).await;
        for key in ["slow", "two", "free"] {
            push(t, &q, key, 4).await;
        }
        let lease = fetch(t, &mut session, 5).await.got.unwrap();
        assert!(fetch(t, &mut session, 1).await.got.is_some());
        let items = t.run(async |tr| q.peek_k(tr, k(99)).await).await;
        let last = |key: &str| {
            let of = items.iter().filter(|item| item.id.key().as_deref() == Some(key.as_bytes()));
            of.last().unwrap().id.clone()
        };
        let waiting = async |id| t.run(async |tr| q.waiting(tr, &id).await).await;
        let slow = waiting(last("slow")).await.unwrap();
        let WaitsOn::Start { scope, wait, throttled: false } = slow.on else { panic!("{slow:?}") };
        assert!(scope == b"slow" && wait > Duration::from_secs(3_000), "{wait:?}");
        assert_eq!(slow.items_before, AtLeast { counted: 2, is_all: true });
        let two = waiting(last("two")).await.unwrap();
        assert_eq!(two.on, WaitsOn::Slot { scope: b"two".to_vec(), running: 2, most: 2 });
        assert_eq!(two.keys_before, Some(AtLeast { counted: 0, is_all: true }));
        assert_eq!(waiting(last("free")).await.unwrap().on, WaitsOn::Turn);
        let line = waiting(last("line")).await.unwrap();
        assert_eq!(line.on, WaitsOn::Hold(HeldBy::Scheduled(held)));
        assert_eq!(waiting(lease.items()[0].id.clone()).await, None);
    });
}

#[test]
fn versions_that_went_back_stop_no_key() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "*", rate(1, Duration::from_secs(1))).await;
        push(t, &q, "a", 3).await;
        let mut session = t.session(&q);
        assert!(fetch(t, &mut session, 1).await.got.is_some());
        assert!(fetch(t, &mut session, 1).await.got.is_none());
        // As a restore into a younger database leaves it: what was paid, and the timer, are far ahead.
        let far = t.version().await + 86_400_000_000;
        t.run(async |tr: &Transaction| {
            shift(t, &q, tr, far).await;
            Ok(())
        })
        .await;
        let begin = Instant::now();
        within(async || fetch(t, &mut session, 1).await.got, Option::is_some).await;
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    });
}

/// Moves the only timer and the debt of the only scope to `far`.
async fn shift(t: &TestDb, q: &Queue, tr: &Transaction, far: u64) {
    use foundationdb::tuple::{Bytes, pack};
    let timer = t.records(q, "timer").await;
    let rate = t.records(q, "rate").await;
    assert_eq!((timer.len(), rate.len()), (1, 1));
    let row = |second: &str, rest: &[u8]| crate::common::record(q, second, rest);
    tr.clear(&row("timer", &timer[0].0));
    let place = [pack(&far), pack(&Bytes::from(&b"a"[..]))].concat();
    tr.set(&row("timer", &place), &[&far.to_le_bytes()[..], &[1]].concat());
    tr.set(&row("rate", &rate[0].0), &[far.to_le_bytes(), far.to_le_bytes()].concat());
}

#[test]
fn rates_without_an_effect_are_cleared_by_sweepers() {
    let _bounds = mutant::Bounds::default().with("rates-page", 3).enter();
    on_database(async |t| {
        let q = keyed(t);
        // Paid for a version that is past, or for one that has not come; and with a timer.
        let far = u64::MAX / 2;
        for (n, (paid, timer)) in [(1, 0), (far, 0), (0, far)].into_iter().cycle().take(30).enumerate() {
            let key = crate::common::record(&q, "rate", format!("\x01key {n:02}\0").as_bytes());
            t.run(async |tr| {
                tr.set(&key, &[paid.to_le_bytes(), u64::to_le_bytes(timer)].concat());
                Ok(())
            })
            .await;
        }
        let mut sweeper = crate::common::sweeper(&q);
        for _ in 0..30 {
            t.sweep(&mut sweeper, 1, &crate::common::rules()).await;
        }
        let left = t.records(&q, "rate").await;
        assert!(left.len() == 20 && left.iter().all(|(_, value)| value[..8] != 1_u64.to_le_bytes()));
    });
}
