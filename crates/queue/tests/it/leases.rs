//! Leases: taking, settling, losing.

use fdb_embedded::Fault::{None as Fine, UnknownCommitted, UnknownNotCommitted};
use fdb_embedded::{Fault, Faults};
use kvqueue_queue::{
    Approach, Failure, Fetched, ItemOutcome, Lease, LeaseError, Queue, RetryPolicy, Session, from_millis,
};

use crate::common::{TestDb, fetch_options, k, on_database, payloads};

/// Thirty seconds in versions.
const LONG: u64 = 30_000_000;

async fn take(t: &TestDb, session: &mut Session, n: usize) -> Fetched<Option<Lease>> {
    let mut approach = Approach::Front;
    let mut take = fetch_options(n, LONG, &mut approach, true);
    session.fetch(&t.db, &mut take).await.unwrap()
}

async fn lease(t: &TestDb, queue: &Queue, n: usize) -> Lease {
    take(t, &mut t.session(queue), n).await.got.expect("there are items")
}

fn all(lease: &Lease, outcome: &ItemOutcome) -> Vec<(usize, ItemOutcome)> {
    lease.open().map(|index| (index, outcome.clone())).collect()
}

fn policy() -> RetryPolicy {
    RetryPolicy::default()
}

#[test]
fn a_lease_hides_its_items_until_they_are_released() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b", "c"]).await;
        let mut lease = lease(t, &q, 2).await;
        assert_eq!(payloads(lease.items()), ["a", "b"]);
        assert!(lease.items().iter().all(|item| item.attempt == 1));
        assert_eq!((t.list(&q).await, t.len(&q).await), (vec!["c".to_owned()], 1));
        let back = all(&lease, &ItemOutcome::Release);
        lease.acknowledge(&t.db, &policy(), &back).await.unwrap();
        assert!(lease.is_acknowledged());
        assert_eq!((t.list(&q).await, t.len(&q).await), (vec!["a".into(), "b".into(), "c".into()], 3));
    });
}

#[test]
fn items_are_acknowledged_one_by_one_and_each_once() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b", "c", "d"]).await;
        let mut lease = lease(t, &q, 4).await;
        let failure = Failure::new(from_millis(7), 1, "no");
        lease.acknowledge(&t.db, &policy(), &[(1, ItemOutcome::Done)]).await.unwrap();
        lease.acknowledge(&t.db, &policy(), &[(1, ItemOutcome::Release)]).await.unwrap();
        assert_eq!(lease.open().collect::<Vec<_>>(), [0, 2, 3]);
        assert!(t.list(&q).await.is_empty());
        let retry = ItemOutcome::Retry { due: None, failure: failure.clone() };
        lease.acknowledge(&t.db, &policy(), &[(0, retry), (2, ItemOutcome::Release)]).await.unwrap();
        lease.acknowledge(&t.db, &policy(), &[(3, ItemOutcome::Dead(failure.clone()))]).await.unwrap();
        assert!(lease.is_acknowledged());
        let again = self::lease(t, &q, 9).await;
        assert_eq!(payloads(again.items()), ["a", "c"]);
        assert_eq!(again.items().iter().map(|item| item.attempt).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(again.items()[0].meta.as_ref().unwrap().failures, [failure]);
        assert!(again.items()[1].meta.is_none());
    });
}

