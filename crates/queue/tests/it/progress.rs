//! Progress of running items: written with extensions, and never left behind.

use fdb_embedded::Faults;
use kvqueue_queue::{
    Failure, ItemId, ItemOutcome, ItemState, Lease, LeaseError, LeaseId, Progress, Queue, RetryPolicy,
    from_millis,
};

use crate::common::{
    KINDS, OF_ONE_STEP, Rng, SHORT, TestDb, k, kinds_of_records, later, on_database, rules, run_seed, seeds,
};
use crate::unknown::scripts;

const LONG: u64 = 3_600_000_000;
const STEPS: usize = 40;

fn halfway(at: u64) -> Progress {
    Progress::new(from_millis(at), Some(50), "halfway")
}

async fn extend(t: &TestDb, lease: &mut Lease, progress: &[(usize, Progress)]) {
    lease.extend_with(&t.db, &RetryPolicy::default(), progress).await.unwrap();
}

/// What is shown of a running item.
async fn shown(t: &TestDb, q: &Queue, id: &ItemId) -> Option<Progress> {
    t.run(async |tr| q.view_item(tr, id).await).await.unwrap().progress
}

async fn rows(t: &TestDb, q: &Queue) -> usize {
    t.records(q, "progress").await.len()
}

#[test]
fn an_extension_writes_progress_and_the_end_of_the_lease_clears_it_in_queues_of_all_kinds() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            t.fill(&q, &["a", "b", "c"]).await;
            let mut lease = t.lease_for(&q, 3, LONG).await.unwrap();
            let ids: Vec<_> = lease.items().iter().map(|item| item.id.clone()).collect();
            assert_eq!(shown(t, &q, &ids[0]).await, None);
            extend(t, &mut lease, &[(0, halfway(1)), (2, Progress::new(from_millis(1), None, ""))]).await;
            assert_eq!(shown(t, &q, &ids[0]).await, Some(halfway(1)), "{kind:?}");
            assert_eq!(shown(t, &q, &ids[1]).await, None);
            assert_eq!(shown(t, &q, &ids[2]).await, Some(Progress::new(from_millis(1), None, "")));
            // An extension without news keeps it; one with news replaces that of its items.
            extend(t, &mut lease, &[]).await;
            extend(t, &mut lease, &[(0, halfway(2)), (1, halfway(2))]).await;
            assert_eq!(shown(t, &q, &ids[0]).await, Some(halfway(2)));
            assert_eq!(shown(t, &q, &ids[2]).await, Some(Progress::new(from_millis(1), None, "")));
            let page = t.run(async |tr| q.view(tr, ItemState::Running, None, k(9)).await).await;
            let listed: Vec<_> = page.items.into_iter().map(|item| item.progress.unwrap().at).collect();
            assert_eq!(listed, [2, 2, 1].map(from_millis), "{kind:?}");
            lease.acknowledge(&t.db, &RetryPolicy::default(), &[(0, ItemOutcome::Done)]).await.unwrap();
            assert_eq!(rows(t, &q).await, 1);
            // That of an item that has ended is passed over, and an index that is none is refused.
            extend(t, &mut lease, &[(0, halfway(3)), (1, halfway(3))]).await;
            let none = lease.extend_with(&t.db, &RetryPolicy::default(), &[(3, halfway(3))]).await;
            assert!(matches!(none, Err(LeaseError::NoItem { index: 3, items: 3 })));
            t.acknowledge(&mut lease, &ItemOutcome::Release).await;
            assert_eq!(rows(t, &q).await, 0, "{kind:?}");
            let again = t.lease_for(&q, 1, LONG).await.unwrap();
            assert_eq!(shown(t, &q, &again.items()[0].id).await, None);
        }
    });
}

#[test]
fn a_lease_without_progress_has_no_record() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let mut lease = t.lease_for(&q, 1, LONG).await.unwrap();
        extend(t, &mut lease, &[]).await;
        let kinds = kinds_of_records(t, &q).await;
        assert!(!kinds.iter().any(|kind| kind == "progress"), "{kinds:?}");
    });
}

#[test]
fn progress_is_kept_under_unknown_outcomes() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().filter(|script| script.len() < 3).enumerate() {
            let q = t.queue(format!("q{i}"));
            t.push(&q, &["a"]).await;
            let mut lease = t.lease_for(&q, 1, LONG).await.unwrap();
            let id = lease.items()[0].id.clone();
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            extend(t, &mut lease, &[(0, halfway(1))]).await;
            t.end_faults();
            assert_eq!(shown(t, &q, &id).await, Some(halfway(1)), "{script:?}");
            t.install(Faults::script(script.clone()));
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            t.end_faults();
            assert_eq!(rows(t, &q).await, 0, "{script:?}");
        }
    });
}

