//! Leases that run out: their items come back at their places, their holders are fenced off, and poison ends.

use kvqueue_queue::{Failure, ItemOutcome, LeaseError, RetryPolicy, SweepCounts, from_millis};
use std::time::Duration;

use crate::common::{SHORT, alone, at_most, on_database, payloads, rules, sweeper};

/// The length of the leases that [`TestDb::lease`] takes, in versions.
const LONG: u64 = 30_000_000;

const RAN_OUT: &str = "the lease ran out: its worker died, hung or lost the database";

fn policy() -> RetryPolicy {
    RetryPolicy::default()
}

#[test]
fn items_of_an_expired_lease_return_to_their_places_with_an_attempt_spent() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b", "c"]).await;
        let lease = t.lease_for(&q, 2, SHORT).await.unwrap();
        assert_eq!(payloads(lease.items()), ["a", "b"]);
        let moved = t.sweep_leases(&q, 1, &rules()).await;
        assert_eq!(moved, SweepCounts { leases: 1, returned: 2, ..SweepCounts::default() });
        assert_eq!((t.list(&q).await, t.len(&q).await), (vec!["a".into(), "b".into(), "c".into()], 3));
        let items = t.run(async |tr| q.list(tr).await).await;
        assert_eq!(items.iter().map(|item| item.attempt).collect::<Vec<_>>(), [2, 2, 1]);
        let meta = items[0].meta.as_ref().unwrap();
        assert_eq!((meta.attempts, meta.crashes), (1, 1));
        assert_eq!(meta.failures, [Failure::new(from_millis(0), 1, RAN_OUT)]);
        assert!(items[2].meta.is_none());
    });
}

#[test]
fn only_unacknowledged_items_are_returned() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b", "c"]).await;
        let mut lease = t.lease_for(&q, 3, SHORT).await.unwrap();
        lease.acknowledge(&t.db, &policy(), &[(1, ItemOutcome::Done)]).await.unwrap();
        let moved = t.sweep_leases(&q, 1, &rules()).await;
        assert_eq!((moved.returned, moved.dead), (2, 0));
        assert_eq!(t.list(&q).await, ["a", "c"]);
    });
}

#[test]
fn a_valid_lease_is_not_swept() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let mut lease = t.lease(&q, 1).await.unwrap();
        let swept = t.sweep(&mut sweeper(&q), 0, &rules()).await;
        assert!(swept.moved.is_nothing());
        // Looked at again at once, since the rules say so; by others, when the lease may run out.
        assert!(swept.next.is_zero());
        let rules = alone().with_lease(Duration::from_micros(10 * LONG));
        let mut first = sweeper(&q);
        let next = t.sweep(&mut first, 0, &rules).await.next.as_micros();
        assert!((20_000_000..=30_000_001).contains(&next), "{next}");
        t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        first.leave(&t.db, &policy()).await.unwrap();
        let next = t.sweep(&mut sweeper(&q), 0, &rules).await.next.as_micros();
        assert_eq!(next, 300_000_000);
    });
}

#[test]
fn a_lease_past_its_deadline_stays_usable_until_swept() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b"]).await;
        let mut lease = t.lease_for(&q, 2, SHORT).await.unwrap();
        t.until_past(lease.deadline()).await;
        lease.extend(&t.db, &policy()).await.unwrap();
        t.until_past(lease.deadline()).await;
        lease.acknowledge(&t.db, &policy(), &[(0, ItemOutcome::Done)]).await.unwrap();
        t.until_past(lease.deadline()).await;
        t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        assert!(lease.is_acknowledged());
        assert!(t.sweep(&mut sweeper(&q), 0, &rules()).await.moved.is_nothing());
        assert!(t.list(&q).await.is_empty());
    });
}

