//! Short ways to use a queue of ordered keys.

use kvqueue_queue::{Failure, HeldBy, ItemId, ItemOutcome, LimitError, Limits, Queue, Session, from_millis};

use super::keyed::{fetch, keyed, limit, names, push, running_scopes};
use super::{TestDb, k, rules, sweeper};

pub(crate) fn ordered() -> Limits {
    Limits::default().with_ordered(true)
}

pub(crate) fn blocking() -> Limits {
    ordered().with_blocks_on_dead(true)
}

pub(crate) fn dead() -> ItemOutcome {
    ItemOutcome::Dead(Failure::new(from_millis(1), 1, "no"))
}

/// A keyed queue with this rule for all keys, and items of the key `a`.
pub(crate) async fn queue(t: &TestDb, limits: Limits, items: &[&str]) -> (Queue, Session) {
    let q = keyed(t);
    limit(t, &q, "*", limits).await;
    push(t, &q, "a", items).await;
    let session = t.session(&q);
    (q, session)
}

/// Fetches one item and ends it so. Returns its id.
pub(crate) async fn run_one(t: &TestDb, session: &mut Session, name: &str, outcome: &ItemOutcome) -> ItemId {
    let mut lease = fetch(t, session, 10).await.expect(name);
    assert_eq!(names(Some(&lease)), [name]);
    t.acknowledge(&mut lease, outcome).await;
    lease.items()[0].id.clone()
}

/// Fetches and finishes items one after the other until there are none. Returns their payloads.
pub(crate) async fn run_rest(t: &TestDb, session: &mut Session) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(mut lease) = fetch(t, session, 10).await {
        all.extend(names(Some(&lease)));
        t.acknowledge(&mut lease, &ItemOutcome::Done).await;
    }
    all
}

pub(crate) async fn is_idle(t: &TestDb, session: &mut Session) -> bool {
    fetch(t, session, 10).await.is_none()
}

/// Sweeps until an item is ready whose time has come at `now`.
pub(crate) async fn promote(t: &TestDb, q: &Queue, now: u64) {
    // Past the claim of an earlier sweeper.
    t.jump(10_000_000);
    let mut sweeper = sweeper(q);
    while t.sweep(&mut sweeper, now, &rules()).await.moved.promoted == 0 {}
}

pub(crate) async fn held(t: &TestDb, q: &Queue) -> Vec<(Vec<u8>, HeldBy)> {
    let held = t.run(async |tr| Ok(q.held_keys(tr, None, k(100)).await.unwrap())).await;
    held.into_iter().map(|held| (held.key, held.by)).collect()
}

pub(crate) async fn blocked(t: &TestDb, q: &Queue) -> u64 {
    t.run(async |tr| Ok(q.blocked_keys(tr).await.unwrap())).await
}

pub(crate) async fn unblock(t: &TestDb, q: &Queue, key: &str) -> bool {
    t.run(async |tr| {
        q.unblock(tr, key.as_bytes()).await.map_err(|error| match error {
            LimitError::Queue(error) => error,
            error => panic!("{error}"),
        })
    })
    .await
}

/// Whether nothing is left of keys, but perhaps a count of 0.
pub(crate) async fn has_no_rows(t: &TestDb, q: &Queue) -> bool {
    let mut rows = 0;
    for second in ["kval", "listed", "active", "parked", "hold", "onhold"] {
        rows += t.records(q, second).await.len();
    }
    rows + running_scopes(t, q).await == 0 && blocked(t, q).await == 0
}
