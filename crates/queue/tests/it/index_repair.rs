//! The index of a keyed queue that another program has damaged is made right, while producers and consumers work.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fdb_embedded::Faults;
use foundationdb::options::MutationType;
use foundationdb::tuple::pack;
use kvqueue_queue::{IndexFaults, ItemOutcome, Queue, Recount, RetryPolicy, RowCounter, from_millis};
use mutant::Bounds;

use crate::common::gate::overlaps;
use crate::common::keyed::{fetch, keyed, limit, names, push, running};
use crate::common::ordered::ordered;
use crate::common::{Rng, TestDb, on_database, record, seeds};

async fn compared(t: &TestDb, q: &Queue) -> Recount {
    let found = t.run(async |tr| q.compare_counters(tr).await).await;
    assert_eq!(q.compare(&t.db, &RetryPolicy::default()).await.unwrap(), Some(found));
    let mut rows = RowCounter::new(&t.prefix);
    for (key, value) in t.rows().await {
        rows.show(&[t.prefix.as_slice(), &key].concat(), &value);
    }
    assert_eq!(rows.queues().collect::<Vec<_>>(), [(q.name(), found)]);
    found
}

/// What was wrong with the index.
async fn recount(t: &TestDb, q: &Queue) -> IndexFaults {
    let found = q.recount(&t.db, &RetryPolicy::default()).await.unwrap().unwrap();
    found.index.expect("a small index is compared")
}

fn faults(lost_keys: u64, wrong_scopes: u64) -> IndexFaults {
    IndexFaults { lost_keys, wrong_scopes }
}

/// What is wrong is found and corrected, and then nothing is.
async fn corrects(t: &TestDb, q: &Queue, expected: IndexFaults) {
    let found = compared(t, q).await;
    assert_eq!((found.index, found.is_right()), (Some(expected), false));
    assert_eq!(recount(t, q).await, expected);
    assert_eq!(compared(t, q).await.index, Some(faults(0, 0)));
}

/// Clears the rows of a kind whose keys contain the key.
async fn lose(t: &TestDb, q: &Queue, kind: &str, key: &str) -> usize {
    let rows = t.records(q, kind).await;
    let of_key = |row: &[u8]| row.windows(key.len()).any(|part| part == key.as_bytes());
    let lost: Vec<_> = rows.into_iter().filter(|(row, _)| of_key(row)).collect();
    t.run(async |tr| {
        lost.iter().for_each(|(row, _)| tr.clear(&record(q, kind, row)));
        Ok(())
    })
    .await;
    lost.len()
}

async fn write(t: &TestDb, q: &Queue, kind: &str, rest: &[u8], value: &[u8]) {
    t.run(async |tr| {
        tr.set(&record(q, kind, rest), value);
        Ok(())
    })
    .await;
}

/// Fetches until nothing is left, and acknowledges.
async fn drain(t: &TestDb, q: &Queue) -> Vec<String> {
    let (mut session, mut all) = (t.session(q), Vec::new());
    while let Some(mut lease) = fetch(t, &mut session, 100).await {
        all.extend(names(Some(&lease)));
        t.acknowledge(&mut lease, &ItemOutcome::Done).await;
    }
    all.sort();
    all
}

#[test]
fn a_key_without_a_place_gets_one_again() {
    on_database(async |t| {
        for kind in ["active", "listed"] {
            let q = t.queue_of(kind, kvqueue_queue::Kind::Keyed);
            for key in ["ka", "kb", "kc"] {
                push(t, &q, key, [key, key]).await;
            }
            assert_eq!(lose(t, &q, kind, "kb").await, 1);
            if kind == "active" {
                let got = drain(t, &q).await;
                assert_eq!(got, ["ka", "ka", "kc", "kc"], "no fetch finds the key");
                push(t, &q, "kb", ["kb"]).await;
                assert_eq!(drain(t, &q).await, [""; 0], "nor does a push help");
                push(t, &q, "ka", ["ka"]).await;
            }
            let found = t.run(async |tr| q.compare_counters(tr).await).await;
            assert_eq!(found.index, Some(faults(1, 0)), "{kind}");
            assert_eq!(recount(t, &q).await, faults(1, 0));
            assert_eq!(recount(t, &q).await, faults(0, 0));
            let left: &[_] = match kind {
                "active" => &["ka", "kb", "kb", "kb"],
                _ => &["ka", "ka", "kb", "kb", "kc", "kc"],
            };
            assert_eq!(drain(t, &q).await, left);
            assert_eq!(t.len(&q).await, 0);
        }
    });
}

