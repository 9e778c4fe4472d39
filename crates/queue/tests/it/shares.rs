//! Fetching for several workers in one transaction, and acknowledging leases of several.

use std::time::Duration;

use fdb_embedded::Fault::{UnknownCommitted, UnknownNotCommitted};
use fdb_embedded::{Fault, Faults};
use kvqueue_queue::{
    Fetched, ItemOutcome, Lease, LeaseError, RetryPolicy, Session, Share, acknowledge_together,
};

use crate::common::{SHORT, TestDb, k, on_database, payloads, rules, sweeper};

fn shares(of: &[usize]) -> Vec<Share> {
    of.iter().map(|n| Share { k: k(*n), lease: Duration::from_secs(30) }).collect()
}

async fn fetch(t: &TestDb, session: &mut Session, of: &[usize]) -> Fetched<Vec<Lease>> {
    session.fetch_for(&t.db, &shares(of), true).await.unwrap()
}

fn items(leases: &[Lease]) -> Vec<Vec<String>> {
    leases.iter().map(|lease| payloads(lease.items())).collect()
}

/// Each lease with the same outcome for all of its items.
fn all(leases: Vec<Lease>, outcome: &ItemOutcome) -> Vec<(Lease, Vec<(usize, ItemOutcome)>)> {
    let with_outcomes = |lease: Lease| {
        let outcomes = lease.open().map(|index| (index, outcome.clone())).collect();
        (lease, outcomes)
    };
    leases.into_iter().map(with_outcomes).collect()
}

const ONCE: RetryPolicy = RetryPolicy { max_attempts: Some(1), timeout: None };

#[test]
fn each_share_gets_a_lease_of_its_own_in_order() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b", "c", "d", "e"]).await;
        let mut session = t.session(&q);
        assert!(fetch(t, &mut session, &[]).await.got.is_empty());
        let first = fetch(t, &mut session, &[2, 1]).await;
        assert_eq!(items(&first.got), [vec!["a", "b"], vec!["c"]]);
        assert!(first.watch.is_none() && !first.recovered);
        // Who comes last gets what is left, or nothing.
        let second = fetch(t, &mut session, &[1, 3, 2]).await;
        assert_eq!(items(&second.got), [vec!["d"], vec!["e"]]);
        let ids: Vec<_> = first.got.iter().chain(&second.got).map(Lease::id).collect();
        assert!(ids.windows(2).all(|two| two[0] < two[1]), "{ids:?}");
        let third = fetch(t, &mut session, &[1, 1]).await;
        assert!(third.got.is_empty() && third.watch.is_some());
        let mut leases = all(first.got, &ItemOutcome::Done);
        leases.extend(all(second.got, &ItemOutcome::Release));
        for result in acknowledge_together(&t.db, &RetryPolicy::default(), &mut leases).await {
            result.unwrap();
        }
        assert!(leases.iter().all(|(lease, _)| lease.is_acknowledged()));
        assert_eq!((t.list(&q).await, t.counter(&q, "ndone").await), (vec!["d".into(), "e".into()], 3));
    });
}

/// Whatever becomes of the commits, each share has its items and nobody else does.
#[test]
fn leases_of_shares_are_made_once_under_unknown_outcomes() {
    on_database(async |t| {
        for script in [vec![UnknownCommitted], vec![UnknownNotCommitted], vec![Fault::Conflict]] {
            let q = t.queue(format!("q{script:?}"));
            t.push(&q, &["a", "b", "c"]).await;
            let mut session = t.session(&q);
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            let mut found = Vec::new();
            // After a fetch of unknown outcome its leases are found one by one.
            while found.len() < 2 {
                let fetched = fetch(t, &mut session, &[1, 1]).await;
                assert_eq!(fetched.recovered, script == [UnknownCommitted]);
                found.extend(fetched.got);
            }
            t.end_faults();
            assert_eq!(items(&found), [["a"], ["b"]], "{script:?}");
            assert_eq!(t.list(&q).await, ["c"], "{script:?}");
            let third = fetch(t, &mut session, &[1, 1]).await;
            assert_eq!((items(&third.got), third.recovered), (vec![vec!["c".to_owned()]], false));
        }
    });
}

