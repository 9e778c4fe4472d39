//! Pausing a queue.

use std::num::NonZeroUsize;
use std::time::{Duration, SystemTime};

use foundationdb::Transaction;
use futures::FutureExt;
use kvqueue_queue::{
    Failure, ItemOutcome, Kind, LimitError, Limits, Movable, Mover, NewItem, Pattern, Pause, ProduceError,
    Producer, PushOptions, Queue, QueueError, RetryPolicy, Watch, from_millis, migration, queues,
};

use crate::common::{KINDS, TestDb, kinds_of_records, on_database, record, session_id};

async fn woken(watch: Watch) {
    tokio::time::timeout(Duration::from_secs(30), watch).await.expect("the watch fires").unwrap();
}

/// Writes in a transaction of its own.
async fn write(t: &TestDb, body: impl Fn(&Transaction)) {
    t.run(async |tr| {
        body(tr);
        Ok(())
    })
    .await;
}

/// Freezes a queue, and waits until no session relies on what it knew before.
async fn freeze(t: &TestDb, q: &Queue, frozen: &Pause) {
    write(t, |tr| q.pause(tr, frozen)).await;
    let by = t.run(migration::version).await;
    while t.run(migration::version).await < by + 100_000 {
        tokio::task::yield_now().await;
    }
}

async fn found(t: &TestDb) -> usize {
    t.run(async |tr| queues(tr, &t.prefix).await).await.len()
}

#[test]
fn a_queue_is_paused_until_it_is_resumed() {
    on_database(async |t| {
        let (q, other) = (t.queue("q"), t.queue("q2"));
        let paused = async |queue: &Queue| t.run(async |tr| queue.paused(tr).await).await;
        assert_eq!(paused(&q).await, None);
        let first = Pause { at: from_millis(5), frozen: false, reason: "maintenance".to_owned() };
        write(t, |tr| q.pause(tr, &first)).await;
        assert_eq!((paused(&q).await, paused(&other).await), (Some(first), None));
        let second = Pause { at: from_millis(6), frozen: true, reason: "moving".to_owned() };
        write(t, |tr| q.pause(tr, &second)).await;
        assert_eq!(paused(&q).await, Some(second));
        write(t, |tr| q.resume(tr)).await;
        assert_eq!(paused(&q).await, None);
        assert!(t.rows().await.is_empty());
    });
}

#[test]
fn pause_watches_fire_on_pause_and_resume_and_not_on_pushes() {
    on_database(async |t| {
        let q = t.queue("q");
        let watched = async || {
            let tr = t.db.create_trx().unwrap();
            let watch = (q.watch_pause(&tr),);
            tr.commit().await.unwrap();
            watch
        };
        let mut paused = watched().await.0;
        t.push(&q, &["item"]).await;
        t.run(async |tr| q.pop(tr).await).await;
        assert!((&mut paused).now_or_never().is_none());
        write(t, |tr| q.pause(tr, &Pause::default())).await;
        woken(paused).await;
        let resumed = watched().await.0;
        write(t, |tr| q.resume(tr)).await;
        woken(resumed).await;
    });
}

#[test]
fn a_pause_creates_no_queue_and_is_deleted_with_it() {
    on_database(async |t| {
        let q = t.queue("q");
        write(t, |tr| q.pause(tr, &Pause::default())).await;
        assert_eq!(found(t).await, 0);
        t.push(&q, &["item"]).await;
        assert_eq!(found(t).await, 1);
        assert!(kinds_of_records(t, &q).await.contains("pause"));
        write(t, |tr| q.delete(tr)).await;
        assert!(t.rows().await.is_empty());
    });
}

#[test]
fn an_unreadable_pause_record_freezes_the_queue() {
    on_database(async |t| {
        let q = t.queue("q");
        write(t, |tr| tr.set(&record(&q, "pause", b""), b"\x09later version")).await;
        let unknown = Pause { at: from_millis(0), frozen: true, reason: String::new() };
        assert_eq!(t.run(async |tr| q.paused(tr).await).await, Some(unknown));
    });
}

#[test]
fn a_frozen_queue_refuses_every_push() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            let named = PushOptions::default().with_idempotency_key(b"op".to_vec());
            let mut session = t.session(&q);
            session.push_items(&t.db, &[NewItem::new("before")], &named).await.unwrap();
            let (producer, driver) = Producer::new(t.session(&q), t.handle());
            let driver = tokio::spawn(driver.run());
            producer.push(NewItem::new("before")).await.unwrap();
            write(t, |tr| q.pause(tr, &Pause::default())).await;
            session.push(&t.db, &["paused only"]).await.unwrap();

            let frozen = Pause { at: from_millis(6), frozen: true, reason: "moving".to_owned() };
            freeze(t, &q, &frozen).await;
            let refused = session.push(&t.db, &["never"]).await.unwrap_err();
            assert_eq!(refused.frozen(), Some(&frozen), "{refused:?}");
            assert!(!refused.is_maybe_committed());
            let ProduceError::Push(refused) = producer.push(NewItem::new("never")).await.unwrap_err() else {
                panic!("the driver has ended")
            };
            assert_eq!(refused.frozen(), Some(&frozen));
            let tr = t.db.create_trx().unwrap();
            let mut pusher = q.pusher(&tr).seeded(session_id().0);
            let refused =
                pusher.push_items(&[NewItem::new("never")], &PushOptions::default()).await.unwrap_err();
            assert_eq!(refused.frozen(), Some(&frozen));
            if kind == Kind::Fifo {
                assert_eq!(pusher.push(b"never").await.unwrap_err().frozen(), Some(&frozen));
            }
            // What was pushed before is known all the same.
            let again = session.push_items(&t.db, &[NewItem::new("before")], &named).await.unwrap();
            assert!(again.repeated);
            assert_eq!(t.len(&q).await, 3);

            write(t, |tr| q.resume(tr)).await;
            session.push(&t.db, &["after"]).await.unwrap();
            assert_eq!(t.len(&q).await, 4);
            drop(producer);
            driver.await.unwrap().unwrap();
        }
    });
}