#[test]
fn a_swept_lease_cannot_be_acknowledged() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let mut lost = t.lease_for(&q, 1, SHORT).await.unwrap();
        t.sweep_leases(&q, 1, &rules()).await;
        // Also while another holds the item.
        for held in [false, true] {
            let next = if held { t.lease(&q, 1).await } else { None };
            assert!(matches!(lost.extend(&t.db, &policy()).await, Err(LeaseError::Lost)));
            let failure = Failure::new(from_millis(1), 1, "no");
            let retry = ItemOutcome::Retry { due: None, failure: failure.clone() };
            for outcome in [ItemOutcome::Done, ItemOutcome::Release, retry, ItemOutcome::Dead(failure)] {
                let error = lost.acknowledge(&t.db, &policy(), &[(0, outcome)]).await.unwrap_err();
                assert!(error.is_lost(), "{error:?}");
            }
            let tr = t.db.create_trx().unwrap();
            assert!(lost.acknowledge_in(&tr, &[(0, ItemOutcome::Done)]).await.unwrap().is_none());
            assert_eq!(t.list(&q).await.len(), usize::from(!held));
            if let Some(mut lease) = next {
                t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            }
        }
        assert_eq!(t.len(&q).await, 0);
    });
}

#[test]
fn crashed_items_are_leased_alone() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b"]).await;
        t.lease_for(&q, 2, SHORT).await.unwrap();
        t.sweep_leases(&q, 1, &rules()).await;
        t.push(&q, &["c", "d"]).await;
        for expected in [vec!["a"], vec!["b"], vec!["c", "d"]] {
            let mut lease = t.lease(&q, 10).await.unwrap();
            assert_eq!(payloads(lease.items()), expected);
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        }
    });
}

#[test]
fn items_next_to_a_crashed_item_are_leased_without_it() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "poison", "b", "c"]).await;
        let mut lease = t.lease_for(&q, 2, SHORT).await.unwrap();
        lease.acknowledge(&t.db, &policy(), &[(0, ItemOutcome::Release)]).await.unwrap();
        t.sweep_leases(&q, 1, &rules()).await;
        for expected in [vec!["a", "b", "c"], vec!["poison"]] {
            let lease = t.lease(&q, 10).await.unwrap();
            assert_eq!(payloads(lease.items()), expected);
        }
    });
}

#[test]
fn an_item_that_crashes_every_process_becomes_a_dead_letter() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["poison"]).await;
        let rules = at_most(3);
        let mut moved = SweepCounts::default();
        for attempt in 1..=3 {
            let lease = t.lease_for(&q, 1, SHORT).await.unwrap();
            assert_eq!(lease.items()[0].attempt, attempt);
            moved += t.sweep_leases(&q, 1, &rules).await;
        }
        assert_eq!(moved, SweepCounts { leases: 3, returned: 2, dead: 1, ..SweepCounts::default() });
        assert!(t.list(&q).await.is_empty() && t.lease(&q, 1).await.is_none());
        assert_eq!(t.len(&q).await, 0);
    });
}

/// Items that do not fit into one transaction go to leases without a holder. The next sweep returns
/// them.
#[test]
fn a_lease_too_large_for_one_transaction_is_returned_in_parts() {
    on_database(async |t| {
        let q = t.queue("q");
        let items: Vec<String> = (0..3_000).map(|n| format!("{n} {}", "x".repeat(1_200))).collect();
        let refs: Vec<&str> = items.iter().map(String::as_str).collect();
        t.push(&q, &refs[..1_500]).await;
        t.push(&q, &refs[1_500..]).await;
        let mut lease = t.lease_for(&q, 3_000, SHORT).await.unwrap();
        let taken = lease.items().len();
        lease.acknowledge(&t.db, &policy(), &[(7, ItemOutcome::Done)]).await.unwrap();
        let moved = t.sweep_leases(&q, 1, &rules()).await;
        assert!(moved.leases > 1, "{moved:?}");
        assert_eq!(moved.returned, taken - 1);
        assert!(matches!(lease.extend(&t.db, &policy()).await, Err(LeaseError::Lost)));
        assert_eq!(t.list(&q).await, [&items[..7], &items[8..]].concat());
        assert_eq!(t.len(&q).await, 2_999);
        assert!(t.sweep(&mut sweeper(&q), 0, &rules()).await.moved.is_nothing());
    });
}
