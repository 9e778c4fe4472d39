//! Two transactions at a keyed queue that overlap: one of them begins again where both together would break a rule.

use kvqueue_queue::{Lease, Queue};

use crate::common::gate::overlaps;
use crate::common::keyed::{acknowledge, fetch, keyed, limit, names, push, push_one, running};
use crate::common::{TestDb, on_database};

/// One item of the key `a` runs, as many as may, and another one is ready.
async fn one_of_two_runs(t: &TestDb, q: &Queue) -> Lease {
    limit(t, q, "a", running(1)).await;
    push_one(t, q, "a").await;
    let lease = fetch(t, &mut t.session(q), 1).await.unwrap();
    push_one(t, q, "a").await;
    lease
}

#[test]
fn a_key_is_not_parked_for_a_slot_that_becomes_free_meanwhile() {
    on_database(async |t| {
        let q = keyed(t);
        let lease = one_of_two_runs(t, &q).await;
        let mut other = t.session(&q);
        let Some(gate) = t.close_gate() else { return };
        let (conflicted, lease, ()) = overlaps(gate, fetch(t, &mut other, 1), acknowledge(t, lease)).await;
        assert!(conflicted && lease.is_some(), "the key is parked, and nobody makes it active again");
    });
}

#[test]
fn an_acknowledgement_sees_a_key_that_is_parked_meanwhile() {
    on_database(async |t| {
        let q = keyed(t);
        let lease = one_of_two_runs(t, &q).await;
        let mut other = t.session(&q);
        let Some(gate) = t.close_gate() else { return };
        let (conflicted, (), none) = overlaps(gate, acknowledge(t, lease), fetch(t, &mut other, 1)).await;
        assert!(conflicted && none.is_none());
        assert!(
            fetch(t, &mut other, 1).await.is_some(),
            "the key is parked, and nobody makes it active again"
        );
    });
}

#[test]
fn acknowledgements_that_choose_the_same_parked_key_do_not_both_spend_their_slots_on_it() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "t", running(2)).await;
        push(t, &q, "t/a", ["a"; 2]).await;
        let mut session = t.session(&q);
        let first = fetch(t, &mut session, 1).await.unwrap();
        let second = fetch(t, &mut session, 1).await.unwrap();
        push_one(t, &q, "t/b").await;
        assert!(fetch(t, &mut session, 1).await.is_none(), "the key is parked");
        let Some(gate) = t.close_gate() else { return };
        let (conflicted, (), ()) = overlaps(gate, acknowledge(t, first), acknowledge(t, second)).await;
        assert!(conflicted, "both have made the only parked key active");
    });
}

#[test]
fn an_item_pushed_while_its_key_is_found_empty_is_not_lost() {
    on_database(async |t| {
        let q = keyed(t);
        let (mut session, mut other) = (t.session(&q), t.session(&q));
        for push_is_late in [true, false] {
            push_one(t, &q, "a").await;
            let Some(gate) = t.close_gate() else { return };
            let conflicted = match push_is_late {
                true => overlaps(gate, push_one(t, &q, "a"), fetch(t, &mut session, 1)).await.0,
                false => overlaps(gate, fetch(t, &mut session, 1), push_one(t, &q, "a")).await.0,
            };
            assert!(conflicted);
            assert!(fetch(t, &mut other, 1).await.is_some(), "the key has an item and no place");
        }
    });
}

/// Of two fetches that overlap, and want items of two keys of a tenant, one gets the last slot of the scopes that the pattern matches.
fn the_last_slot_is_taken_once(pattern: &str) {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, pattern, running(1)).await;
        push_one(t, &q, "t/b").await;
        let (mut session, mut other) = (t.session(&q), t.session(&q));
        let Some(gate) = t.close_gate() else { return };
        let early = async {
            // It comes first, so that the two fetches want different keys.
            push_one(t, &q, "t/a").await;
            fetch(t, &mut other, 1).await
        };
        let (conflicted, late, early) = overlaps(gate, fetch(t, &mut session, 1), early).await;
        assert_eq!(names(early.as_ref()), ["t/a"]);
        assert!(conflicted && late.is_none(), "two items run, and one may");
    });
}

