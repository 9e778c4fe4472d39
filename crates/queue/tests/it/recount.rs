//! Counters that other programs have made wrong are made right, while producers and consumers work.

use std::sync::atomic::{AtomicBool, Ordering};

use fdb_embedded::Faults;
use foundationdb::options::MutationType;
use foundationdb::tuple::{Bytes, pack};
use kvqueue_queue::{
    Counted, End, Failure, ItemOutcome, Kind, NewItem, Packing, Queue, Recount, RetryPolicy, RowCounter,
    from_millis, text_queues,
};

use crate::common::{Rng, TestDb, k, on_database, record, seeds};

/// The counters, compared with the rows.
async fn compared(t: &TestDb, queue: &Queue) -> Recount {
    t.run(async |tr| queue.compare_counters(tr).await).await
}

async fn recount(t: &TestDb, queue: &Queue) -> Recount {
    queue.recount(&t.db, &RetryPolicy::default()).await.unwrap().expect("few rows are counted")
}

/// Adds to counters what no program should.
async fn spoil(t: &TestDb, queue: &Queue, by: &[(&str, i64)]) {
    // Not `run`: it must not happen twice.
    t.end_faults();
    t.run(async |tr| {
        for (counter, by) in by {
            tr.atomic_op(&record(queue, counter, b""), &by.to_le_bytes(), MutationType::Add);
        }
        Ok(())
    })
    .await;
}

#[test]
fn recount_corrects_each_counter() {
    on_database(async |t| {
        let q = t.queue("q");
        assert_eq!(recount(t, &q).await, Recount { ready: Some(Counted::default()), ..Recount::default() });
        t.push(&q, &["a", "b", "c", "d", "e"]).await;
        let mut lease = t.lease(&q, 2).await.unwrap();
        let later = ItemOutcome::Retry {
            due: Some(from_millis(u64::MAX / 2)),
            failure: Failure::new(from_millis(1), 1, "no"),
        };
        let dead = ItemOutcome::Dead(Failure::new(from_millis(1), 1, "never"));
        lease.acknowledge(&t.db, &RetryPolicy::default(), &[(0, later), (1, dead)]).await.unwrap();
        let counted = |by_counters, by_rows| Counted { by_counters, by_rows };
        let right =
            Recount { ready: Some(counted(3, 3)), waiting: counted(1, 1), dead: counted(1, 1), index: None };
        assert_eq!(compared(t, &q).await, right);
        for (ready, later, dead) in [(2, 3, 4), (-2, -3, -4), (0, 0, -1), (i64::MAX, 0, 0)] {
            spoil(t, &q, &[("npush", ready), ("nlater", later), ("ndead", dead)]).await;
            let wrong = Recount {
                ready: Some(counted(3_i64.wrapping_add(ready), 3)),
                waiting: counted(1 + later, 1),
                dead: counted(1 + dead, 1),
                index: None,
            };
            assert!(!wrong.is_right());
            assert_eq!(compared(t, &q).await, wrong);
            let pushed = async || t.run(async |tr| q.counts(tr).await).await.pushed;
            let before = pushed().await;
            assert_eq!(recount(t, &q).await, wrong, "the result has the counts of before");
            assert!(pushed().await >= before, "a counter of pushes does not fall");
            assert_eq!(compared(t, &q).await, right);
            assert_eq!(t.len(&q).await, 3);
        }
    });
}

/// Changes during a recount keep the difference between counters and rows.
#[test]
fn recount_is_right_during_pushes_and_takes() {
    on_database(async |t| {
        for seed in seeds(5) {
            println!("KVQUEUE_TEST_SEED={seed} cargo test -p kvqueue-queue --test it recount::");
            let q = t.queue(format!("busy {seed}"));
            let mut rng = Rng::new(seed);
            spoil(t, &q, &[("npush", rng.below(50) as i64 - 25), ("ndead", rng.below(9) as i64 - 4)]).await;
            let faults =
                Faults::seeded(seed).unknown_committed(0.1).unknown_not_committed(0.1).conflict(0.05);
            t.install(faults);
            let ends = AtomicBool::new(false);
            let produce = async || {
                let mut session = t.session(&q);
                while !ends.load(Ordering::Relaxed) {
                    session.push(&t.db, &["a", "b", "c"]).await.unwrap();
                    tokio::task::yield_now().await;
                }
            };
            let consume = async || {
                let mut session = t.session(&q);
                while !ends.load(Ordering::Relaxed) {
                    let _lost = session.take(&t.db, k(2)).await.unwrap();
                    if let Some(mut lease) = t.lease(&q, 1).await {
                        t.acknowledge(&mut lease, &ItemOutcome::Dead(Failure::new(from_millis(1), 1, "no")))
                            .await;
                    }
                    tokio::task::yield_now().await;
                }
            };
            let count = async || {
                for _ in 0..5 {
                    recount(t, &q).await;
                    assert!(compared(t, &q).await.is_right(), "seed {seed}");
                }
            };
            let counts = async {
                tokio::join!(count(), count());
                ends.store(true, Ordering::Relaxed);
            };
            tokio::join!(produce(), produce(), consume(), counts);
            t.end_faults();
            let found = compared(t, &q).await;
            assert!(found.is_right(), "seed {seed}: {found:?}");
        }
    });
}