#[test]
fn keys_that_are_parked_or_on_hold_get_back_lost_places() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "t", running(1)).await;
        limit(t, &q, "o*", ordered()).await;
        let mut session = t.session(&q);
        push(t, &q, "o1", ["o1", "o1"]).await;
        let mut held = fetch(t, &mut session, 1).await.unwrap();
        let due = from_millis(u64::MAX / 2);
        let retry = ItemOutcome::Retry {
            due: Some(due),
            failure: kvqueue_queue::Failure::new(from_millis(1), 1, "no"),
        };
        t.acknowledge(&mut held, &retry).await;
        push(t, &q, "t/a", ["ta"]).await;
        push(t, &q, "t/b", ["tb"]).await;
        let mut lease = fetch(t, &mut session, 9).await.unwrap();
        assert_eq!(names(Some(&lease)), ["ta"]);
        assert!(fetch(t, &mut session, 9).await.is_none());
        assert_eq!((t.records(&q, "parked").await.len(), t.records(&q, "onhold").await.len()), (1, 1));
        assert_eq!(compared(t, &q).await.index, Some(faults(0, 0)));
        assert_eq!(lose(t, &q, "parked", "t/b").await + lose(t, &q, "onhold", "o1").await, 2);
        corrects(t, &q, faults(2, 0)).await;
        // A key on hold whose hold is gone would wait for ever.
        assert!(fetch(t, &mut session, 9).await.is_none());
        assert_eq!((t.records(&q, "parked").await.len(), t.records(&q, "onhold").await.len()), (1, 1));
        assert_eq!(lose(t, &q, "hold", "o1").await, 1);
        corrects(t, &q, faults(1, 0)).await;
        t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        assert_eq!(drain(t, &q).await, ["o1", "tb"]);
    });
}

#[test]
fn a_key_with_two_places_keeps_one_and_one_with_none_of_its_items_goes() {
    on_database(async |t| {
        let q = keyed(t);
        push(t, &q, "ka", ["a1", "a2"]).await;
        // At position 5.
        write(t, &q, "active", b"\x15\x05\x01ka\0", b"").await;
        write(t, &q, "active", b"\x15\x05\x01kb\0", b"").await;
        corrects(t, &q, faults(2, 0)).await;
        assert_eq!(t.records(&q, "active").await.len(), 2);
        assert_eq!(drain(t, &q).await, ["a1", "a2"]);
        assert_eq!((t.records(&q, "active").await, t.records(&q, "listed").await), (vec![], vec![]));
    });
}

#[test]
fn items_of_keys_that_are_not_listed_are_found_page_by_page() {
    let small = Bounds::default().with("unlisted-page", 3).with("index-page", 2);
    let _bounds = small.with("index-repair-bytes", 1_500).with("reply-bytes", 300).enter();
    on_database(async |t| {
        let q = keyed(t);
        let names: Vec<_> = (0..20).map(|n| format!("key {n:02}")).collect();
        for name in &names {
            push(t, &q, name, [name, name]).await;
        }
        for (n, name) in names.iter().enumerate() {
            // Of some keys all is lost, of others their places.
            if n % 3 != 0 {
                lose(t, &q, "active", name).await;
            }
            if n % 3 == 1 {
                lose(t, &q, "listed", name).await;
            }
        }
        corrects(t, &q, faults(13, 0)).await;
        let mut expected = [names.clone(), names].concat();
        expected.sort();
        assert_eq!(drain(t, &q).await, expected);
    });
}

#[test]
fn a_scope_whose_counter_was_too_high_uses_its_limit_again() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "t", running(2)).await;
        // Tenant t, and 7 of it.
        write(t, &q, "running", b"\x01t\0", &7_u64.to_le_bytes()).await;
        for n in 0..5 {
            push(t, &q, &format!("t/{n}"), ["x"]).await;
        }
        assert!(fetch(t, &mut t.session(&q), 9).await.is_none());
        assert_eq!(t.records(&q, "parked").await.len(), 5);
        corrects(t, &q, faults(0, 1)).await;
        assert_eq!(t.records(&q, "running").await, []);
        assert_eq!(drain(t, &q).await.len(), 5);
    });
}

#[test]
fn a_counter_that_is_too_low_is_corrected_before_it_wraps() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "t", running(3)).await;
        for n in 0..5 {
            push(t, &q, &format!("t/{n}"), ["x"]).await;
        }
        let mut lease = fetch(t, &mut t.session(&q), 9).await.unwrap();
        assert_eq!(lease.items().len(), 3);
        write(t, &q, "running", b"\x01t\0", &1_u64.to_le_bytes()).await;
        t.run(async |tr| {
            tr.clear(&record(&q, "running", b"\x01t/0\0"));
            Ok(())
        })
        .await;
        corrects(t, &q, faults(0, 2)).await;
        assert!(fetch(t, &mut t.session(&q), 9).await.is_none(), "the limit is kept");
        t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        assert_eq!(t.records(&q, "running").await, []);
        assert_eq!(drain(t, &q).await.len(), 2);
    });
}