#[test]
fn fetches_of_two_keys_of_a_tenant_do_not_both_take_its_last_slot() {
    the_last_slot_is_taken_once("t");
}

#[test]
fn the_last_slot_of_a_queue_goes_to_one_of_two_fetches() {
    the_last_slot_is_taken_once("");
}

/// Whether one of two fetches that overlap conflicts with the other. They want items of two keys of a tenant.
async fn fetches_conflict(t: &TestDb, q: &Queue) -> Option<bool> {
    push_one(t, q, "t/b").await;
    let (mut session, mut other) = (t.session(q), t.session(q));
    let gate = t.close_gate()?;
    let early = async {
        // It comes first, so that the two fetches want different keys.
        push_one(t, q, "t/a").await;
        fetch(t, &mut other, 1).await
    };
    let (conflicted, late, early) = overlaps(gate, fetch(t, &mut session, 1), early).await;
    assert!(late.is_some() && early.is_some());
    Some(conflicted)
}

#[test]
fn fetches_conflict_near_the_limit_of_a_tenant_and_seldom_far_from_it() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "t", running(200)).await;
        let mut conflicts = 0;
        // Two sessions choose the same gate once in twenty times.
        for _ in 0..4 {
            let Some(conflicted) = fetches_conflict(t, &q).await else { return };
            conflicts += u32::from(conflicted);
        }
        assert!(conflicts < 3, "{conflicts} of 4 conflict far from the limit");
        push(t, &q, "t/c", ["x"; 100]).await;
        let mut session = t.session(&q);
        assert!(fetch(t, &mut session, 100).await.is_some());
        for _ in 0..4 {
            assert_eq!(fetches_conflict(t, &q).await, Some(true), "more than half of the slots are taken");
        }
    });
}

#[test]
fn fetches_that_take_slots_of_their_own_do_not_conflict_however_near_the_limit() {
    on_database(async |t| {
        let q = keyed(t);
        limit(t, &q, "", running(200)).await;
        push(t, &q, "c", ["x"; 197]).await;
        let mut session = t.session(&q);
        assert!(fetch(t, &mut session, 197).await.is_some());
        let mut conflicts = 0;
        for _ in 0..8 {
            let (mut session, mut other) = (t.session(&q), t.session(&q));
            // Each has a slot that its own item has left.
            push(t, &q, "a", ["x"; 2]).await;
            let leases = [fetch(t, &mut session, 1).await, fetch(t, &mut other, 1).await];
            for lease in leases {
                acknowledge(t, lease.unwrap()).await;
            }
            push_one(t, &q, "b").await;
            let Some(gate) = t.close_gate() else { return };
            let early = async {
                push_one(t, &q, "a").await;
                fetch(t, &mut other, 1).await
            };
            let (conflicted, late, early) = overlaps(gate, fetch(t, &mut session, 1), early).await;
            conflicts += u32::from(conflicted);
            for lease in [late, early] {
                acknowledge(t, lease.expect("a slot is free")).await;
            }
        }
        // Two sessions have one lane once in 64 times.
        assert!(conflicts < 3, "{conflicts} of 8 conflict");
    });
}

#[test]
fn a_fetch_does_not_go_by_rules_that_change_meanwhile() {
    on_database(async |t| {
        let q = keyed(t);
        push_one(t, &q, "a").await;
        let mut session = t.session(&q);
        let Some(gate) = t.close_gate() else { return };
        let (conflicted, lease, ()) =
            overlaps(gate, fetch(t, &mut session, 1), limit(t, &q, "a", running(0))).await;
        assert!(conflicted && lease.is_none());
    });
}
