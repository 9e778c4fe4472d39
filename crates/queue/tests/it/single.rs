//! One item by its id: looked at, deleted, made ready.

use fdb_embedded::Faults;
use kvqueue_queue::{
    Counts, Failure, ItemChange, ItemId, ItemOutcome, ItemState, ItemView, Kind, NewItem, Queue, RetryPolicy,
    from_millis,
};

use crate::common::{KINDS, TestDb, id, k, later, on_database};
use crate::unknown::scripts;

const HOUR: u64 = 3_600_000_000;

/// A payload in three parts, and a unique key.
fn item(state: ItemState) -> NewItem {
    let payload = format!("{state} {}", "x".repeat(250_000));
    NewItem::new(payload).with_unique(state.to_string().into_bytes())
}

/// An item in each state.
async fn fill(t: &TestDb, q: &Queue) {
    let failure = || Failure::new(9, 1, "no");
    let outcomes = [
        (ItemState::Dead, Some(ItemOutcome::Dead(failure()))),
        (ItemState::Retrying, Some(later(1_000))),
        (ItemState::Running, None),
    ];
    for (state, outcome) in outcomes {
        t.push_items(q, &[item(state)]).await;
        let mut lease = t.lease_for(q, 1, HOUR).await.unwrap();
        if let Some(outcome) = outcome {
            t.acknowledge(&mut lease, &outcome).await;
        }
    }
    let scheduled = item(ItemState::Scheduled).with_due(from_millis(2_000));
    t.push_items(q, &[scheduled, item(ItemState::Ready)]).await;
}

async fn of_state(t: &TestDb, q: &Queue, state: ItemState) -> Option<ItemView> {
    t.run(async |tr| q.view(tr, state, None, k(9)).await).await.items.pop()
}

async fn view(t: &TestDb, q: &Queue, id: &ItemId) -> Option<ItemView> {
    t.run(async |tr| q.view_item(tr, id).await).await
}

async fn delete(t: &TestDb, q: &Queue, id: &ItemId) -> ItemChange {
    q.delete_item(&t.db, &RetryPolicy::default(), id).await.unwrap()
}

async fn requeue(t: &TestDb, q: &Queue, id: &ItemId) -> ItemChange {
    q.retry_item(&t.db, &RetryPolicy::default(), id).await.unwrap()
}

#[test]
fn an_item_of_any_state_is_found_by_id() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            fill(t, &q).await;
            for state in ItemState::ALL {
                let expected = of_state(t, &q, state).await.unwrap();
                let found = view(t, &q, &expected.id).await.unwrap();
                assert_eq!(found.lease.map(|it| it.id), expected.lease.map(|it| it.id));
                let tells_age = matches!(kind, Kind::Fifo | Kind::Keyed);
                assert_eq!(found.age.is_some(), tells_age, "{kind:?}, {state}");
                // Leases and items grow older.
                let found = ItemView { lease: expected.lease, age: expected.age, ..found };
                assert!(found == expected, "{kind:?}, {state}");
            }
            assert_eq!(view(t, &q, &id(9)).await, None);
        }
    });
}

#[test]
fn all_but_running_items_can_be_deleted() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            fill(t, &q).await;
            let before = t.run(async |tr| q.counts(tr).await).await;
            for state in ItemState::ALL {
                let id = of_state(t, &q, state).await.unwrap().id;
                if state == ItemState::Running {
                    assert_eq!(delete(t, &q, &id).await, ItemChange::Refused(state));
                    continue;
                }
                assert_eq!(delete(t, &q, &id).await, ItemChange::Done(state), "{kind:?}, {state}");
                assert_eq!(view(t, &q, &id).await, None);
                assert_eq!(delete(t, &q, &id).await, ItemChange::Gone);
            }
            let counts = t.run(async |tr| q.counts(tr).await).await;
            let expected = Counts { running: 1, pushed: before.pushed, ..Counts::default() };
            assert_eq!(counts, expected, "{kind:?}");
            // Their unique keys are free.
            let again =
                [ItemState::Ready, ItemState::Scheduled, ItemState::Retrying, ItemState::Dead].map(item);
            assert_eq!(t.push_items(&q, &again).await.items, 4, "{kind:?}");
        }
    });
}

#[test]
fn deleting_an_item_clears_all_its_records() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            fill(t, &q).await;
            for state in ItemState::ALL.into_iter().filter(|state| *state != ItemState::Running) {
                delete(t, &q, &of_state(t, &q, state).await.unwrap().id).await;
            }
            let mut left = Vec::new();
            for kind in ["val", "meta", "later", "body", "dead"] {
                left.extend(t.records(&q, kind).await);
            }
            assert!(left.is_empty(), "{kind:?}: {left:?}");
            // The running item has its own.
            assert_eq!(
                (t.records(&q, "unique").await.len(), t.records(&q, "chunk").await.len()),
                (1, 2),
                "{kind:?}"
            );
            assert_eq!((t.len(&q).await, t.list(&q).await.len()), (0, 0), "{kind:?}");
        }
    });
}

#[test]
fn waiting_items_and_dead_letters_are_requeued_by_id() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            fill(t, &q).await;
            for state in ItemState::ALL {
                let is_left = matches!(state, ItemState::Ready | ItemState::Running);
                let fate = if is_left { ItemChange::Refused(state) } else { ItemChange::Done(state) };
                let id = of_state(t, &q, state).await.unwrap().id;
                assert_eq!(requeue(t, &q, &id).await, fate, "{kind:?}, {state}");
                let now = view(t, &q, &id).await.unwrap().state;
                assert_eq!(now, if is_left { state } else { ItemState::Ready });
            }
            assert_eq!(requeue(t, &q, &id(9)).await, ItemChange::Gone);
            assert_eq!(t.list(&q).await.len(), 4);
        }
    });
}

#[test]
fn an_item_is_deleted_once_under_unknown_outcomes() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            let q = t.queue(format!("q{i}"));
            fill(t, &q).await;
            let ids = [ItemState::Ready, ItemState::Scheduled];
            for state in ids {
                let id = of_state(t, &q, state).await.unwrap().id;
                if !t.install(Faults::script(script.clone())) {
                    return;
                }
                assert_eq!(delete(t, &q, &id).await, ItemChange::Done(state), "{script:?}, {state}");
                t.end_faults();
            }
            let counts = t.run(async |tr| q.counts(tr).await).await;
            assert_eq!((counts.ready, counts.waiting, counts.pushed), (0, 1, Some(5)), "{script:?}");
        }
    });
}