#[test]
fn a_frozen_queue_refuses_every_change_of_an_operator() {
    on_database(async |t| {
        let (q, other) = (t.queue("q"), t.queue("other"));
        let mut session = t.session(&q);
        session.push(&t.db, &["dead", "ready"]).await.unwrap();
        let later = NewItem::new("later").with_due(SystemTime::now() + Duration::from_secs(3_600));
        session.push_items(&t.db, &[later], &PushOptions::default()).await.unwrap();
        let mut lease = t.lease(&q, 1).await.unwrap();
        let id = lease.items()[0].id.clone();
        t.acknowledge(&mut lease, &ItemOutcome::Dead(Failure::new(from_millis(0), 1, "no"))).await;
        let ready = t.run(async |tr| q.peek_k(tr, NonZeroUsize::MIN).await).await[0].id.clone();
        freeze(t, &q, &Pause { frozen: true, ..Pause::default() }).await;
        let (before, policy) = (t.rows().await, RetryPolicy::default());
        let (db, p) = (&t.db, &policy);
        let mut mover = Mover::new(q.clone(), other.clone(), Movable::Ready).unwrap();
        for refused in [
            q.retry_all_dead(db, p, None).await.map(drop),
            q.purge_all_dead(db, p, None).await.map(drop),
            q.requeue_scheduled(db, p, None).await.map(drop),
            q.retry_dead(db, p, &id).await.map(drop),
            q.purge_dead(db, p, &id).await.map(drop),
            q.delete_item(db, p, &ready).await.map(drop),
            q.retry_item(db, p, &id).await.map(drop),
            mover.page(db, p, NonZeroUsize::MIN).await.map(drop),
        ] {
            let refused = refused.unwrap_err();
            assert!(matches!(refused.error, QueueError::Frozen { .. }), "{refused:?}");
        }
        let tr = t.db.create_trx().unwrap();
        assert!(q.check_unfrozen(&tr).await.unwrap_err().frozen().is_some());
        assert_eq!(t.rows().await, before);
    });
}

#[test]
fn a_frozen_queue_refuses_changes_of_its_rules_and_holds() {
    on_database(async |t| {
        let q = t.queue_of("q", Kind::Keyed);
        t.session(&q).push(&t.db, &["ready"]).await.unwrap();
        freeze(t, &q, &Pause { frozen: true, ..Pause::default() }).await;
        let before = t.rows().await;
        let tr = t.db.create_trx().unwrap();
        let limits = Limits::default().with_running(1);
        for refused in [
            q.set_rule(&tr, &Pattern::keys("*").unwrap(), &limits).await.map(drop),
            q.set_rule(&tr, &Pattern::QUEUE, &Limits::default()).await.map(drop),
            q.unblock(&tr, b"k").await.map(drop),
        ] {
            let refused = refused.unwrap_err();
            assert!(matches!(refused, LimitError::Queue(QueueError::Frozen { .. })), "{refused:?}");
        }
        tr.commit().await.unwrap();
        assert_eq!(t.rows().await, before);
    });
}

#[test]
fn a_push_in_flight_fails_when_the_queue_is_frozen() {
    on_database(async |t| {
        let q = t.queue("q");
        let tr = t.db.create_trx().unwrap();
        q.pusher(&tr).push(b"never").await.unwrap();
        write(t, |tr| q.pause(tr, &Pause { frozen: true, ..Pause::default() })).await;
        assert_eq!(tr.commit().await.unwrap_err().code(), 1020);
        assert_eq!(t.len(&q).await, 0);
    });
}

#[test]
fn a_session_that_knew_the_queue_unfrozen_pushes_nothing_after_the_fence() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut session = t.session(&q);
        session.push(&t.db, &["before"]).await.unwrap();
        write(t, |tr| q.pause(tr, &Pause { frozen: true, ..Pause::default() })).await;
        // It may still push for a moment; what it pushes is there before the fence.
        let (mut pushed, frozen) = (1, t.run(migration::version).await);
        while session.push(&t.db, &["in between"]).await.is_ok() {
            pushed += 1;
            let now = t.run(migration::version).await;
            assert!(now < frozen + 10_000_000, "it pushes {} versions after the freeze", now - frozen);
        }
        let by = t.run(migration::version).await;
        let fence = async || t.run(async |tr| migration::fence(&q, tr, by).await).await;
        let early = t.run(async |tr| migration::fence(&q, tr, by + 1_000_000_000).await).await;
        assert!(!early, "the fence waits until no session relies on what it knew");
        while !fence().await {
            tokio::task::yield_now().await;
        }
        assert!(session.push(&t.db, &["after"]).await.unwrap_err().frozen().is_some());
        assert_eq!(t.len(&q).await, pushed);
    });
}
