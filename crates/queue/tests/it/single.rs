//! One item by its id: looked at, deleted.

use fdb_embedded::Faults;
use kvqueue_queue::{Counts, ItemChange, ItemId, ItemState, ItemView, Kind, Queue, RetryPolicy};

use crate::common::states::{fill_each_state, id_of, item_for, of_state, records_left};
use crate::common::{KINDS, TestDb, id, on_database};
use crate::unknown::scripts;

async fn view(t: &TestDb, q: &Queue, id: &ItemId) -> Option<ItemView> {
    t.run(async |tr| q.view_item(tr, id).await).await
}

async fn delete(t: &TestDb, q: &Queue, id: &ItemId) -> ItemChange {
    q.delete_item(&t.db, &RetryPolicy::default(), id).await.unwrap()
}

#[test]
fn an_item_of_any_state_is_found_by_id() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            fill_each_state(t, &q).await;
            for state in ItemState::ALL {
                let expected = of_state(t, &q, state).await;
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
            fill_each_state(t, &q).await;
            let before = t.run(async |tr| q.counts(tr).await).await;
            for state in ItemState::ALL {
                let id = id_of(t, &q, state).await;
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
            let again = ItemState::ALL.into_iter().filter(|state| *state != ItemState::Running).map(item_for);
            let again: Vec<_> = again.collect();
            assert_eq!(t.push_items(&q, &again).await.items, again.len(), "{kind:?}");
        }
    });
}

#[test]
fn deleting_an_item_clears_all_its_records() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            fill_each_state(t, &q).await;
            for state in ItemState::ALL.into_iter().filter(|state| *state != ItemState::Running) {
                delete(t, &q, &id_of(t, &q, state).await).await;
            }
            // The running item has its own.
            assert_eq!(records_left(t, &q).await, ["chunk", "unique", "lease", "held"], "{kind:?}");
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
fn an_item_is_deleted_once_under_unknown_outcomes() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            let q = t.queue(format!("q{i}"));
            fill_each_state(t, &q).await;
            let ids = [ItemState::Ready, ItemState::Scheduled];
            for state in ids {
                let id = id_of(t, &q, state).await;
                if !t.install(Faults::script(script.clone())) {
                    return;
                }
                assert_eq!(delete(t, &q, &id).await, ItemChange::Done(state), "{script:?}, {state}");
                t.end_faults();
            }
            let counts = t.run(async |tr| q.counts(tr).await).await;
            let pushed = Some(ItemState::ALL.len() as u64);
            assert_eq!((counts.ready, counts.waiting, counts.pushed), (0, 1, pushed), "{script:?}");
        }
    });
}
