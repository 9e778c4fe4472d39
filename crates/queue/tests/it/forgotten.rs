//! Operations that are old enough are forgotten, and no others.

use fdb_embedded::Fault::{self, Conflict, UnknownCommitted, UnknownNotCommitted};
use fdb_embedded::Faults;
use kvqueue_queue::{ItemId, NewItem, PushOptions, Queue, Stamp, Sweeper};
use std::time::Duration;

use crate::common::{TestDb, on_database, record, rules, sweeper};

/// How long operations are kept here, in versions: no longer than a test can wait.
const KEPT: u64 = 50_000;

/// The same in milliseconds.
const KEPT_MS: u64 = KEPT / 1_000;

/// Stores operations of these numbers as if each had been pushed at the version that there is now.
async fn store(t: &TestDb, queue: &Queue, numbers: std::ops::Range<u32>) {
    let now = t.version().await;
    t.run(async |tr| {
        for n in numbers.clone() {
            let mut stamp = [0; Stamp::LEN];
            stamp[..8].copy_from_slice(&now.to_be_bytes());
            stamp[8..].copy_from_slice(&n.to_be_bytes());
            let (id, log) = (format!("op{n}"), ItemId::from(Stamp::from(stamp)));
            tr.set(&record(queue, "op", &[b"\x01", id.as_bytes(), b"\0"].concat()), &[0; 16]);
            tr.set(&record(queue, "oplog", log.as_bytes()), id.as_bytes());
        }
        Ok(())
    })
    .await;
}

/// Stores operations that are old at the time [`KEPT_MS`], by versions too.
async fn store_old(t: &TestDb, queue: &Queue, n: u32) -> Sweeper {
    store(t, queue, 0..n).await;
    let mut sweeper = sweeper(queue);
    // The second of these sweeps notes the time: it knows of a version that had been read at that time.
    assert_eq!((sweep(t, &mut sweeper, 0).await, sweep(t, &mut sweeper, 0).await), (0, 0));
    t.until_past(t.version().await + KEPT).await;
    sweeper
}

async fn sweep(t: &TestDb, sweeper: &mut Sweeper, now: u64) -> usize {
    let rules = rules().with_idempotency_window(Duration::from_micros(KEPT));
    t.sweep(sweeper, now, &rules).await.moved.operations
}

async fn left(t: &TestDb, queue: &Queue) -> (usize, usize) {
    (t.records(queue, "op").await.len(), t.records(queue, "oplog").await.len())
}

#[test]
fn old_operations_are_forgotten_and_young_ones_kept() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut sweeper = store_old(t, &q, 2).await;
        store(t, &q, 2..4).await;
        // By versions the first are old, and not by the clock.
        assert_eq!(sweep(t, &mut sweeper, KEPT_MS - 1).await, 0);
        assert_eq!(sweep(t, &mut sweeper, KEPT_MS).await, 2);
        assert_eq!(left(t, &q).await, (2, 2));
        assert_eq!(sweep(t, &mut sweeper, KEPT_MS).await, 0);
        // By the clock the others are old too, and not by versions.
        let day = rules().with_idempotency_window(Duration::from_hours(24));
        assert!(t.sweep(&mut sweeper, u64::MAX, &day).await.moved.is_nothing());
    });
}

#[test]
fn many_old_operations_are_forgotten_in_several_transactions() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut sweeper = store_old(t, &q, 2_500).await;
        assert_eq!(sweep(t, &mut sweeper, KEPT_MS).await, 2_500);
        assert_eq!(left(t, &q).await, (0, 0));
    });
}

#[test]
fn operations_are_forgotten_once_under_unknown_outcomes() {
    on_database(async |t| {
        let scripts: [&[Fault]; 3] =
            [&[UnknownCommitted], &[UnknownNotCommitted, UnknownCommitted], &[Conflict, UnknownNotCommitted]];
        for script in scripts {
            let q = t.queue(format!("{script:?}"));
            let mut sweeper = store_old(t, &q, 1).await;
            store(t, &q, 1..2).await;
            if !t.install(Faults::script(script.to_vec())) {
                return;
            }
            let forgotten = sweep(t, &mut sweeper, KEPT_MS).await;
            t.end_faults();
            assert_eq!((forgotten, left(t, &q).await), (1, (1, 1)), "{script:?}");
        }
    });
}

#[test]
fn a_jump_of_versions_makes_no_operation_old() {
    on_database(async |t| {
        const DAY: u64 = 86_400_000_000;
        let q = t.queue("q");
        let options = PushOptions::default().with_idempotency_key(b"order 17".to_vec());
        let push =
            async || t.session(&q).push_items(&t.db, &[NewItem::new("a")], &options).await.unwrap().repeated;
        let rules = rules().with_idempotency_window(Duration::from_micros(DAY));
        assert!(!push().await);
        for minute in 0..100 {
            t.jump(10 * DAY);
            let mut sweeper = sweeper(&q);
            for _ in 0..2 {
                let moved = t.sweep(&mut sweeper, minute * 60_000, &rules).await.moved;
                assert!(moved.is_nothing(), "{moved:?}");
            }
        }
        assert!(push().await);
        if t.close_gate().is_none() {
            // The versions of a cluster cannot be made to jump, so none is a day old.
            return;
        }
        // A day and a sixteenth later by the clock it is forgotten, so much later at the most.
        assert_eq!(t.sweep(&mut sweeper(&q), 86_400_000 * 17 / 16, &rules).await.moved.operations, 1);
        assert!(!push().await);
    });
}