#[test]
fn a_lease_is_acknowledged_by_another_process_that_has_its_id() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b", "c"]).await;
        let mut first = lease(t, &q, 3).await;
        let id = first.id().to_string().parse().unwrap();
        assert_eq!(id, first.id());
        let find = async || q.lease(&t.db.create_trx().unwrap(), id).await.unwrap();
        let mut other = find().await.unwrap();
        assert_eq!(payloads(other.items()), ["a", "b", "c"]);
        other
            .acknowledge(&t.db, &policy(), &[(0, ItemOutcome::Done), (2, ItemOutcome::Release)])
            .await
            .unwrap();
        // The first holder is late with these two.
        first
            .acknowledge(&t.db, &policy(), &[(0, ItemOutcome::Release), (2, ItemOutcome::Done)])
            .await
            .unwrap();
        assert_eq!(first.open().collect::<Vec<_>>(), [1]);
        assert_eq!(t.list(&q).await, ["c"]);
        assert_eq!(find().await.unwrap().open().collect::<Vec<_>>(), [1]);
        first.acknowledge(&t.db, &policy(), &[(1, ItemOutcome::Done)]).await.unwrap();
        assert!(find().await.is_none());
        let late = other.acknowledge(&t.db, &policy(), &[(1, ItemOutcome::Done)]).await;
        assert!(matches!(late, Err(LeaseError::Lost)), "{late:?}");
    });
}

#[test]
fn a_lost_lease_can_be_neither_acknowledged_nor_extended() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let mut lease = lease(t, &q, 1).await;
        let before = lease.deadline();
        lease.extend(&t.db, &policy()).await.unwrap();
        assert!(lease.deadline() > before);
        t.run(async |tr| {
            q.delete(tr);
            Ok(())
        })
        .await;
        assert!(matches!(lease.extend(&t.db, &policy()).await, Err(LeaseError::Lost)));
        let done = [(0, ItemOutcome::Done)];
        assert!(matches!(lease.acknowledge(&t.db, &policy(), &done).await, Err(LeaseError::Lost)));
        assert_eq!(t.len(&q).await, 0);
    });
}

#[test]
fn acknowledging_an_index_without_item_is_refused() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b"]).await;
        let mut lease = lease(t, &q, 2).await;
        let wrong = [(0, ItemOutcome::Done), (2, ItemOutcome::Done)];
        let refused = lease.acknowledge(&t.db, &policy(), &wrong).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "lease has 2 items and none of index 2; use the indexes of `Lease::open`"
        );
        let tr = t.db.create_trx().unwrap();
        assert!(matches!(
            lease.acknowledge_in(&tr, &wrong).await,
            Err(LeaseError::NoItem { index: 2, items: 2 })
        ));
        assert_eq!(lease.open().count(), 2);
    });
}

#[test]
fn long_failure_reasons_of_all_outcomes_are_cut() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["retried", "dead"]).await;
        let mut lease = lease(t, &q, 2).await;
        let failure = Failure { at: from_millis(1), attempt: 1, reason: "r".repeat(200_000) };
        let retry = ItemOutcome::Retry { due: None, failure: failure.clone() };
        let outcomes = [(0, retry), (1, ItemOutcome::Dead(failure))];
        lease.acknowledge(&t.db, &policy(), &outcomes).await.unwrap();
        let again = self::lease(t, &q, 1).await;
        let kept = "r".repeat(kvqueue_queue::MAX_REASON);
        assert_eq!(again.items()[0].meta.as_ref().unwrap().failures[0].reason, kept);
        let letters = t.run(async |tr| q.dead_list(tr, None, k(9)).await).await;
        assert_eq!(letters[0].meta.death.as_ref().unwrap().reason, kept);
    });
}

#[test]
fn an_acknowledgement_of_unknown_outcome_can_be_repeated() {
    on_database(async |t| {
        for fault in [UnknownCommitted, UnknownNotCommitted] {
            let q = t.queue(format!("{fault:?}"));
            t.push(&q, &["a", "b"]).await;
            let once = RetryPolicy { max_attempts: Some(1), timeout: None };
            let done = [(0, ItemOutcome::Done), (1, ItemOutcome::Done)];
            // With an extension between, and without.
            for between in [false, true] {
                let mut lease = lease(t, &q, 1).await;
                if !t.install(Faults::script([fault])) {
                    return;
                }
                let error = lease.acknowledge(&t.db, &once, &done[..1]).await.unwrap_err();
                t.end_faults();
                assert!(error.is_maybe_committed() && !error.is_lost(), "{error:?}");
                if between {
                    lease.extend(&t.db, &policy()).await.unwrap();
                }
                lease.acknowledge(&t.db, &policy(), &done[..1]).await.unwrap();
                assert!(lease.is_acknowledged());
                // There is nothing left to extend.
                lease.extend(&t.db, &policy()).await.unwrap();
            }
            assert_eq!(t.counter(&q, "ndone").await, 2);
        }
    });
}