#[test]
fn a_fetch_that_has_read_a_counter_that_is_too_low_begins_again() {
    for (pattern, counter) in [("", &b"\x01\0"[..]), ("t", b"\x01t\0")] {
        on_database(async |t| {
            let q = keyed(t);
            limit(t, &q, pattern, running(1)).await;
            push(t, &q, "t/a", ["x"]).await;
            push(t, &q, "t/b", ["x"]).await;
            let (mut session, mut other) = (t.session(&q), t.session(&q));
            let _lease = fetch(t, &mut session, 1).await.unwrap();
            t.run(async |tr| {
                tr.clear(&record(&q, "running", counter));
                Ok(())
            })
            .await;
            let Some(gate) = t.close_gate() else { return };
            let (conflicted, late, found) = overlaps(gate, fetch(t, &mut other, 1), recount(t, &q)).await;
            assert_eq!(found, faults(0, 1));
            assert!(conflicted && late.is_none(), "two items run, and one may");
        });
    }
}

#[test]
fn a_row_that_is_no_lane_keeps_no_item_from_a_fetch() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "", running(2)).await;
        for key in ["a", "b", "c"] {
            push(t, &q, key, ["x"]).await;
        }
        for lane in [pack(&(1_u64 << 40)), pack(&64), pack(&-1), pack(&"x"), pack(&(1, 1))] {
            write(t, &q, "running", &[b"\x01\0", lane.as_slice()].concat(), &1_u64.to_le_bytes()).await;
        }
        assert_eq!(compared(t, &q).await.index, Some(faults(0, 0)));
        let mut lease = fetch(t, &mut t.session(&q), 9).await.unwrap();
        assert_eq!(lease.items().len(), 2);
        t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        assert_eq!(drain(t, &q).await, ["x"]);
    });
}

/// Damages the index in a way of its own, without keeping others from changing it.
async fn spoil(t: &TestDb, q: &Queue, rng: &mut Rng) {
    let kind = ["active", "listed", "parked", "running"][rng.below(4)];
    let rows = t.records(q, kind).await;
    if kind == "running" {
        let by = rng.below(7) as i64 - 3;
        let key = record(q, kind, b"\x01t\0");
        t.run(async |tr| {
            tr.atomic_op(&key, &by.to_le_bytes(), MutationType::Add);
            Ok(())
        })
        .await;
    } else if !rows.is_empty() {
        let row = &rows[rng.below(rows.len())].0;
        t.run(async |tr| {
            tr.clear(&record(q, kind, row));
            Ok(())
        })
        .await;
    }
}

#[test]
fn an_index_is_corrected_while_producers_and_consumers_work() {
    on_database(async |t| {
        for seed in seeds(4) {
            println!("KVQUEUE_TEST_SEED={seed} cargo test -p kvqueue-queue --test it index_repair::");
            let q = t.queue_of(format!("busy {seed}"), kvqueue_queue::Kind::Keyed);
            limit(t, &q, "t", running(3)).await;
            for n in 0..12 {
                push(t, &q, &format!("t/{n}"), ["x", "x"]).await;
            }
            let (ends, handled) = (AtomicBool::new(false), AtomicUsize::new(0));
            let pushed = AtomicUsize::new(24);
            t.install(Faults::seeded(seed).unknown_committed(0.1).unknown_not_committed(0.1).conflict(0.05));
            let produce = async || {
                let mut n = 0;
                while !ends.load(Ordering::Relaxed) {
                    push(t, &q, &format!("t/{}", n % 15), ["x"]).await;
                    pushed.fetch_add(1, Ordering::Relaxed);
                    n += 1;
                    tokio::task::yield_now().await;
                }
            };
            let consume = async || {
                let mut session = t.session(&q);
                while !ends.load(Ordering::Relaxed) {
                    if let Some(mut lease) = fetch(t, &mut session, 2).await {
                        handled.fetch_add(lease.items().len(), Ordering::Relaxed);
                        t.acknowledge(&mut lease, &ItemOutcome::Done).await;
                    }
                    tokio::task::yield_now().await;
                }
            };
            let correct = async {
                let mut rng = Rng::new(seed);
                for _ in 0..8 {
                    spoil(t, &q, &mut rng).await;
                    tokio::join!(recount(t, &q), recount(t, &q));
                }
                ends.store(true, Ordering::Relaxed);
            };
            tokio::join!(produce(), consume(), consume(), correct);
            t.end_faults();
            let found = t.run(async |tr| q.compare_counters(tr).await).await;
            assert!(found.is_right(), "seed {seed}: {found:?}");
            let all = handled.into_inner() + drain(t, &q).await.len();
            assert_eq!(all, pushed.into_inner(), "seed {seed}");
        }
    });
}