/// Two recounts that both read before either commits must not add the same difference twice.
#[test]
fn concurrent_recounts_correct_once() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        spoil(t, &q, &[("npush", 7)]).await;
        let both = futures::future::join_all((0..8).map(|_| recount(t, &q)));
        both.await;
        assert_eq!(compared(t, &q).await.ready, Some(Counted { by_counters: 1, by_rows: 1 }));
    });
}

#[test]
fn recount_reads_no_ready_counter_for_recipe_queues() {
    on_database(async |t| {
        let q = Queue::of_kind(&t.prefix, b"q", Kind::Priority(End::Max, Packing::Raw)).unwrap();
        t.push(&q, &["a", "b"]).await;
        spoil(t, &q, &[("npush", 5)]).await;
        let found = recount(t, &q).await;
        assert!(found.ready.is_none() && found.is_right(), "{found:?}");
        let mut rows = RowCounter::new(&t.prefix);
        for (key, value) in t.rows().await {
            rows.show(&[t.prefix.as_slice(), &key].concat(), &value);
        }
        assert_eq!(rows.queues().collect::<Vec<_>>(), [(&b"q"[..], found)]);
    });
}

#[test]
fn row_counter_agrees_with_recount() {
    on_database(async |t| {
        let (q, r) = (t.queue("q"), t.queue("r\0\u{ff}"));
        t.push(&q, &["a", "b", "c"]).await;
        t.push(&r, &["a"]).await;
        let mut lease = t.lease(&q, 1).await.unwrap();
        t.acknowledge(&mut lease, &ItemOutcome::Dead(Failure::new(from_millis(1), 1, "no"))).await;
        spoil(t, &q, &[("npop", 9), ("nlater", 2)]).await;
        let mut rows = RowCounter::new(&t.prefix);
        rows.show(b"another prefix", b"");
        for (key, value) in t.rows().await {
            rows.show(&[t.prefix.as_slice(), &key].concat(), &value);
        }
        let found: Vec<_> = rows.queues().collect();
        let expected = [(q.name(), compared(t, &q).await), (r.name(), compared(t, &r).await)];
        assert_eq!(found, expected);
        assert!(!found[0].1.is_right() && found[1].1.is_right());
    });
}

#[test]
fn row_counter_counts_items_of_keyed_queues() {
    on_database(async |t| {
        let q = Queue::of_kind(&t.prefix, b"q", Kind::Keyed).unwrap();
        t.push_items(&q, &[NewItem::new("a").with_key("k"), NewItem::new("b")]).await;
        spoil(t, &q, &[("npush", 1)]).await;
        let mut rows = RowCounter::new(&t.prefix);
        for (key, value) in t.rows().await {
            rows.show(&[t.prefix.as_slice(), &key].concat(), &value);
        }
        let found = compared(t, &q).await;
        assert_eq!(found.ready, Some(Counted { by_counters: 3, by_rows: 2 }));
        assert_eq!(rows.queues().collect::<Vec<_>>(), [(&b"q"[..], found)]);
        assert_eq!(rows.kinds(b"q").collect::<Vec<_>>(), ["keyed"]);
    });
}

/// A producer in Python that gives the name as a `str`.
#[test]
fn queues_that_are_named_by_a_text_are_found() {
    on_database(async |t| {
        t.push(&t.queue("good"), &["a"]).await;
        let recipe = Queue::of_kind(&t.prefix, b"recipe", Kind::Recipe(Packing::Raw)).unwrap();
        t.push(&recipe, &["a"]).await;
        t.run(async |tr| {
            for key in [
                pack(&("emails", Bytes::from(&b"npush"[..]))),
                pack(&("mails\0", "npush")),
                pack(&("settings", "colour")),
            ] {
                tr.set(&[t.prefix.as_slice(), &key].concat(), &1_u64.to_le_bytes());
            }
            Ok(())
        })
        .await;
        let found = t.run(async |tr| text_queues(tr, &t.prefix).await).await;
        assert_eq!(found, ["emails", "mails\0"]);
        let mut rows = RowCounter::new(&t.prefix);
        for (key, value) in t.rows().await {
            rows.show(&[t.prefix.as_slice(), &key].concat(), &value);
        }
        assert_eq!(rows.text_queues(), found);
    });
}
