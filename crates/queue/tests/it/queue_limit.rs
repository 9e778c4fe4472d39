//! A limit of the whole queue: consumers wait for its slots, and keys do not.

use std::time::{Duration, Instant};

use fdb_embedded::Gate;
use foundationdb::tuple::{Bytes, pack};
use kvqueue_queue::{Approach, FetchOptions, Lease, Queue, Session, Watch};
use mutant::Bounds;

use crate::common::gate::overlaps;
use crate::common::keyed::{
    acknowledge, fetch, idle, is_woken, keyed, limit, names, push, push_one, running,
};
use crate::common::{TestDb, k, on_database, record};

/// How many rows there are under (q, `second`).
async fn rows(t: &TestDb, q: &Queue, second: &str) -> usize {
    t.records(q, second).await.len()
}

#[test]
fn no_key_is_parked_while_a_queue_has_no_slot() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "", running(2)).await;
        for key in ["a", "b", "c", "d"] {
            push_one(t, &q, key).await;
        }
        let mut session = t.session(&q);
        // Of a fetch that asks for more it gets as many as may run.
        let mut lease = fetch(t, &mut session, 9).await.unwrap();
        assert_eq!(names(Some(&lease)), ["a", "b"]);
        assert!(fetch(t, &mut session, 9).await.is_none());
        assert_eq!((rows(t, &q, "active").await, rows(t, &q, "parked").await), (2, 0));
        lease
            .acknowledge(&t.db, &Default::default(), &[(1, kvqueue_queue::ItemOutcome::Done)])
            .await
            .unwrap();
        assert_eq!(names(fetch(t, &mut session, 9).await.as_ref()), ["c"]);
        assert!(fetch(t, &mut session, 9).await.is_none());
    });
}

#[test]
fn an_idle_consumer_of_a_full_queue_is_woken_by_an_end_and_by_a_higher_limit() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "", running(1)).await;
        push_one(t, &q, "a").await;
        push_one(t, &q, "b").await;
        let first = fetch(t, &mut t.session(&q), 1).await.unwrap();
        let watches: [Watch; 2] = [idle(t, &q).await, idle(t, &q).await];
        acknowledge(t, first).await;
        for watch in watches {
            is_woken(watch).await;
        }
        let _second = fetch(t, &mut t.session(&q), 1).await.unwrap();
        let watch = idle(t, &q).await;
        push_one(t, &q, "c").await;
        limit(t, &q, "", running(2)).await;
        is_woken(watch).await;
        assert_eq!(names(fetch(t, &mut t.session(&q), 9).await.as_ref()), ["c"]);
    });
}

#[test]
fn a_consumer_that_finds_a_queue_full_is_woken_by_an_end_that_commits_meanwhile() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "", running(1)).await;
        push_one(t, &q, "a").await;
        push_one(t, &q, "b").await;
        let first = fetch(t, &mut t.session(&q), 1).await.unwrap();
        let Some(gate) = t.close_gate() else { return };
        // The end has read before the consumer looks, and commits afterwards.
        let (conflicted, (), watch) = overlaps(gate, acknowledge(t, first), idle(t, &q)).await;
        assert!(!conflicted, "an end of an item conflicts with a consumer that has only looked");
        is_woken(watch).await;
        assert_eq!(names(fetch(t, &mut t.session(&q), 9).await.as_ref()), ["b"]);
    });
}

/// A session that leaves the only free slot to others: it has lost a race for one. It has an item that runs, on the second lease.
async fn session_that_leaves_a_slot(t: &TestDb, q: &Queue, gate: impl Fn() -> Gate) -> (Session, Lease) {
    loop {
        let (mut session, mut other) = (t.session(q), t.session(q));
        let lease = fetch(t, &mut session, 1).await.unwrap();
        let (_, late, early) = overlaps(gate(), fetch(t, &mut session, 1), fetch(t, &mut other, 1)).await;
        // The slot is free again, and mostly in the lane of the other session.
        for lease in [late, early].into_iter().flatten() {
            acknowledge(t, lease).await;
        }
        let (mut approach, k) = (Approach::Front, k(1));
        let mut options = FetchOptions::new(k, Duration::from_secs(30), &mut approach);
        let fetched = session.fetch(&t.db, &mut options).await.unwrap();
        match fetched.got {
            None => {
                assert!(fetched.is_full && fetched.look_again_in.is_some(), "{fetched:?}");
                return (session, lease);
            }
            Some(second) => {
                acknowledge(t, second).await;
                acknowledge(t, lease).await;
            }
        }
    }
}

#[test]
fn a_session_that_leaves_slots_to_others_is_woken_by_its_own_ends_and_takes_what_stays_free() {
    on_database(async |t| {
        // Longer than the test takes.
        let patient = Bounds::default().with("lane-idle", 600_000_000).enter();
        let q = keyed(t);
        limit(t, &q, "", running(8)).await;
        // A fetch that takes the last item of a key may conflict with a push, which is no lost race.
        for key in ["a", "b", "c", "d"] {
            push(t, &q, key, ["x"; 100]).await;
        }
        let mut other = t.session(&q);
        let mut six = Vec::new();
        for _ in 0..6 {
            six.push(fetch(t, &mut other, 1).await.unwrap());
        }
        let Some(gate) = t.close_gate() else { return };
        drop(gate);
        let (mut session, lease) = session_that_leaves_a_slot(t, &q, || t.close_gate().unwrap()).await;
        let mut approach = Approach::Front;
        let mut options = FetchOptions::new(k(1), Duration::from_secs(30), &mut approach).with_watch(true);
        let fetched = session.fetch(&t.db, &mut options).await.unwrap();
        acknowledge(t, lease).await;
        is_woken(fetched.watch.unwrap()).await;
        let _own = fetch(t, &mut session, 1).await.expect("its own slot is free");
        assert!(fetch(t, &mut session, 1).await.is_none());
        drop(patient);
        let _bounds = Bounds::default().with("lane-idle", 2_000).enter();
        let began = Instant::now();
        while fetch(t, &mut session, 1).await.is_none() {
            assert!(began.elapsed() < Duration::from_secs(10), "the slot stays free");
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    });
}

/// An earlier version parked keys that found no slot of the queue.
#[test]
fn keys_that_an_earlier_version_parked_for_a_slot_of_the_queue_come_out() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "", running(3)).await;
        let keys: Vec<String> = (0..200).map(|n| format!("k{n:03}")).collect();
        for key in &keys {
            push_one(t, &q, key).await;
        }
        let active = t.records(&q, "active").await;
        assert_eq!(active.len(), keys.len());
        let under_the_queue = pack(&(0, Bytes::from(&b""[..])));
        t.run(async |tr| {
            for (row, _) in &active {
                tr.clear(&record(&q, "active", row));
                tr.set(&record(&q, "parked", &[under_the_queue.as_slice(), row].concat()), b"");
            }
            Ok(())
        })
        .await;
        let mut session = t.session(&q);
        let mut handled = Vec::new();
        while let Some(mut lease) = fetch(t, &mut session, 2).await {
            handled.extend(names(Some(&lease)));
            t.acknowledge(&mut lease, &kvqueue_queue::ItemOutcome::Done).await;
        }
        handled.sort();
        assert_eq!(handled, keys);
        assert_eq!(rows(t, &q, "parked").await, 0);
    });
}
