//! One sweeper is on duty, and the others wait: which of them looks, which takes over, and what is written.

use std::time::Duration;

use kvqueue_queue::{Queue, SweepRules, Sweeper};

use crate::common::schedules::{schedule, scheduler_of};
use crate::common::{TestDb, id, on_database, record, rules, session_id, sweeper};

/// The longest grace time of any sweeper, in milliseconds.
const GRACE: u64 = 3_000;

/// Rules with leases of this length; crashed items come back at once.
fn rules_for(lease: Duration) -> SweepRules {
    rules().with_lease(lease)
}

const LONG: Duration = Duration::from_secs(30);

async fn duty(t: &TestDb, queue: &Queue) -> Option<Vec<u8>> {
    let key = record(queue, "duty", b"");
    t.run(async |tr| Ok(tr.get(&key, true).await?.map(|value| value.to_vec()))).await
}

/// Lets this time pass; on an embedded database at once.
async fn pass(t: &TestDb, time: Duration) -> u64 {
    let micros = time.as_micros() as u64;
    let over = t.version().await + micros;
    t.jump(micros);
    t.until_past(over).await;
    micros
}

/// A queue with an item on a lease, and a sweeper that is on duty there.
async fn on_duty(t: &TestDb, queue: &Queue) -> Sweeper {
    t.push(queue, &["a"]).await;
    assert!(t.lease_for(queue, 1, 30_000_000).await.is_some());
    let mut first = sweeper(queue);
    assert!(t.sweep(&mut first, 0, &rules_for(LONG)).await.patience.is_zero());
    assert!(duty(t, queue).await.is_some());
    first
}

#[test]
fn sweepers_stand_by_while_one_is_on_duty_and_write_nothing() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut first = on_duty(t, &q).await;
        // Work that only a look at everything finds.
        t.store(&q, &id(1), "long", "key").await;
        t.foreign_pop(&q, &id(1)).await;
        let written = duty(t, &q).await;
        let mut ids = Vec::new();
        for _ in 0..16 {
            let swept = t.sweep(&mut sweeper(&q), 0, &rules_for(LONG)).await;
            assert!(swept.moved.is_nothing() && swept.doubtful == 0);
            assert_eq!(swept.attempts.begun, 1);
            // It waits for the one on duty, and for a grace time of its own.
            assert!(swept.patience >= Duration::from_millis(1_000), "{:?}", swept.patience);
            assert!(swept.patience <= Duration::from_millis(GRACE), "{:?}", swept.patience);
            assert!(swept.next <= LONG + swept.patience && swept.next > LONG / 2, "{:?}", swept.next);
            ids.push(swept.patience);
        }
        ids.sort();
        ids.dedup();
        assert!(ids.len() > 8, "sweepers would take over together: {ids:?}");
        assert_eq!(duty(t, &q).await, written);
        // A sweeper whose leases have the length zero looks at everything.
        assert_eq!(t.sweep(&mut sweeper(&q), 0, &rules()).await.moved.orphans, 1);
        assert!(t.sweep(&mut first, 0, &rules_for(LONG)).await.patience.is_zero());
    });
}

#[test]
fn a_scheduled_item_that_is_late_is_promoted_by_another_sweeper() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put_aside(&q, &[("a", 10_000), ("b", 10_001)]).await;
        let mut first = on_duty(t, &q).await;
        let mut second = sweeper(&q);
        let rules = rules_for(LONG);
        let swept = t.sweep(&mut second, 10_000, &rules).await;
        assert!(swept.moved.is_nothing());
        // It looks when the item is late.
        assert_eq!(swept.next, swept.patience);
        assert_eq!(t.sweep(&mut first, 10_000, &rules).await.moved.promoted, 1);
        let late = 10_001 + GRACE;
        // A claim holds for two seconds; while the one on duty works, it is not taken for dead.
        let swept = t.sweep(&mut second, late, &rules).await;
        assert!(swept.moved.is_nothing() || swept.moved.promoted == 1);
        let mut promoted = swept.moved.promoted;
        while promoted == 0 {
            pass(t, Duration::from_millis(100)).await;
            promoted = t.sweep(&mut second, late, &rules).await.moved.promoted;
        }
        // Now the second one is on duty, and the first one stands by.
        assert!(t.sweep(&mut second, late, &rules).await.patience.is_zero());
        assert!(!t.sweep(&mut first, late, &rules).await.patience.is_zero());
    });
}

#[test]
fn a_schedule_that_is_late_is_fired_by_another_sweeper() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put(&q, &schedule("s", 10_000), 0).await;
        t.push(&q, &["a"]).await;
        assert!(t.lease_for(&q, 1, 30_000_000).await.is_some());
        let rules = rules_for(LONG);
        let (mut first, mut second) = (scheduler_of(&q, session_id()), scheduler_of(&q, session_id()));
        let swept = t.sweep(&mut first, 9_990, &rules).await;
        assert_eq!((swept.occurrences.len(), swept.next), (0, Duration::from_millis(10)));
        let swept = t.sweep(&mut second, 10_000, &rules).await;
        assert_eq!((swept.occurrences.len(), swept.next), (0, swept.patience));
        let swept = t.sweep(&mut second, 10_000 + GRACE, &rules).await;
        assert_eq!((swept.occurrences.len(), t.len(&q).await), (1, 1));
        assert!(!t.sweep(&mut first, 10_000 + GRACE, &rules).await.patience.is_zero());
    });
}

