//! Tasks that push through one producer.

use std::collections::BTreeSet;

use fdb_embedded::Fault::{Conflict, UnknownCommitted, UnknownNotCommitted};
use fdb_embedded::Faults;
use futures::FutureExt;
use futures::future::join_all;
use kvqueue_queue::{Driver, NewItem, ProduceError, Producer, PushEffect, PushError, Queue, RetryPolicy};

use crate::common::{KINDS, TestDb, on_database, record};

const TASKS: usize = 40;
const EACH: usize = 5;

fn producer(t: &TestDb, q: &Queue) -> (Producer, Driver) {
    Producer::new(t.session(q), t.handle())
}

fn number(task: usize, n: usize) -> NewItem {
    NewItem::new(format!("{task:02}.{n}"))
}

/// Pushes from many tasks at once, and says how often each transaction's stamp came.
async fn push_all(producer: &Producer) -> BTreeSet<Vec<u8>> {
    let tasks = (0..TASKS).map(|task| {
        let producer = producer.clone();
        tokio::spawn(async move {
            let mut stamps = Vec::new();
            for n in 0..EACH {
                let pushed = producer.push(number(task, n)).await.unwrap();
                assert_eq!(pushed.effect, PushEffect::Added);
                stamps.extend(pushed.id.and_then(|id| id.stamp()));
            }
            assert!(stamps.is_sorted(), "each after the one before");
            stamps
        })
    });
    let stamps = join_all(tasks).await.into_iter().flat_map(Result::unwrap);
    stamps.map(|stamp| stamp.as_bytes()[..10].to_vec()).collect()
}

#[test]
fn concurrent_producers_share_transactions_and_push_each_item_once_in_order() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            let (producer, driver) = producer(t, &q);
            let driver = tokio::spawn(driver.run());
            let transactions = push_all(&producer).await.len();
            assert!(transactions <= TASKS * EACH / 4, "{transactions} transactions for {}", TASKS * EACH);
            drop(producer);
            driver.await.unwrap().unwrap();
            let stored = t.list(&q).await;
            let once: BTreeSet<&String> = stored.iter().collect();
            assert_eq!((stored.len(), once.len()), (TASKS * EACH, TASKS * EACH), "{kind}");
            if i == 0 {
                for task in 0..TASKS {
                    let own = stored.iter().filter(|payload| payload.starts_with(&format!("{task:02}.")));
                    assert!(own.is_sorted(), "in the order in which the task pushed them");
                }
            }
            assert!(t.records(&q, "token").await.is_empty(), "the session was ended");
        }
    });
}

#[test]
fn a_producer_pushes_each_item_once_under_unknown_outcomes() {
    on_database(async |t| {
        let q = t.queue("q");
        let script = [UnknownCommitted, UnknownNotCommitted, Conflict, UnknownCommitted, UnknownNotCommitted];
        if !t.install(Faults::script(script.repeat(3))) {
            return;
        }
        let (producer, driver) = producer(t, &q);
        let driver = tokio::spawn(driver.run());
        push_all(&producer).await;
        drop(producer);
        driver.await.unwrap().unwrap();
        t.end_faults();
        let stored = t.list(&q).await;
        assert_eq!(
            (stored.len(), stored.iter().collect::<BTreeSet<_>>().len()),
            (TASKS * EACH, TASKS * EACH)
        );
    });
}

#[test]
fn a_refused_item_does_not_fail_others_of_its_transaction() {
    on_database(async |t| {
        let q = t.queue("q");
        t.run(async |tr| {
            tr.set(&record(&q, "unique", b"\x01damaged\x00"), b"");
            Ok(())
        })
        .await;
        let (producer, driver) = Producer::with_max_payload(t.session(&q), t.handle(), 10);
        let unique = |key: &str| NewItem::new(key.to_owned()).with_unique(key);
        let items =
            [NewItem::new("a"), NewItem::new("too long for it"), unique("damaged"), unique("u"), unique("u")];
        let mut pushes = Box::pin(join_all(items.into_iter().map(|item| producer.push(item))));
        // All are there before the driver begins.
        assert!(pushes.as_mut().now_or_never().is_none());
        let driver = tokio::spawn(driver.run());
        let outcomes = pushes.await;
        let effects = outcomes.iter().map(|outcome| outcome.as_ref().ok().map(|pushed| pushed.effect));
        let (added, duplicate) = (Some(PushEffect::Added), Some(PushEffect::Duplicate));
        assert_eq!(effects.collect::<Vec<_>>(), [added, None, None, added, duplicate]);
        let errors: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        let [ProduceError::Push(long), ProduceError::Push(damaged)] = &errors[..] else {
            panic!("{errors:?}")
        };
        assert!(matches!(**long, PushError::PayloadTooLarge { len: 15, limit: 10 }));
        assert!(matches!(**damaged, PushError::Retry(_)) && !damaged.is_maybe_committed(), "{damaged}");
        drop(producer);
        driver.await.unwrap().unwrap();
        assert_eq!(t.list(&q).await, ["a", "u"]);
    });
}

#[test]
fn a_database_error_fails_all_waiting_pushes_and_the_producer_continues() {
    on_database(async |t| {
        let q = t.queue("q");
        if !t.install(Faults::script([Conflict, Conflict])) {
            return;
        }
        let once = RetryPolicy { max_attempts: Some(2), timeout: None };
        let (producer, driver) = Producer::new(t.session(&q).with_policy(once), t.handle());
        let mut pushes = Box::pin(join_all(["a", "b"].map(|payload| producer.push(NewItem::new(payload)))));
        assert!(pushes.as_mut().now_or_never().is_none());
        let driver = tokio::spawn(driver.run());
        for outcome in pushes.await {
            assert!(!outcome.unwrap_err().is_maybe_committed());
        }
        producer.push(NewItem::new("c")).await.unwrap();
        drop(producer);
        driver.await.unwrap().unwrap();
        assert_eq!(t.list(&q).await, ["c"]);
    });
}

#[test]
fn abandoned_pushes_are_skipped_and_pushes_without_driver_fail() {
    on_database(async |t| {
        let q = t.queue("q");
        let (producer, driver) = producer(t, &q);
        assert!(producer.push(NewItem::new("given up")).now_or_never().is_none());
        let running = tokio::spawn(driver.run());
        producer.push(NewItem::new("a")).await.unwrap();
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
        assert!(matches!(producer.push(NewItem::new("b")).await, Err(ProduceError::Ended)));
        assert_eq!(t.list(&q).await, ["a"]);
    });
}

#[test]
fn a_producer_holds_a_bounded_number_of_bytes() {
    on_database(async |t| {
        let q = t.queue("q");
        let (producer, driver) = producer(t, &q);
        // Nobody pushes yet: what does not fit waits outside, with its own caller.
        let payload = bytes::Bytes::from(vec![7; 1 << 20]);
        let mut pushes: Vec<_> =
            (0..40).map(|_| Box::pin(producer.push(NewItem::new(payload.clone())))).collect();
        for push in &mut pushes {
            assert!(push.as_mut().now_or_never().is_none());
        }
        let held = producer.held();
        assert!((1..=16).contains(&held), "{held}");
        let driver = tokio::spawn(driver.run());
        assert!(join_all(pushes).await.into_iter().all(|pushed| pushed.is_ok()));
        assert_eq!(producer.held(), 0);
        drop(producer);
        driver.await.unwrap().unwrap();
        assert_eq!(t.len(&q).await, 40);
    });
}
