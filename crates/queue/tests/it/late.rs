//! Commits that are on their way while the world goes on, and workers that are suspended: late ones can do no harm.
//!
//! Commits wait at a gate ([`fdb_embedded::Gate`]), so each test says which one arrives first.

use std::pin::pin;

use fdb_embedded::{Code, Fault, Gate, HeldCommit};
use kvqueue_queue::{
    Approach, FetchError, Fetched, ItemOutcome, Lease, LeaseError, NewItem, Queue, RetryPolicy, Session,
    Staged, Sweeper, Swept, from_millis, migration,
};
use mutant::Bounds;

use crate::common::gate::{overlaps, to_the_end, until_sent};
use crate::common::{TestDb, fetch_options, k, later, on_database, payloads, rules, sweeper};

/// The length of leases in versions: less than a transaction may last, so that one from before a lease's end can still commit after it.
const LENGTH: u64 = 1_000_000;

const DONE: [(usize, ItemOutcome); 1] = [(0, ItemOutcome::Done)];

fn policy() -> RetryPolicy {
    RetryPolicy::default()
}

async fn take(t: &TestDb, session: &mut Session) -> Fetched<Option<Lease>> {
    let mut approach = Approach::Front;
    let mut take = fetch_options(1, LENGTH, &mut approach, false);
    session.fetch(&t.db, &mut take).await.unwrap()
}

/// A lease on the first item, for a session of its own.
async fn lease(t: &TestDb, gate: &Gate, queue: &Queue) -> Lease {
    to_the_end(gate, pin!(take(t, &mut t.session(queue)))).await.got.unwrap()
}

async fn sweep(t: &TestDb, sweeper: &mut Sweeper) -> Swept {
    sweeper.sweep(&t.db, &|| from_millis(0), &rules()).await.unwrap()
}

/// Lets a commit arrive; 0 if it happens, else the error's code.
fn arrives(commit: HeldCommit) -> i32 {
    commit.pass(Fault::None).map_or_else(Code::raw, |_version| 0)
}

#[test]
fn a_worker_suspended_past_its_lease_cannot_acknowledge_or_extend() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let Some(gate) = t.close_gate() else { return };
        let mut suspended = lease(t, &gate, &q).await;
        gate.advance(LENGTH + 1);
        let swept = to_the_end(&gate, pin!(sweep(t, &mut sweeper(&q)))).await;
        assert_eq!((swept.moved.leases, swept.moved.returned), (1, 1));
        let mut other = lease(t, &gate, &q).await;
        assert_eq!((payloads(other.items()), other.items()[0].attempt), (vec!["a".to_owned()], 2));

        // It goes on.
        let policy = policy();
        let settled = to_the_end(&gate, pin!(suspended.acknowledge(&t.db, &policy, &DONE))).await;
        assert!(matches!(settled, Err(LeaseError::Lost)));
        let extended = to_the_end(&gate, pin!(suspended.extend(&t.db, &policy))).await;
        assert!(matches!(extended, Err(LeaseError::Lost)));
        to_the_end(&gate, pin!(other.acknowledge(&t.db, &policy, &DONE))).await.unwrap();
        drop(gate);
        assert_eq!(t.run(async |tr| q.counts(tr).await).await.done, 1);
    });
}

#[test]
fn an_acknowledgement_after_the_lease_was_swept_does_not_happen() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let Some(gate) = t.close_gate() else { return };
        let (mut lease, policy) = (lease(t, &gate, &q).await, policy());
        let mut settling = pin!(lease.acknowledge(&t.db, &policy, &DONE));
        let outcome = until_sent(&gate, settling.as_mut()).await;
        gate.advance(LENGTH + 1);
        assert_eq!(to_the_end(&gate, pin!(sweep(t, &mut sweeper(&q)))).await.moved.returned, 1);
        assert_eq!(arrives(outcome), 1020);
        assert!(matches!(to_the_end(&gate, settling).await, Err(LeaseError::Lost)));
        drop(gate);
        assert_eq!(t.list(&q).await, ["a"]);
    });
}

#[test]
fn a_lease_is_kept_when_its_holder_acknowledges_at_the_last_moment() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let Some(gate) = t.close_gate() else { return };
        let (mut lease, policy) = (lease(t, &gate, &q).await, policy());
        gate.advance(LENGTH + 1);
        let mut sweeper = sweeper(&q);
        let mut sweeping = pin!(sweep(t, &mut sweeper));
        let return_of_items = until_sent(&gate, sweeping.as_mut()).await;
        to_the_end(&gate, pin!(lease.acknowledge(&t.db, &policy, &DONE))).await.unwrap();
        assert_eq!(arrives(return_of_items), 1020);
        assert!(to_the_end(&gate, sweeping).await.moved.is_nothing());
        drop(gate);
        assert!(t.list(&q).await.is_empty());
    });
}