#[test]
fn a_dead_sweepers_expired_leases_are_returned_within_seconds() {
    on_database(async |t| {
        const LEASE: Duration = Duration::from_millis(300);
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        assert!(t.lease_for(&q, 1, 300_000).await.is_some());
        drop(t.sweep(&mut sweeper(&q), 0, &rules_for(LEASE)).await);
        let (mut second, mut waits) = (sweeper(&q), Vec::new());
        loop {
            let swept = t.sweep(&mut second, 0, &rules_for(LEASE)).await;
            if swept.moved.returned == 1 {
                break;
            }
            assert!(waits.len() < 3, "the lease is not returned: {waits:?}");
            waits.push(pass(t, swept.next).await);
        }
        // It waited for the dead one, and for a grace time.
        let waited: u64 = waits.iter().sum();
        assert!((1_000_000..300_000 + 1_000 * GRACE + 1_000).contains(&waited), "{waits:?}");
    });
}

#[test]
fn a_sweeper_that_leaves_its_duty_is_followed_at_once() {
    on_database(async |t| {
        let q = t.queue("q");
        let first = on_duty(t, &q).await;
        let mut second = sweeper(&q);
        assert!(!t.sweep(&mut second, 0, &rules_for(LONG)).await.patience.is_zero());
        // Only its own duty.
        second.leave(&t.db, &rules().policy).await.unwrap();
        assert!(!t.sweep(&mut second, 0, &rules_for(LONG)).await.patience.is_zero());
        first.leave(&t.db, &rules().policy).await.unwrap();
        assert_eq!(duty(t, &q).await, None);
        assert!(t.sweep(&mut second, 0, &rules_for(LONG)).await.patience.is_zero());
        assert!(duty(t, &q).await.is_some());
    });
}

#[test]
fn an_idle_queue_is_written_once_and_looked_through_after_the_next_fetch() {
    on_database(async |t| {
        const LEASE: Duration = Duration::from_millis(1);
        let q = t.queue("q");
        let mut sweepers: Vec<_> = (0..4).map(|_| sweeper(&q)).collect();
        // A queue that nothing was fetched from has no records of sweepers.
        t.push(&q, &["a", "b"]).await;
        for sweeper in &mut sweepers {
            t.sweep(sweeper, 0, &rules_for(LEASE)).await;
        }
        assert_eq!(duty(t, &q).await, None);
        assert!(t.run(async |tr| q.pop(tr).await).await.is_some());
        pass(t, LEASE).await;
        t.sweep(&mut sweepers[0], 0, &rules_for(LEASE)).await;
        let idle = duty(t, &q).await.expect("the idle queue is marked");
        // After many times the length of a lease.
        for round in 0..20 {
            pass(t, LEASE).await;
            t.sweep(&mut sweepers[round % 4], 0, &rules_for(LEASE)).await;
            t.sweep(&mut sweeper(&q), 0, &rules_for(LEASE)).await;
        }
        assert_eq!(duty(t, &q).await.as_ref(), Some(&idle));
        // A worker fetches an item and dies.
        assert!(t.lease_for(&q, 1, 1).await.is_some());
        let mut returned = 0;
        for _ in 0..20 {
            pass(t, LEASE).await;
            returned += t.sweep(&mut sweepers[3], 0, &rules_for(LEASE)).await.moved.returned;
        }
        assert_eq!(returned, 1);
        assert_ne!(duty(t, &q).await, Some(idle));
        assert_eq!(t.list(&q).await, ["b"]);
    });
}

#[test]
fn a_duty_record_of_another_layout_or_life_is_replaced() {
    on_database(async |t| {
        let key = |q: &Queue| record(q, "duty", b"");
        let future = [&[1], [7; 16].as_slice(), &u64::MAX.to_le_bytes(), &u64::MAX.to_le_bytes()].concat();
        for (name, value) in [("unknown", vec![9; 33]), ("ahead", future)] {
            let q = t.queue(name);
            t.push(&q, &["a"]).await;
            assert!(t.lease_for(&q, 1, 30_000_000).await.is_some());
            t.run(async |tr| {
                tr.set(&key(&q), &value);
                Ok(())
            })
            .await;
            assert!(t.sweep(&mut sweeper(&q), 0, &rules_for(LONG)).await.patience.is_zero(), "{name}");
            assert_ne!(duty(t, &q).await.as_ref(), Some(&value), "{name}");
        }
    });
}

/// How many sweeps of 64 sweepers, in `rounds` times the length of a lease, did more than one small transaction. The one on duty comes
/// last in each round.
async fn sweeps_with_more(t: &TestDb, queue: &Queue, rounds: u64, busy: bool) -> usize {
    const LEASE: Duration = Duration::from_secs(10);
    let mut sweepers: Vec<_> = (0..64).map(|_| sweeper(queue)).collect();
    t.sweep(&mut sweepers[63], 0, &rules_for(LEASE)).await;
    let mut more = 0;
    for round in 1..=rounds {
        pass(t, LEASE).await;
        if busy {
            t.push(queue, &["b"]).await;
            assert!(t.lease_for(queue, 1, 3_600_000_000).await.is_some());
        }
        for sweeper in &mut sweepers {
            more += usize::from(t.sweep(sweeper, round, &rules_for(LEASE)).await.attempts.begun > 1);
        }
    }
    more
}

#[test]
fn of_many_sweepers_one_looks_through_a_busy_queue_and_none_through_an_idle_one() {
    on_database(async |t| {
        if t.close_gate().is_none() {
            return;
        }
        let busy = t.queue("busy");
        t.push(&busy, &["a"]).await;
        assert!(t.lease_for(&busy, 1, 3_600_000_000).await.is_some());
        assert_eq!(sweeps_with_more(t, &busy, 10, true).await, 10);
        let idle = t.queue("idle");
        t.push(&idle, &["a", "b"]).await;
        assert!(t.run(async |tr| idle.pop(tr).await).await.is_some());
        assert_eq!(sweeps_with_more(t, &idle, 10, false).await, 0);
    });
}
