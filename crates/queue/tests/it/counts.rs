//! How many items there are in each state, and whether there are any.

use foundationdb::options::MutationType;
use foundationdb::tuple::{Bytes, pack};
use kvqueue_queue::{
    Counts, End, Failure, ItemOutcome, Kind, NewItem, Packing, Queue, RetryPolicy, Unfinished, from_millis,
    queues,
};

use crate::common::{SHORT, TestDb, at_most, k, on_database, record, rules, sweeper};

async fn counts(t: &TestDb, queue: &Queue) -> Counts {
    t.run(async |tr| queue.counts(tr).await).await
}

async fn rest(t: &TestDb, queue: &Queue) -> Unfinished {
    t.run(async |tr| queue.unfinished(tr).await).await
}

#[test]
fn every_item_is_counted_in_its_state() {
    on_database(async |t| {
        let q = t.queue("q");
        let empty = Counts { pushed: Some(0), ..Counts::default() };
        assert_eq!((counts(t, &q).await, rest(t, &q).await.is_none()), (empty, true));
        t.push(&q, &["a", "b", "c", "d", "e", "f"]).await;
        let state = async || (counts(t, &q).await, rest(t, &q).await);
        assert_eq!(state().await.1, Unfinished { ready: true, running: false, waiting: None });

        let mut lease = t.lease(&q, 5).await.unwrap();
        let later =
            ItemOutcome::Retry { due: Some(from_millis(10)), failure: Failure::new(from_millis(1), 1, "no") };
        let dead = ItemOutcome::Dead(Failure::new(from_millis(1), 1, "never"));
        let outcomes = [(0, ItemOutcome::Done), (1, later), (2, dead)];
        lease.acknowledge(&t.db, &Default::default(), &outcomes).await.unwrap();
        let expected = Counts { ready: 1, running: 2, waiting: 1, dead: 1, done: 1, pushed: Some(6) };
        assert_eq!(
            state().await,
            (expected, Unfinished { ready: true, running: true, waiting: Some(from_millis(10)) })
        );

        t.sweep(&mut sweeper(&q), 10, &rules()).await;
        let expected = Counts { ready: 2, waiting: 0, ..expected };
        assert_eq!(state().await, (expected, Unfinished { ready: true, running: true, waiting: None }));

        t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        let mut lease = t.lease(&q, 5).await.unwrap();
        t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        let expected = Counts { done: 5, dead: 1, pushed: Some(6), ..Counts::default() };
        assert_eq!(state().await, (expected, Unfinished::default()));
    });
}

/// Operators watch the rate of pushes, so an item counts once however often it is returned.
#[test]
fn a_returned_item_is_not_counted_as_a_push() {
    on_database(async |t| {
        let q = t.queue("q");
        let pushed = async || counts(t, &q).await.pushed;
        t.push(&q, &["a", "b", "c", "d"]).await;
        let delayed = NewItem::new("delayed").with_due(from_millis(5));
        t.push_items(&q, &[delayed]).await;
        // A producer in another language.
        t.run(async |tr| {
            tr.set(&record(&q, "val", crate::common::id(1).as_bytes()), b"foreign");
            tr.atomic_op(&record(&q, "npush", b""), &1_u64.to_le_bytes(), MutationType::Add);
            Ok(())
        })
        .await;
        assert_eq!(pushed().await, Some(6));

        let mut lease = t.lease(&q, 4).await.unwrap();
        let failure = || Failure::new(from_millis(1), 1, "no");
        let outcomes = [
            (0, ItemOutcome::Release),
            (1, ItemOutcome::Retry { due: None, failure: failure() }),
            (2, ItemOutcome::Retry { due: Some(from_millis(10)), failure: failure() }),
            (3, ItemOutcome::Dead(failure())),
        ];
        lease.acknowledge(&t.db, &RetryPolicy::default(), &outcomes).await.unwrap();
        assert_eq!(pushed().await, Some(6), "a release, two retries, a death");
        t.sweep(&mut sweeper(&q), 10, &rules()).await;
        assert_eq!(pushed().await, Some(6), "items became due");
        assert_eq!(q.retry_all_dead(&t.db, &RetryPolicy::default(), None).await.unwrap().moved, 1);
        assert_eq!(pushed().await, Some(6), "the dead letter is tried again");

        t.lease_for(&q, 3, SHORT).await.unwrap();
        t.sweep_leases(&q, 1, &rules()).await;
        assert_eq!(pushed().await, Some(6), "a lease expired");
        t.run(async |tr| q.pop_k(tr, k(9)).await).await;
        assert_eq!(pushed().await, Some(6), "items were popped");
    });
}

#[test]
fn an_item_whose_attempts_ended_in_crashes_counts_as_dead() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b"]).await;
        t.lease_for(&q, 2, SHORT).await.unwrap();
        t.sweep_leases(&q, 1, &at_most(1)).await;
        assert_eq!(counts(t, &q).await, Counts { dead: 2, pushed: Some(2), ..Counts::default() });
    });
}

/// Foreign programs keep no counters in a recipe's queue, so the rows of its items are counted.
#[test]
fn recipe_items_are_counted_by_their_rows() {
    on_database(async |t| {
        let q = Queue::of_kind(&t.prefix, b"q", Kind::Priority(End::Max, Packing::Raw)).unwrap();
        let mut stored = 0;
        for n in [0, 1, 2, 3, 7, 8, 9, 1_000, 20_000] {
            while stored < n {
                let until = n.min(stored + 5_000);
                t.run(async |tr| {
                    for i in stored..until {
                        let key = pack(&("q", i64::from(i), 0, Bytes::from([7; 20].as_slice())));
                        tr.set(&[t.prefix.as_slice(), &key].concat(), b"x");
                    }
                    // A neighbour on each side.
                    for name in ["p", "q\0", "r"] {
                        tr.set(&[t.prefix.as_slice(), &pack(&(name, 1))].concat(), b"");
                    }
                    Ok(())
                })
                .await;
                stored = until;
            }
            assert_eq!(t.len(&q).await, i64::from(n));
        }
        assert!(rest(t, &q).await.ready);
    });
}

#[test]
fn a_queue_that_only_has_items_of_other_states_is_listed() {
    on_database(async |t| {
        let records: [(&str, &[u8]); 8] = [
            ("dead", b"\x01ndead\0"),
            ("done", b"\x01ndone\0"),
            ("due", b"\x01ndue\0"),
            ("later", b"\x01nlater\0"),
            ("its dead letters", b"\x01dead\0\x33id"),
            ("its leases", b"\x01lease\0\x30id"),
            ("no operation", b"\x01op\0\x01id\0"),
            ("no sweep", b"\x01sweep\0"),
        ];
        t.run(async |tr| {
            for (name, record) in records {
                let base = t.queue(name).range().0;
                tr.set(&[&base[..base.len() - 1], record].concat(), b"");
            }
            // A text names no queue, unless kvqueue has used it.
            tr.set(
                &[t.prefix.as_slice(), &pack(&("recipe", 1, Bytes::from([7; 20].as_slice())))].concat(),
                b"",
            );
            Ok(())
        })
        .await;
        let names = t.run(async |tr| queues(tr, &t.prefix).await).await;
        let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
        assert_eq!(names, ["dead", "done", "due", "its dead letters", "its leases", "later"]);
    });
}