/// A queue of "b" with a take of it that is on its way and that nobody waits for; then "a" comes back before it. So the session's next take
/// wants another item, and nothing but the fence stands between the two.
async fn given_up(
    t: &TestDb,
    gate: &Gate,
    queue: &Queue,
    session: &mut Session,
    for_good: bool,
) -> HeldCommit {
    let mut other = lease(t, gate, queue).await;
    let late = match for_good {
        true => until_sent(gate, pin!(session.take(&t.db, k(1)))).await,
        false => until_sent(gate, pin!(take(t, session))).await,
    };
    let release = [(0, ItemOutcome::Release)];
    to_the_end(gate, pin!(other.acknowledge(&t.db, &policy(), &release))).await.unwrap();
    late
}

#[test]
fn an_abandoned_take_does_not_happen_after_the_next() {
    on_database(async |t| {
        for for_good in [true, false] {
            let q = t.queue(format!("q {for_good}"));
            t.push(&q, &["a", "b"]).await;
            let Some(gate) = t.close_gate() else { return };
            let mut session = t.session(&q);
            let late = given_up(t, &gate, &q, &mut session, for_good).await;
            let items = if for_good {
                to_the_end(&gate, pin!(session.take(&t.db, k(1)))).await.unwrap().got
            } else {
                to_the_end(&gate, pin!(take(t, &mut session))).await.got.unwrap().items().to_vec()
            };
            assert_eq!(payloads(&items), ["a"]);
            assert_eq!(arrives(late), 1020);
            drop(gate);
            assert_eq!(t.list(&q).await, ["b"]);
        }
    });
}

#[test]
fn an_abandoned_take_that_commits_first_is_the_next() {
    on_database(async |t| {
        for for_good in [true, false] {
            let q = t.queue(format!("q {for_good}"));
            t.push(&q, &["a", "b"]).await;
            let Some(gate) = t.close_gate() else { return };
            let mut session = t.session(&q);
            let late = given_up(t, &gate, &q, &mut session, for_good).await;
            // The next has looked, and found nothing of the late one, when that arrives.
            let items = if for_good {
                let mut taking = pin!(session.take(&t.db, k(1)));
                let next = until_sent(&gate, taking.as_mut()).await;
                assert_eq!((arrives(late), arrives(next)), (0, 1020));
                to_the_end(&gate, taking).await.unwrap().got
            } else {
                let mut taking = pin!(take(t, &mut session));
                let next = until_sent(&gate, taking.as_mut()).await;
                assert_eq!((arrives(late), arrives(next)), (0, 1020));
                let leased = to_the_end(&gate, taking).await;
                assert!(leased.recovered);
                leased.got.unwrap().items().to_vec()
            };
            assert_eq!(payloads(&items), ["b"]);
            drop(gate);
            assert_eq!(t.list(&q).await, ["a"]);
        }
    });
}

async fn take_staged(
    t: &TestDb,
    session: &mut Session,
    approach: &mut Approach,
) -> Result<Fetched<Option<Lease>>, FetchError> {
    session.fetch(&t.db, &mut fetch_options(1, LENGTH, approach, false)).await
}

#[test]
fn a_session_that_can_remember_no_other_request_withdraws_a_late_one() {
    let _bounds = Bounds::default().with("requests-of-a-session", 1).enter();
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let Some(gate) = t.close_gate() else { return };
        let once = RetryPolicy { max_attempts: Some(1), timeout: None };
        let (mut session, mut approach) =
            (t.session(&q).with_policy(once), Approach::Staged(Staged::default()));
        {
            let mut loses = pin!(take_staged(t, &mut session, &mut approach));
            let take = until_sent(&gate, loses.as_mut()).await;
            assert_eq!(take.pass(Fault::Conflict).map_err(Code::raw), Err(1020));
            to_the_end(&gate, loses).await.unwrap_err();
        }
        let request = until_sent(&gate, pin!(take_staged(t, &mut session, &mut approach))).await;
        let mut takes_for_itself = pin!(take_staged(t, &mut session, &mut approach));
        let take = until_sent(&gate, takes_for_itself.as_mut()).await;
        assert_eq!(arrives(request), 0);
        assert_eq!(arrives(take), 1020);
        to_the_end(&gate, takes_for_itself).await.unwrap_err();
        drop(gate);
        assert!(t.records(&q, "want").await.is_empty());
        assert_eq!(t.list(&q).await, ["a"]);
    });
}

