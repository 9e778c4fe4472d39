//! Delayed items that are to be ready at once.

use std::time::Instant;

use fdb_embedded::Faults;
use kvqueue_queue::{Queue, Requeued, RetryPolicy, State, StoredItem, from_millis};
use mutant::Bounds;

use crate::common::{KINDS, TestDb, on_database};
use crate::restored::{item, restore};
use crate::unknown::scripts;

async fn hasten(t: &TestDb, queue: &Queue) -> Requeued {
    queue.requeue_scheduled(&t.db, &RetryPolicy::default(), None).await.unwrap()
}

fn later(payload: &str, due: u64) -> StoredItem {
    item(payload, State::Later(from_millis(due)))
}

/// ScheduledItem and ready items, by the counters.
async fn counts(t: &TestDb, queue: &Queue) -> (i64, i64) {
    let counts = t.run(async |tr| queue.counts(tr).await).await;
    (counts.waiting, counts.ready)
}

#[test]
fn all_waiting_items_become_ready_at_their_places() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            assert_eq!(hasten(t, &q).await, Requeued::default());
            let long = "x".repeat(250_000);
            restore(t, &q, &[later("a", u64::MAX), later(&long, 5), item("c", State::Ready)]).await;
            assert_eq!(hasten(t, &q).await.moved, 2, "{kind:?}");
            let mut there = t.list(&q).await;
            there.sort();
            assert_eq!(there, ["a", "c", &long], "{kind:?}");
            assert_eq!(counts(t, &q).await, (0, 3), "{kind:?}");
            assert!(t.records(&q, "body").await.is_empty() && t.records(&q, "token").await.is_empty());
        }
    });
}

#[test]
fn more_than_a_page_of_waiting_items_become_ready() {
    on_database(async |t| {
        let q = t.queue("q");
        let items: Vec<_> = (0..1_203).map(|n| later(&n.to_string(), 7)).collect();
        restore(t, &q, &items).await;
        // `until` has passed after the first page.
        let part = q.requeue_scheduled(&t.db, &RetryPolicy::default(), Some(Instant::now())).await.unwrap();
        assert!(part.more && (1..1_203).contains(&part.moved), "{part:?}");
        assert_eq!(hasten(t, &q).await.moved, 1_203 - part.moved);
        assert_eq!(counts(t, &q).await, (0, 1_203));
        let in_order: Vec<_> = (0..1_203).map(|n| n.to_string()).collect();
        assert_eq!(t.list(&q).await, in_order);
    });
}

#[test]
fn an_unreadable_waiting_item_stays_and_blocks_no_other() {
    on_database(async |t| {
        let q = t.queue("q");
        restore(t, &q, &[later("a", 1)]).await;
        let stray = crate::common::record(&q, "later", b"\x01no time\0");
        t.run(async |tr| {
            tr.set(&stray, b"");
            Ok(())
        })
        .await;
        let done = hasten(t, &q).await;
        assert_eq!((done.moved, done.unreadable), (1, 1));
        assert_eq!(t.records(&q, "later").await.len(), 1);
    });
}

#[test]
fn an_unreadable_item_behind_a_full_page_is_counted_once() {
    let small = Bounds::default().with("promote-page-bytes", 1).with("promote-together", 1);
    on_database(async |t| {
        let _bounds = small.enter();
        let q = t.queue("q");
        restore(t, &q, &[later("a", 1), later("b", 2), later("c", 3)]).await;
        let stray = crate::common::record(&q, "later", b"\x30no time");
        t.run(async |tr| {
            tr.set(&stray, b"");
            Ok(())
        })
        .await;
        let done = hasten(t, &q).await;
        assert_eq!((done.moved, done.unreadable), (3, 1));
    });
}

#[test]
fn requeued_items_are_counted_once_under_unknown_outcomes() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            let q = t.queue(format!("q{i}"));
            restore(t, &q, &[later("a", 1), later("b", 2)]).await;
            // The read of where it ends commits first.
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            assert_eq!(hasten(t, &q).await.moved, 2, "{script:?}");
            t.end_faults();
            assert_eq!(t.list(&q).await, ["a", "b"], "{script:?}");
            assert_eq!(counts(t, &q).await, (0, 2), "{script:?}");
        }
    });
}