#[test]
fn the_sweeper_and_a_cancellation_clear_the_progress_of_a_lease_that_ends() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b"]).await;
        let mut lease = t.lease_for(&q, 1, SHORT).await.unwrap();
        extend(t, &mut lease, &[(0, halfway(1))]).await;
        let mut cancelled = t.lease_for(&q, 1, LONG).await.unwrap();
        extend(t, &mut cancelled, &[(0, halfway(1))]).await;
        assert_eq!(rows(t, &q).await, 2);
        t.sweep_leases(&q, 1, &rules()).await;
        assert_eq!(rows(t, &q).await, 1);
        let id = &cancelled.items()[0].id;
        q.cancel_item(&t.db, &RetryPolicy::default(), id).await.unwrap();
        assert_eq!(rows(t, &q).await, 0);
        // Whose lease it was writes none any more.
        extend(t, &mut cancelled, &[(0, halfway(2))]).await;
        let lost = lease.extend_with(&t.db, &RetryPolicy::default(), &[(0, halfway(2))]).await;
        assert!(lost.unwrap_err().is_lost());
        assert_eq!(rows(t, &q).await, 0);
    });
}

#[test]
fn another_process_that_knows_the_lease_by_its_id_goes_on_with_its_progress() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b"]).await;
        let mut first = t.lease_for(&q, 2, LONG).await.unwrap();
        extend(t, &mut first, &[(0, halfway(1))]).await;
        let id: LeaseId = first.id();
        let mut second = t.run(async |tr| q.lease(tr, id).await).await.unwrap();
        extend(t, &mut second, &[(1, halfway(2))]).await;
        assert_eq!(shown(t, &q, &first.items()[0].id).await, Some(halfway(1)));
        t.acknowledge(&mut second, &ItemOutcome::Done).await;
        assert_eq!(rows(t, &q).await, 0);
    });
}

#[test]
fn a_lease_of_many_items_keeps_the_newest_progress() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["x"; 600]).await;
        let mut lease = t.lease_for(&q, 600, LONG).await.unwrap();
        let long = |at| Progress::new(from_millis(at), Some(1), &"m".repeat(300));
        let news: Vec<_> = (0..600).map(|index| (index, long(index as u64))).collect();
        extend(t, &mut lease, &news).await;
        let stored = t.records(&q, "progress").await;
        assert!(stored[0].1.len() <= 90_000);
        assert_eq!(shown(t, &q, &lease.items()[599].id).await, Some(long(599)));
        assert_eq!(shown(t, &q, &lease.items()[0].id).await, None);
    });
}

#[test]
fn random_changes_of_leases_leave_no_progress_behind() {
    on_database(async |t| {
        for seed in seeds(25) {
            run_seed(seed, "random_changes_of_leases_leave", OF_ONE_STEP, random(t, seed)).await;
        }
    });
}

async fn random(t: &TestDb, seed: u64) {
    let mut rng = Rng::new(seed);
    let q = t.queue_of(format!("random/{seed}"), KINDS[rng.below(KINDS.len())]);
    let policy = RetryPolicy::default();
    t.install(Faults::seeded(seed).unknown_committed(0.1).unknown_not_committed(0.1).conflict(0.1));
    let mut leases: Vec<Lease> = Vec::new();
    for at in 0..STEPS as u64 {
        match rng.below(6) {
            0 => t.push_by(&q, 1 + rng.below(4) as i64, "x").await,
            1 => leases.extend(t.lease_for(&q, 1 + rng.below(3), [SHORT, LONG][rng.below(2)]).await),
            2 | 3 if !leases.is_empty() => {
                let lease = rng.below(leases.len());
                let lease = &mut leases[lease];
                let index = rng.below(lease.items().len());
                // It may have expired.
                let _ = lease.extend_with(&t.db, &policy, &[(index, halfway(at))]).await;
            }
            4 if !leases.is_empty() => {
                let lease = rng.below(leases.len());
                let lease = &mut leases[lease];
                let index = rng.below(lease.items().len());
                let outcome = match rng.below(4) {
                    0 => ItemOutcome::Done,
                    1 => ItemOutcome::Release,
                    2 => later(1_000),
                    _ => ItemOutcome::Dead(Failure::new(from_millis(at), 1, "no")),
                };
                let _ = lease.acknowledge(&t.db, &policy, &[(index, outcome)]).await;
            }
            _ => {
                let mut sweeper = crate::common::sweeper(&q);
                t.sweep(&mut sweeper, 0, &rules()).await;
            }
        }
        // Each record belongs to a lease.
        let of = async |second: &str| -> Vec<Vec<u8>> {
            t.records(&q, second).await.into_iter().map(|(key, _)| key).collect()
        };
        let (records, headers) = (of("progress").await, of("lease").await);
        assert!(records.iter().all(|key| headers.contains(key)), "step {at}");
    }
    t.end_faults();
    for lease in &mut leases {
        let rest: Vec<_> = lease.open().map(|index| (index, ItemOutcome::Done)).collect();
        let _ = lease.acknowledge(&t.db, &policy, &rest).await;
    }
    if t.records(&q, "lease").await.is_empty() {
        assert_eq!(rows(t, &q).await, 0);
    }
}