#[test]
fn an_abandoned_push_does_not_happen_after_the_next() {
    on_database(async |t| {
        let q = t.queue("q");
        let Some(gate) = t.close_gate() else { return };
        let mut session = t.session(&q);
        let late = until_sent(&gate, pin!(session.push(&t.db, &["late"]))).await;
        to_the_end(&gate, pin!(session.push(&t.db, &["next"]))).await.unwrap();
        assert_eq!(arrives(late), 1020);
        drop(gate);
        assert_eq!(t.list(&q).await, ["next"]);
    });
}

#[test]
fn a_push_that_is_late_fails_at_the_fence_of_a_migration() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut session = t.session(&q);
        session.push(&t.db, &["before"]).await.unwrap();
        let Some(gate) = t.close_gate() else { return };
        // It knows that the queue is not frozen, and is on its way.
        let held = {
            let mut late = pin!(session.push(&t.db, &["late"]));
            until_sent(&gate, late.as_mut()).await
        };
        let fence = async || {
            let tr = t.db.create_trx().unwrap();
            assert!(migration::fence(&q, &tr, 0).await.unwrap());
            tr.commit().await.unwrap();
        };
        to_the_end(&gate, pin!(fence())).await;
        let _told = held.pass(Fault::None);
        let length = async || t.len(&q).await;
        assert_eq!(to_the_end(&gate, pin!(length())).await, 1);
    });
}

#[test]
fn items_scheduled_during_a_promotion_are_not_lost() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put_aside(&q, &[("a", 1_000), ("c", 3_000)]).await;
        let Some(gate) = t.close_gate() else { return };
        let (mut sweeper, rules) = (sweeper(&q), rules());
        let between = NewItem::new("b").with_due(from_millis(2_000));
        let sweeping = t.sweep(&mut sweeper, 5_000, &rules);
        let (conflicted, swept, _) = overlaps(gate, sweeping, t.push_items(&q, &[between])).await;
        // The records around it are cleared in one range.
        assert_eq!((conflicted, swept.moved.promoted), (true, 3));
        assert_eq!((t.records(&q, "later").await.len(), t.list(&q).await.len()), (0, 3));
    });
}

#[test]
fn a_promotion_that_has_conflicted_lets_the_next_item_between_pass() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put_aside(&q, &[("a", 1_000), ("d", 4_000)]).await;
        let Some(gate) = t.close_gate() else { return };
        let (mut sweeper, rules) = (sweeper(&q), rules());
        let mut sweeping = pin!(t.sweep(&mut sweeper, 5_000, &rules));
        let mut conflicted = Vec::new();
        for (name, due) in [("b", 2_000), ("c", 3_000)] {
            let commit = until_sent(&gate, sweeping.as_mut()).await;
            let between = [NewItem::new(name).with_due(from_millis(due))];
            to_the_end(&gate, pin!(t.push_items(&q, &between))).await;
            conflicted.push(commit.pass(Fault::None).is_err());
        }
        // The second attempt clears each record for itself.
        let swept = to_the_end(&gate, sweeping).await;
        drop(gate);
        assert_eq!((conflicted, swept.moved.promoted), (vec![true, false], 4));
        assert_eq!((t.records(&q, "later").await.len(), t.list(&q).await.len()), (0, 4));
    });
}

#[test]
fn an_item_that_is_put_aside_during_a_promotion_of_those_around_it_keeps_its_value() {
    on_database(async |t| {
        let q = t.queue("q");
        let names: Vec<_> = (0..20).map(|n| format!("item {n:02}")).collect();
        for name in &names[..10] {
            t.put_aside(&q, &[(name, 1_000)]).await;
        }
        t.push(&q, &["between"]).await;
        let mut between = t.lease(&q, 1).await.unwrap();
        for name in &names[10..] {
            t.put_aside(&q, &[(name, 1_000)]).await;
        }
        let Some(gate) = t.close_gate() else { return };
        let (mut sweeper, rules) = (sweeper(&q), rules());
        let sweeping = t.sweep(&mut sweeper, 5_000, &rules);
        let (conflicted, swept, ()) =
            overlaps(gate, sweeping, t.acknowledge(&mut between, &later(9_000))).await;
        // The values around it are cleared in one range.
        assert_eq!((conflicted, swept.moved.promoted), (true, names.len()));
        assert_eq!(t.list(&q).await, names);
        assert_eq!(t.sweep(&mut sweeper, 9_000, &rules).await.moved.promoted, 1);
        assert!(t.list(&q).await.contains(&"between".to_owned()));
    });
}