/// A fetch that was given up and did commit.
#[test]
fn leases_of_a_fetch_that_failed_are_found_one_by_one() {
    on_database(async |t| {
        for fault in [UnknownCommitted, UnknownNotCommitted] {
            let q = t.queue(format!("{fault:?}"));
            t.push(&q, &["a", "b"]).await;
            let mut session = t.session(&q).with_policy(ONCE);
            if !t.install(Faults::script([fault])) {
                return;
            }
            session.fetch_for(&t.db, &shares(&[1, 1]), false).await.unwrap_err();
            t.end_faults();
            let mut found = fetch(t, &mut session, &[2]).await;
            if fault == UnknownCommitted {
                assert!(found.recovered);
                found.got.extend(fetch(t, &mut session, &[2]).await.got);
                assert_eq!(items(&found.got), [["a"], ["b"]]);
            } else {
                assert_eq!(items(&found.got), [["a", "b"]]);
            }
            assert!(fetch(t, &mut session, &[2]).await.got.is_empty());
        }
    });
}

#[test]
fn acknowledgements_of_several_leases_happen_once_under_unknown_outcomes() {
    on_database(async |t| {
        for script in
            [vec![UnknownCommitted], vec![UnknownNotCommitted], vec![Fault::Conflict, UnknownCommitted]]
        {
            let q = t.queue(format!("q{script:?}"));
            t.push(&q, &["a", "b", "c"]).await;
            let mut leases = fetch(t, &mut t.session(&q), &[2, 1]).await.got;
            let open = leases.remove(0);
            let mut leases = all(leases, &ItemOutcome::Done);
            leases.push((open, vec![(1, ItemOutcome::Release)]));
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            for result in acknowledge_together(&t.db, &RetryPolicy::default(), &mut leases).await {
                result.unwrap();
            }
            t.end_faults();
            assert_eq!((t.list(&q).await, t.counter(&q, "ndone").await), (vec!["b".into()], 1), "{script:?}");
            assert_eq!(leases[1].0.open().collect::<Vec<_>>(), [0]);
            leases[1].1 = vec![(0, ItemOutcome::Done)];
            for result in acknowledge_together(&t.db, &RetryPolicy::default(), &mut leases).await {
                result.unwrap();
            }
            assert_eq!(t.counter(&q, "ndone").await, 2, "{script:?}");
        }
    });
}

#[test]
fn a_lost_lease_and_a_wrong_index_do_not_keep_the_others() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b", "c"]).await;
        let mut leases = fetch(t, &mut t.session(&q), &[1, 1, 1]).await.got;
        // Another process has acknowledged the first.
        let id = leases[0].id();
        let mut other = q.lease(&t.db.create_trx().unwrap(), id).await.unwrap().unwrap();
        other.acknowledge(&t.db, &RetryPolicy::default(), &[(0, ItemOutcome::Done)]).await.unwrap();
        let last = leases.pop().unwrap();
        let mut leases = all(leases, &ItemOutcome::Done);
        leases.push((last, vec![(7, ItemOutcome::Done)]));
        let results = acknowledge_together(&t.db, &RetryPolicy::default(), &mut leases).await;
        assert!(matches!(results[0], Err(LeaseError::Lost)), "{results:?}");
        assert!(results[1].is_ok(), "{results:?}");
        assert!(matches!(results[2], Err(LeaseError::NoItem { index: 7, items: 1 })), "{results:?}");
        assert_eq!(t.counter(&q, "ndone").await, 2);
    });
}

/// Outcomes of more than a transaction holds are written in several.
#[test]
fn outcomes_of_many_large_items_take_several_transactions() {
    on_database(async |t| {
        let q = t.queue("q");
        let large = "x".repeat(90_000);
        t.push(&q, &[large.as_str(); 20]).await;
        let mut leases = Vec::new();
        while leases.len() < 4 {
            let fetched = fetch(t, &mut t.session(&q), &[5]).await;
            leases.extend(fetched.got);
        }
        let mut leases = all(leases, &ItemOutcome::Release);
        for result in acknowledge_together(&t.db, &RetryPolicy::default(), &mut leases).await {
            result.unwrap();
        }
        assert_eq!(t.len(&q).await, 20);
    });
}

/// Items that may have killed a worker go to one worker, in a group of the size that its own fetch would get.
#[test]
fn suspects_go_to_the_first_share_alone() {
    on_database(async |t| {
        let q = t.queue("q");
        let names: Vec<String> = (0..48).map(|n| format!("{n:02}")).collect();
        t.push(&q, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
        t.lease_for(&q, 48, SHORT).await.unwrap();
        let mut sweeper = sweeper(&q);
        while t.sweep(&mut sweeper, 0, &rules()).await.moved.leases == 0 {}
        let mut session = t.session(&q);
        let fetched = fetch(t, &mut session, &[16, 16, 16]).await;
        assert_eq!(items(&fetched.got), [["00"]]);
        // The worker that has it may have died. The other workers still get suspects.
        let next = fetch(t, &mut session, &[16, 16, 16]).await;
        assert_eq!(items(&next.got), [["01"]]);
        drop(fetched);
    });
}
