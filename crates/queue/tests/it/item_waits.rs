//! Waiting for an item's end: each change of its place fires the watch, and the next look finds what became of it.

use std::time::Duration;

use futures::FutureExt;
use kvqueue_queue::{
    Failure, ItemId, ItemOutcome, ItemPlace, ItemWatch, Lease, Queue, RetryPolicy, Watch, from_millis,
};

use crate::common::{KINDS, SHORT, TestDb, later, on_database, rules, sweeper};

const LONG: u64 = 3_600_000_000;

async fn look(t: &TestDb, q: &Queue, id: &ItemId, place: Option<ItemPlace>) -> ItemWatch {
    t.run(async |tr| q.watch_item(tr, id, place).await).await
}

/// A look that finds an item that has not ended.
async fn open(t: &TestDb, q: &Queue, id: &ItemId, place: Option<ItemPlace>) -> (Watch, ItemPlace) {
    match look(t, q, id, place).await {
        ItemWatch::Open { watch, place } => (watch, place),
        ended => panic!("{ended:?}"),
    }
}

/// Waits for a watch; a wake-up that does not come in this time is a lost one.
async fn woken(watch: Watch) {
    tokio::time::timeout(Duration::from_secs(30), watch).await.expect("the watch fires").unwrap();
}

async fn extend(t: &TestDb, lease: &mut Lease) {
    lease.extend(&t.db, &RetryPolicy::default()).await.unwrap();
}

#[test]
fn each_step_of_an_item_wakes_the_waiter_in_queues_of_all_kinds() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            t.push_by(&q, 1, "x").await;
            let id = t.run(async |tr| q.oldest(tr).await).await.unwrap();
            let (ready, place) = open(t, &q, &id, None).await;
            assert_eq!(place.lease(), None);
            let mut lease = t.lease_for(&q, 1, LONG).await.unwrap();
            woken(ready).await;
            let (running, place) = open(t, &q, &id, Some(place)).await;
            assert_eq!(place.lease(), Some(lease.id()));
            t.acknowledge(&mut lease, &later(1_000)).await;
            woken(running).await;
            let (retrying, place) = open(t, &q, &id, Some(place)).await;
            assert_eq!(place.lease(), None);
            q.retry_item(&t.db, &RetryPolicy::default(), &id).await.unwrap();
            woken(retrying).await;
            let (ready, place) = open(t, &q, &id, Some(place)).await;
            let mut lease = t.lease_for(&q, 1, LONG).await.unwrap();
            woken(ready).await;
            let (running, place) = open(t, &q, &id, Some(place)).await;
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            woken(running).await;
            let end = look(t, &q, &id, Some(place)).await;
            assert!(matches!(end, ItemWatch::Gone), "{kind:?} {end:?}");
        }
    });
}

#[test]
fn a_step_between_the_look_and_its_commit_wakes_the_waiter() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["x"]).await;
        let id = t.run(async |tr| q.oldest(tr).await).await.unwrap();
        let mut place = None;
        let mut lease = None;
        // Ready, on a lease, scheduled.
        for step in 0..3 {
            let tr = t.db.create_trx().unwrap();
            let ItemWatch::Open { watch, place: found } = q.watch_item(&tr, &id, place).await.unwrap() else {
                panic!("step {step}")
            };
            match step {
                0 => lease = t.lease_for(&q, 1, LONG).await,
                1 => t.acknowledge(lease.as_mut().unwrap(), &later(1_000)).await,
                _ => drop(q.cancel_item(&t.db, &RetryPolicy::default(), &id).await.unwrap()),
            }
            tr.commit().await.unwrap();
            woken(watch).await;
            place = Some(found);
        }
        assert!(matches!(look(t, &q, &id, place).await, ItemWatch::Gone));
    });
}

