//! Several sweepers at once, and sweepers under unknown outcomes: everything is moved once, and nobody fights.

use std::time::{Duration, Instant};

use fdb_embedded::Fault::{self, Conflict, TooOld, UnknownCommitted, UnknownNotCommitted};
use fdb_embedded::Faults;
use kvqueue_queue::{Attempts, SweepCounts, SweepRules};

use crate::common::{SHORT, on_database, rules, sweeper};

fn scripts() -> Vec<Vec<Fault>> {
    vec![
        vec![UnknownCommitted],
        vec![UnknownNotCommitted],
        vec![UnknownNotCommitted, UnknownCommitted],
        vec![UnknownNotCommitted, UnknownNotCommitted, Conflict, TooOld],
        vec![Conflict, UnknownCommitted],
    ]
}

#[test]
fn a_promotion_happens_once_under_unknown_outcomes() {
    on_database(async |t| {
        for script in scripts() {
            let q = t.queue(format!("{script:?}"));
            t.put_aside(&q, &[("a", 1), ("b", 2), ("c", 3)]).await;
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            let moved = t.sweep(&mut sweeper(&q), 2, &SweepRules::default()).await.moved;
            t.end_faults();
            assert_eq!(moved, SweepCounts { promoted: 2, ..SweepCounts::default() }, "{script:?}");
            assert_eq!((t.list(&q).await, t.len(&q).await), (vec!["a".into(), "b".into()], 2), "{script:?}");
        }
    });
}

#[test]
fn an_expired_lease_is_returned_once_under_unknown_outcomes() {
    on_database(async |t| {
        for script in scripts() {
            let q = t.queue(format!("{script:?}"));
            t.push(&q, &["a", "b"]).await;
            let lease = t.lease_for(&q, 2, SHORT).await.unwrap();
            t.until_past(lease.deadline()).await;
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            let moved = t.sweep(&mut sweeper(&q), 7, &rules()).await.moved;
            t.end_faults();
            assert_eq!(moved, SweepCounts { leases: 1, returned: 2, ..SweepCounts::default() }, "{script:?}");
            assert_eq!(t.len(&q).await, 2, "{script:?}");
            let items = t.run(async |tr| q.list(tr).await).await;
            assert!(items.iter().all(|item| item.attempt == 2), "{script:?}: {items:?}");
        }
    });
}

#[test]
fn a_sweeper_does_not_sweep_while_another_one_does() {
    on_database(async |t| {
        // A claim holds for two seconds; on a machine that is busy for longer, it is tried again.
        for round in 0..20 {
            let q = t.queue(format!("q{round}"));
            t.put_aside(&q, &[("a", 1), ("b", 2)]).await;
            let begun = Instant::now();
            let (mut first, mut second) = (sweeper(&q), sweeper(&q));
            assert_eq!(t.sweep(&mut first, 1, &rules()).await.moved.promoted, 1);
            let waiting = t.sweep(&mut second, 2, &rules()).await;
            let still_first = t.sweep(&mut first, 2, &rules()).await;
            if begun.elapsed() > Duration::from_millis(1_500) {
                continue;
            }
            assert!(waiting.moved.is_nothing());
            let left = waiting.next.as_micros();
            assert!((1..=2_000_001).contains(&left), "{left}");
            assert_eq!(still_first.moved.promoted, 1);
            // When the claim has run out, another takes over.
            t.put_aside(&q, &[("c", 3)]).await;
            let mut promoted = 0;
            while promoted == 0 {
                promoted = t.sweep(&mut second, 3, &rules()).await.moved.promoted;
            }
            assert_eq!(t.list(&q).await, ["a", "b", "c"]);
            return;
        }
        panic!("three sweeps never took less than the time of a claim");
    });
}

/// Four sweepers that begin at the same moment, again and again.
#[test]
fn sweepers_that_start_together_move_everything_once_and_seldom_conflict() {
    on_database(async |t| {
        const SWEEPERS: usize = 4;
        let q = t.queue("q");
        let names: Vec<String> = (0..60).map(|n| n.to_string()).collect();
        let items: Vec<(&str, u64)> = names.iter().map(String::as_str).zip(1..).collect();
        t.put_aside(&q, &items[..50]).await;
        for (payload, _) in &items[50..] {
            t.push(&q, &[payload]).await;
            t.lease_for(&q, 1, SHORT).await.unwrap();
        }
        let barrier = tokio::sync::Barrier::new(SWEEPERS);
        let sweepers = (0..SWEEPERS).map(async |_| {
            let (mut sweeper, mut moved, mut attempts) =
                (sweeper(&q), SweepCounts::default(), Attempts::default());
            for now in 1..=50 {
                barrier.wait().await;
                let swept = t.sweep(&mut sweeper, now, &rules()).await;
                moved += swept.moved;
                attempts.begun += swept.attempts.begun;
                attempts.conflicts += swept.attempts.conflicts;
            }
            (moved, attempts)
        });
        let (mut moved, mut conflicts, mut transactions) = (SweepCounts::default(), 0, 0);
        for (its, attempts) in futures::future::join_all(sweepers).await {
            moved += its;
            conflicts += attempts.conflicts;
            transactions += attempts.begun;
        }
        println!("{conflicts} conflicts in {transactions} transactions");
        assert_eq!((moved.promoted, moved.returned, moved.leases), (50, 10, 10));
        assert_eq!((t.list(&q).await, t.len(&q).await), (names, 60));
        assert!(t.lease(&q, 1).await.is_some());
        // Only when a claim is free can two meet.
        assert!(20 * conflicts < transactions, "{conflicts} conflicts in {transactions} transactions");
    });
}