#[test]
fn a_lease_deleted_with_its_queue_was_not_acknowledged() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b"]).await;
        let mut lease = lease(t, &q, 2).await;
        if !t.install(Faults::script([UnknownNotCommitted])) {
            return;
        }
        let once = RetryPolicy { max_attempts: Some(1), timeout: None };
        lease.acknowledge(&t.db, &once, &[(0, ItemOutcome::Done)]).await.unwrap_err();
        t.end_faults();
        t.run(async |tr| {
            q.delete(tr);
            Ok(())
        })
        .await;
        // One of two may have been settled, and that clears no lease.
        let again = lease.acknowledge(&t.db, &policy(), &[(0, ItemOutcome::Done)]).await;
        assert!(matches!(again, Err(LeaseError::Lost)));
    });
}

#[test]
fn large_batches_are_held_in_pieces() {
    on_database(async |t| {
        let q = t.queue("q");
        let items: Vec<String> = (0..300).map(|i| format!("{i} {}", "x".repeat(1_000))).collect();
        let refs: Vec<&str> = items.iter().map(String::as_str).collect();
        t.push(&q, &refs).await;
        let mut lease = lease(t, &q, 300).await;
        assert_eq!(payloads(lease.items()), items);
        let back = all(&lease, &ItemOutcome::Release);
        lease.acknowledge(&t.db, &policy(), &back).await.unwrap();
        assert_eq!(t.list(&q).await, items);
    });
}

/// For every outcome of the commits, one fetch gets the items and no other does.
#[test]
fn a_fetch_happens_once_under_unknown_outcomes() {
    on_database(async |t| {
        for script in [
            vec![UnknownCommitted],
            vec![UnknownNotCommitted],
            vec![UnknownNotCommitted, UnknownCommitted],
            vec![Fault::Conflict, UnknownCommitted],
        ] {
            let q = t.queue(format!("q{script:?}"));
            t.push(&q, &["a", "b", "c"]).await;
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            let mut session = t.session(&q);
            let mut lease = take(t, &mut session, 2).await.got.unwrap();
            t.end_faults();
            assert_eq!(payloads(lease.items()), ["a", "b"], "{script:?}");
            assert_eq!(t.list(&q).await, ["c"], "{script:?}");
            assert_eq!(t.len(&q).await, 1, "{script:?}");
            let done = all(&lease, &ItemOutcome::Done);
            lease.acknowledge(&t.db, &policy(), &done).await.unwrap();
        }
    });
}

#[test]
fn an_acknowledgement_happens_once_under_unknown_outcomes() {
    on_database(async |t| {
        for script in
            [vec![UnknownCommitted], vec![UnknownNotCommitted], vec![Fault::Conflict, UnknownCommitted]]
        {
            for first in [0, 1] {
                let q = t.queue(format!("q{script:?}{first}"));
                t.push(&q, &["a", "b"]).await;
                let mut lease = lease(t, &q, 2).await;
                if !t.install(Faults::script(script.clone())) {
                    return;
                }
                lease.acknowledge(&t.db, &policy(), &[(first, ItemOutcome::Release)]).await.unwrap();
                assert_eq!(t.len(&q).await, 1, "{script:?}");
                assert!(t.install(Faults::script([vec![Fine], script.clone()].concat())));
                lease.extend(&t.db, &policy()).await.unwrap();
                lease.acknowledge(&t.db, &policy(), &[(1 - first, ItemOutcome::Release)]).await.unwrap();
                t.end_faults();
                assert!(lease.is_acknowledged());
                assert_eq!(t.list(&q).await, ["a", "b"], "{script:?}");
                assert_eq!(t.len(&q).await, 2, "{script:?}");
            }
        }
    });
}