#[test]
fn a_running_item_is_looked_for_on_its_lease_until_that_returns_it() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b", "c"]).await;
        let mut lease = t.lease_for(&q, 3, LONG).await.unwrap();
        let id = lease.items()[1].id.clone();
        let (watch, place) = open(t, &q, &id, None).await;
        // What wakes the waiter without a change of the item: an extension, and the end of another item.
        extend(t, &mut lease).await;
        woken(watch).await;
        let (watch, again) = open(t, &q, &id, Some(place)).await;
        assert_eq!(again, place);
        let policy = RetryPolicy::default();
        lease.acknowledge(&t.db, &policy, &[(0, ItemOutcome::Done)]).await.unwrap();
        woken(watch).await;
        let (watch, again) = open(t, &q, &id, Some(place)).await;
        assert_eq!(again, place);
        lease.acknowledge(&t.db, &policy, &[(1, ItemOutcome::Release)]).await.unwrap();
        woken(watch).await;
        let (mut ready, again) = open(t, &q, &id, Some(place)).await;
        assert_eq!(again.lease(), None);
        // The lease goes on, and is not of this item any more.
        extend(t, &mut lease).await;
        assert!((&mut ready).now_or_never().is_none());
        let mut second = t.lease_for(&q, 1, LONG).await.unwrap();
        woken(ready).await;
        // A place from long ago does not mislead.
        let (watch, again) = open(t, &q, &id, Some(place)).await;
        assert_eq!(again.lease(), Some(second.id()));
        t.acknowledge(&mut second, &ItemOutcome::Dead(Failure::new(from_millis(1), 1, "no"))).await;
        woken(watch).await;
        assert!(matches!(look(t, &q, &id, Some(again)).await, ItemWatch::Dead));
    });
}

#[test]
fn an_expired_lease_wakes_the_waiters_of_its_items() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b"]).await;
        let lease = t.lease_for(&q, 2, SHORT).await.unwrap();
        let ids: Vec<_> = lease.items().iter().map(|item| item.id.clone()).collect();
        let (first, place) = open(t, &q, &ids[0], None).await;
        let (second, _) = open(t, &q, &ids[1], None).await;
        t.sweep_leases(&q, 1, &rules()).await;
        woken(first).await;
        woken(second).await;
        let (watch, place) = open(t, &q, &ids[0], Some(place)).await;
        assert_eq!(place.lease(), None);
        // Out of attempts.
        let _lease = t.lease_for(&q, 2, SHORT).await.unwrap();
        woken(watch).await;
        let (watch, place) = open(t, &q, &ids[0], Some(place)).await;
        t.sweep_leases(&q, 1, &crate::common::at_most(2)).await;
        woken(watch).await;
        assert!(matches!(look(t, &q, &ids[0], Some(place)).await, ItemWatch::Dead));
    });
}

#[test]
fn a_promotion_and_the_deletion_of_the_queue_wake_the_waiter() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put_aside(&q, &[("x", 1_000)]).await;
        let mut due = t
            .run(async |tr| q.view(tr, kvqueue_queue::ItemState::Retrying, None, crate::common::k(1)).await)
            .await;
        let id = due.items.pop().unwrap().id;
        let (watch, place) = open(t, &q, &id, None).await;
        t.sweep(&mut sweeper(&q), 2_000, &rules()).await;
        woken(watch).await;
        let (watch, place) = open(t, &q, &id, Some(place)).await;
        t.run(async |tr| {
            q.delete(tr);
            Ok(())
        })
        .await;
        woken(watch).await;
        assert!(matches!(look(t, &q, &id, Some(place)).await, ItemWatch::Gone));
    });
}

#[test]
fn a_waiter_leaves_nothing_and_delays_no_change() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["x"]).await;
        let mut lease = t.lease_for(&q, 1, LONG).await.unwrap();
        let id = lease.items()[0].id.clone();
        let before = t.rows().await.len();
        let tr = t.db.create_trx().unwrap();
        let found = q.watch_item(&tr, &id, None).await.unwrap();
        extend(t, &mut lease).await;
        tr.commit().await.unwrap();
        assert!(matches!(found, ItemWatch::Open { .. }));
        assert_eq!(t.rows().await.len(), before);
    });
}
