//! Items whose time comes: made ready in order and on time, and nobody looks for nothing.

use std::time::Duration;

use futures::FutureExt;
use kvqueue_queue::{SweepCounts, SweepRules, from_millis};

use crate::common::{TestDb, alone, id, later, on_database, record, rules, sweeper};

/// A watch that does not fire in this time was lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// The attempts that the items in the queue will be, in order.
async fn attempts(t: &TestDb, queue: &kvqueue_queue::Queue) -> Vec<u32> {
    t.run(async |tr| queue.list(tr).await).await.iter().map(|item| item.attempt).collect()
}

#[test]
fn items_become_ready_at_their_time_and_at_their_place() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put_aside(&q, &[("a", 300), ("b", 100), ("c", 200)]).await;
        t.push(&q, &["d"]).await;
        let mut sweeper = sweeper(&q);
        let at = async |sweeper: &mut _, now| t.sweep(sweeper, now, &SweepRules::default()).await;
        let swept = at(&mut sweeper, 99).await;
        assert_eq!((swept.moved, swept.next), (SweepCounts::default(), Duration::from_millis(1)));
        assert_eq!(t.list(&q).await, ["d"]);
        let swept = at(&mut sweeper, 100).await;
        assert_eq!((swept.moved.promoted, swept.next), (1, Duration::from_millis(100)));
        assert_eq!(t.list(&q).await, ["b", "d"]);
        assert_eq!(at(&mut sweeper, 1_000).await.moved.promoted, 2);
        assert_eq!(t.list(&q).await, ["a", "b", "c", "d"]);
        assert_eq!((t.len(&q).await, attempts(t, &q).await), (4, vec![2, 2, 2, 1]));
        assert!(at(&mut sweeper, 2_000).await.moved.is_nothing());
    });
}

#[test]
fn an_item_for_an_earlier_time_wakes_the_sweeper_and_a_later_push_does_not() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut sweeper = sweeper(&q);
        t.put_aside(&q, &[("a", 1_000_000)]).await;
        let mut swept = t.sweep(&mut sweeper, 0, &alone()).await;
        t.push(&q, &["b"]).await;
        assert!((&mut swept.watch).now_or_never().is_none());
        let taken = t.lease(&q, 1).await;
        assert!(taken.is_some() && (&mut swept.watch).now_or_never().is_none());
        t.put_aside(&q, &[("c", 10)]).await;
        tokio::time::timeout(PATIENCE, swept.watch).await.expect("the watch fires").unwrap();
        let swept = t.sweep(&mut sweeper, 0, &alone()).await;
        assert_eq!(swept.next, Duration::from_millis(10));
    });
}

#[test]
fn promotions_of_a_sweeper_wake_no_other_sweeper() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put_aside(&q, &[("a", 10)]).await;
        let mut other = sweeper(&q);
        let mut waiting = t.sweep(&mut other, 0, &alone()).await;
        let swept = t.sweep(&mut sweeper(&q), 10, &rules()).await;
        assert_eq!(swept.moved.promoted, 1);
        assert!((&mut waiting.watch).now_or_never().is_none());
    });
}

#[test]
fn many_due_items_are_promoted_in_several_transactions() {
    on_database(async |t| {
        let q = t.queue("q");
        let payloads: Vec<String> = (0..1_200).map(|n| n.to_string()).collect();
        let refs: Vec<&str> = payloads.iter().map(String::as_str).collect();
        t.push(&q, &refs).await;
        let mut lease = t.lease(&q, 2_000).await.unwrap();
        let outcomes: Vec<_> = lease.open().map(|index| (index, later(1_200 - index as u64))).collect();
        lease.acknowledge(&t.db, &Default::default(), &outcomes).await.unwrap();
        let mut sweeper = sweeper(&q);
        let swept = t.sweep(&mut sweeper, 600, &SweepRules::default()).await;
        assert_eq!(swept.moved.promoted, 600);
        assert_eq!(t.list(&q).await, payloads[600..]);
        let rules = SweepRules::default().with_clock_tolerance(Duration::MAX);
        let swept = t.sweep(&mut sweeper, u64::MAX, &rules).await;
        assert_eq!(swept.moved.promoted, 600);
        assert_eq!((t.list(&q).await, t.len(&q).await), (payloads, 1_200));
    });
}

#[test]
fn large_items_are_promoted_a_few_at_a_time() {
    on_database(async |t| {
        let q = t.queue("q");
        let payload = "x".repeat(90_000);
        t.put_aside(&q, &vec![(payload.as_str(), 5); 45]).await;
        let swept = t.sweep(&mut sweeper(&q), 5, &SweepRules::default()).await;
        // 4 MB in transactions of about 1 MB each.
        assert_eq!(swept.moved.promoted, 45);
        assert!(swept.attempts.begun >= 5, "{:?}", swept.attempts);
        assert_eq!(t.list(&q).await, vec![payload; 45]);
    });
}

#[test]
fn a_sweep_without_work_writes_nothing() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put_aside(&q, &[("a", 1_000)]).await;
        let all = async || {
            let (begin, end) = q.range();
            t.run(async |tr| {
                let rows = tr.get_range(&(begin.as_slice(), end.as_slice()).into(), 1, true).await?;
                Ok(rows.iter().map(|row| (row.key().to_vec(), row.value().to_vec())).collect::<Vec<_>>())
            })
            .await
        };
        let before = all().await;
        for _ in 0..3 {
            assert!(t.sweep(&mut sweeper(&q), 999, &rules()).await.moved.is_nothing());
        }
        assert_eq!(all().await, before);
    });
}

#[test]
fn an_unreadable_record_does_not_keep_others_from_being_swept() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        t.lease_for(&q, 1, 0).await.unwrap();
        let broken = record(&q, "later", &[b"\x15\x01", id(7).as_bytes()].concat());
        t.run(async |tr| {
            tr.set(&broken, b"");
            Ok(())
        })
        .await;
        let mut returned = 0;
        for _ in 0..100_000 {
            // New ones: one that met trouble passes over what failed for a while.
            let swept = sweeper(&q).sweep(&t.db, &|| from_millis(1), &rules()).await.unwrap();
            let trouble = swept.trouble.map(|error| std::error::Error::source(&error).unwrap().to_string());
            assert!(trouble.is_some_and(|text| text.contains("body") && text.contains("\\x07\\x07")));
            assert!(swept.next <= Duration::from_secs(10));
            returned += swept.moved.returned;
            if returned > 0 {
                break;
            }
        }
        assert_eq!(t.list(&q).await, ["a"]);
    });
}
