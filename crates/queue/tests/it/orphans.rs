//! What foreign programs leave behind when they take items: cleared, and nothing else.

use fdb_embedded::Fault::{Conflict, UnknownCommitted, UnknownNotCommitted};
use fdb_embedded::Faults;
use kvqueue_queue::{End, ItemOutcome, Kind, Packing, Queue, from_millis};

use crate::common::{TestDb, id, k, later, on_database, record, rules, sweeper};

const KINDS: [&str; 3] = ["meta", "chunk", "unique"];

async fn left(t: &TestDb, queue: &Queue) -> [usize; 3] {
    let mut left = [0; 3];
    for (n, kind) in left.iter_mut().zip(KINDS) {
        *n = t.records(queue, kind).await.len();
    }
    left
}

#[test]
fn records_of_an_item_popped_by_a_foreign_program_are_cleared() {
    on_database(async |t| {
        let q = t.queue("q");
        for number in 1..=3 {
            t.store(&q, &id(number), "long", &format!("key {number}")).await;
        }
        t.foreign_pop(&q, &id(2)).await;
        assert_eq!(left(t, &q).await, [3, 3, 3]);
        let swept = t.sweep(&mut sweeper(&q), 0, &rules()).await;
        assert_eq!(swept.moved.orphans, 1);
        assert_eq!(left(t, &q).await, [2, 2, 2]);
        assert_eq!((t.list(&q).await.len(), t.len(&q).await), (2, 2));
        assert_eq!(t.sweep(&mut sweeper(&q), 0, &rules()).await.moved.orphans, 0);
    });
}

#[test]
fn orphans_between_fetched_items_are_left_to_the_sweeper() {
    on_database(async |t| {
        for pops in [false, true] {
            let q = t.queue(if pops { "popped" } else { "leased" });
            for number in 1..=3 {
                t.store(&q, &id(number), "long", &format!("key {number}")).await;
            }
            // Given back before an item that a foreign program has popped meanwhile.
            let mut first = t.lease(&q, 1).await.unwrap();
            t.foreign_pop(&q, &id(2)).await;
            t.acknowledge(&mut first, &ItemOutcome::Release).await;
            if pops {
                assert_eq!(t.run(async |tr| q.pop_k(tr, k(2)).await).await.items.len(), 2);
            } else {
                let mut lease = t.lease(&q, 2).await.unwrap();
                assert_eq!(lease.items().len(), 2);
                t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            }
            assert_eq!(left(t, &q).await, [1, 1, 1]);
            assert_eq!(t.sweep(&mut sweeper(&q), 0, &rules()).await.moved.orphans, 1);
            assert_eq!(left(t, &q).await, [0, 0, 0]);
        }
    });
}

#[test]
fn items_that_are_not_ready_are_not_orphans() {
    on_database(async |t| {
        let q = t.queue("q");
        for number in 1..=4 {
            t.store(&q, &id(number), "long", &format!("key {number}")).await;
        }
        let mut held = t.lease(&q, 1).await.unwrap();
        let mut aside = t.lease(&q, 1).await.unwrap();
        t.acknowledge(&mut aside, &later(u64::MAX)).await;
        let mut dead = t.lease(&q, 1).await.unwrap();
        t.acknowledge(&mut dead, &ItemOutcome::Dead(kvqueue_queue::Failure::new(from_millis(1), 1, "no")))
            .await;
        // The dead one's key is free, the others' are not; chunks stay with all of them.
        for _ in 0..2 {
            assert!(t.sweep(&mut sweeper(&q), 0, &rules()).await.moved.is_nothing());
            assert_eq!(left(t, &q).await, [1, 4, 3]);
        }
        t.acknowledge(&mut held, &ItemOutcome::Done).await;
        assert_eq!(left(t, &q).await, [1, 3, 2]);
    });
}

#[test]
fn clearing_an_orphan_keeps_a_unique_key_taken_since() {
    on_database(async |t| {
        let q = t.queue("q");
        t.store(&q, &id(1), "long", "key").await;
        t.foreign_pop(&q, &id(1)).await;
        t.store(&q, &id(2), "long", "key").await;
        assert_eq!(t.sweep(&mut sweeper(&q), 0, &rules()).await.moved.orphans, 1);
        assert_eq!(left(t, &q).await, [1, 1, 1]);
        let unique = record(&q, "unique", b"\x01key\0");
        let holder = t.run(async |tr| Ok(tr.get(&unique, false).await?.map(|value| value.to_vec()))).await;
        assert_eq!(holder.as_deref(), Some(id(2).as_bytes()));
    });
}

#[test]
fn orphans_are_cleared_once_under_unknown_outcomes() {
    on_database(async |t| {
        for script in [vec![UnknownCommitted], vec![UnknownNotCommitted], vec![Conflict, UnknownCommitted]] {
            let q = t.queue(format!("{script:?}"));
            t.store(&q, &id(1), "long", "key").await;
            t.foreign_pop(&q, &id(1)).await;
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            let orphans = t.sweep(&mut sweeper(&q), 0, &rules()).await.moved.orphans;
            t.end_faults();
            assert_eq!((orphans, left(t, &q).await), (1, [0, 0, 0]), "{script:?}");
        }
    });
}

/// A sweeper finds orphans at both ends of a queue and between them.
#[test]
fn orphans_among_many_items_are_found() {
    on_database(async |t| {
        for (name, kind) in [("min", Kind::Fifo), ("max", Kind::Priority(End::Max, Packing::Raw))] {
            let q = Queue::of_kind(&t.prefix, name.as_bytes(), kind).unwrap();
            // Side records and items without a payload, as far as a sweeper looks at them.
            let stamp = |n: u16| [&[0x33, 0, 0, 0, 0, 0, 0], n.to_be_bytes().as_slice(), &[0; 4]].concat();
            let ready = |n: u16| match kind {
                Kind::Fifo => record(&q, "val", &stamp(n)),
                _ => [t.prefix.as_slice(), b"\x02max\0", &[0x16], &n.to_be_bytes()].concat(),
            };
            let side = |n: u16| match kind {
                Kind::Fifo => record(&q, "meta", &stamp(n)),
                _ => record(&q, "meta", &[&[0x16], n.to_be_bytes().as_slice()].concat()),
            };
            t.run(async |tr| {
                for n in 256..1_256 {
                    tr.set(&ready(n), b"");
                    tr.set(&side(n), b"");
                }
                for n in [256, 257, 700, 1_254, 1_255] {
                    tr.clear(&ready(n));
                }
                Ok(())
            })
            .await;
            let mut sweeper = sweeper(&q);
            let first = t.sweep(&mut sweeper, 0, &rules()).await.moved.orphans;
            assert!(first >= 2, "{first} at the front");
            let mut orphans = first;
            for _ in 0..6 {
                orphans += t.sweep(&mut sweeper, 0, &rules()).await.moved.orphans;
            }
            assert_eq!((orphans, t.records(&q, "meta").await.len()), (5, 995), "{name}");
        }
    });
}
