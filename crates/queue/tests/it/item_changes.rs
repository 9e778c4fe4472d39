//! Changing single items by their ids: cancelled, given another time, tried again, given another payload.

use std::time::Duration;

use fdb_embedded::Faults;
use kvqueue_queue::{
    Counts, ItemChange, ItemId, ItemState, ItemView, Kind, Limits, NewItem, Pattern, Pause, Queue,
    RetryError, RetryPolicy, from_millis,
};

use crate::common::states::{
    DUE, HOUR, effect_of, fill_each_state, id_of, is_refused, item_for, records_left,
};
use crate::common::{KINDS, TestDb, id, k, later, on_database};
use crate::unknown::scripts;

async fn view(t: &TestDb, q: &Queue, id: &ItemId) -> Option<ItemView> {
    t.run(async |tr| q.view_item(tr, id).await).await
}

async fn state(t: &TestDb, q: &Queue, id: &ItemId) -> Option<ItemState> {
    view(t, q, id).await.map(|view| view.state)
}

async fn cancel(t: &TestDb, q: &Queue, id: &ItemId) -> ItemChange {
    q.cancel_item(&t.db, &RetryPolicy::default(), id).await.unwrap()
}

async fn reschedule(t: &TestDb, q: &Queue, id: &ItemId, due: Option<u64>) -> ItemChange {
    q.reschedule_item(&t.db, &RetryPolicy::default(), id, due.map(from_millis)).await.unwrap()
}

async fn retry(t: &TestDb, q: &Queue, id: &ItemId) -> ItemChange {
    q.retry_item(&t.db, &RetryPolicy::default(), id).await.unwrap()
}

async fn edit(t: &TestDb, q: &Queue, id: &ItemId, payload: &[u8]) -> ItemChange {
    q.edit_item(&t.db, &RetryPolicy::default(), id, payload).await.unwrap()
}

/// Does what a row of the table of changes by state is about.
async fn change(t: &TestDb, q: &Queue, name: &str, id: &ItemId) -> ItemChange {
    match name {
        "cancel" => cancel(t, q, id).await,
        "reschedule" => reschedule(t, q, id, Some(7_000)).await,
        "requeue" => retry(t, q, id).await,
        "edit-payload" => edit(t, q, id, b"another").await,
        _ => panic!("{name} is no change of an item"),
    }
}

async fn rule(t: &TestDb, q: &Queue, pattern: &str, limits: &Limits) {
    let pattern = Pattern::keys(pattern).unwrap();
    let tr = t.db.create_trx().unwrap();
    q.set_rule(&tr, &pattern, limits).await.unwrap();
    tr.commit().await.unwrap();
}

#[test]
fn each_change_does_in_each_state_what_the_documents_say() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            for name in ["cancel", "reschedule", "requeue", "edit-payload"] {
                let q = t.queue_of(format!("q{i} {name}"), kind);
                fill_each_state(t, &q).await;
                let mut ids = Vec::new();
                for before in ItemState::ALL {
                    ids.push(id_of(t, &q, before).await);
                }
                let mut ready = 0;
                for (before, id) in ItemState::ALL.into_iter().zip(&ids) {
                    let about = format!("{name} of a {before} item, {kind}");
                    let effect = effect_of(name, before);
                    let (done, after) = match effect.split([' ', ',', ':']).next().unwrap() {
                        "refused" => (ItemChange::Refused(before), Some(before)),
                        "another" => (ItemChange::Done(before), Some(before)),
                        "ends" => (ItemChange::Done(before), None),
                        after => (ItemChange::Done(before), Some(after.parse().expect(effect))),
                    };
                    assert_eq!(change(t, &q, name, id).await, done, "{about}");
                    assert_eq!(state(t, &q, id).await, after, "{about}");
                    ready += usize::from(after == Some(ItemState::Ready));
                }
                assert_eq!(t.list(&q).await.len(), ready, "{name}, {kind}");
                assert_eq!(change(t, &q, name, &id(9)).await, ItemChange::Gone, "{name}, {kind}");
            }
        }
    });
}

#[test]
fn an_item_is_cancelled_in_any_state_but_dead() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            fill_each_state(t, &q).await;
            let pushed = t.run(async |tr| q.counts(tr).await).await.pushed;
            for state in ItemState::ALL.into_iter().filter(|state| !is_refused("cancel", *state)) {
                let id = id_of(t, &q, state).await;
                assert_eq!(cancel(t, &q, &id).await, ItemChange::Done(state), "{kind:?}");
                assert_eq!(view(t, &q, &id).await, None, "{kind:?}, {state}");
                assert_eq!(cancel(t, &q, &id).await, ItemChange::Gone, "{kind:?}, {state}");
            }
            let dead = id_of(t, &q, ItemState::Dead).await;
            assert_eq!(cancel(t, &q, &dead).await, ItemChange::Refused(ItemState::Dead), "{kind:?}");
            let counts = t.run(async |tr| q.counts(tr).await).await;
            assert_eq!(counts, Counts { dead: 1, pushed, ..Counts::default() }, "{kind:?}");
            assert_eq!(t.counter(&q, "ncancel").await, 1, "{kind:?}");
            // The unique keys are free.
            let again: Vec<_> = ItemState::ALL.map(item_for).into();
            assert_eq!(t.push_items(&q, &again).await.items, again.len(), "{kind:?}");
        }
    });
}

#[test]
fn cancelling_an_item_clears_all_its_records() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            fill_each_state(t, &q).await;
            for state in ItemState::ALL.into_iter().filter(|state| !is_refused("cancel", *state)) {
                cancel(t, &q, &id_of(t, &q, state).await).await;
            }
            q.purge_dead(&t.db, &RetryPolicy::default(), &id_of(t, &q, ItemState::Dead).await).await.unwrap();
            assert_eq!(records_left(t, &q).await, [""; 0], "{kind:?}");
        }
    });
}

#[test]
fn an_item_is_found_by_its_unique_key_until_it_ends() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            fill_each_state(t, &q).await;
            for state in ItemState::ALL {
                let id = id_of(t, &q, state).await;
                let found = t.run(async |tr| q.unique_item(tr, state.as_str().as_bytes()).await).await;
                assert_eq!(found, (state != ItemState::Dead).then_some(id), "{kind:?}, {state}");
            }
        }
    });
}

#[test]
fn a_waiting_item_is_found_without_its_time_as_earlier_versions_left_it() {
    on_database(async |t| {
        let q = t.queue("q");
        fill_each_state(t, &q).await;
        let scheduled = id_of(t, &q, ItemState::Scheduled).await;
        let times = t.records(&q, "due").await;
        assert_eq!(times.len(), 2);
        // One of an earlier version has no time; one that such a version has made ready in between has one that is not its.
        for wrong in [None, Some(7_u64)] {
            t.run(async |tr| {
                let key =
                    [q.range().0.strip_suffix(&[0]).unwrap(), b"\x01due\x00", scheduled.as_bytes()].concat();
                match wrong {
                    None => tr.clear(&key),
                    Some(due) => tr.set(&key, &due.to_le_bytes()),
                }
                Ok(())
            })
            .await;
            let found = view(t, &q, &scheduled).await.unwrap();
            assert_eq!((found.state, found.due), (ItemState::Scheduled, Some(from_millis(DUE))), "{wrong:?}");
        }
        assert_eq!(reschedule(t, &q, &scheduled, Some(5)).await, ItemChange::Done(ItemState::Scheduled));
        assert_eq!(view(t, &q, &scheduled).await.unwrap().due, Some(from_millis(5)));
        assert_eq!(cancel(t, &q, &scheduled).await, ItemChange::Done(ItemState::Scheduled));
        assert_eq!(t.records(&q, "due").await.len(), 1);
    });
}

#[test]
fn an_item_gets_another_time_unless_it_is_running_or_dead() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            fill_each_state(t, &q).await;
            let pushed = t.run(async |tr| q.counts(tr).await).await.pushed;
            for before in ItemState::ALL {
                let id = id_of(t, &q, before).await;
                let attempts = view(t, &q, &id).await.unwrap().attempts();
                let (effect, due) = match is_refused("reschedule", before) {
                    true => (ItemChange::Refused(before), view(t, &q, &id).await.unwrap().due),
                    false => (ItemChange::Done(before), Some(from_millis(7_000))),
                };
                assert_eq!(reschedule(t, &q, &id, Some(7_000)).await, effect, "{kind:?}, {before}");
                let now = view(t, &q, &id).await.unwrap();
                assert_eq!((now.due, now.attempts()), (due, attempts), "{kind:?}, {before}");
                assert!(now.item.is_ok(), "{kind:?}, {before}");
            }
            let counts = t.run(async |tr| q.counts(tr).await).await;
            assert_eq!((counts.ready, counts.waiting, counts.pushed), (0, 3, pushed), "{kind:?}");
            // And now at once.
            for before in [ItemState::Scheduled, ItemState::Retrying] {
                let id = id_of(t, &q, before).await;
                assert_eq!(reschedule(t, &q, &id, None).await, ItemChange::Done(before), "{kind:?}");
                assert_eq!(state(t, &q, &id).await, Some(ItemState::Ready), "{kind:?}");
                assert_eq!(
                    reschedule(t, &q, &id, None).await,
                    ItemChange::Done(ItemState::Ready),
                    "{kind:?}"
                );
            }
            let counts = t.run(async |tr| q.counts(tr).await).await;
            assert_eq!((counts.ready, counts.waiting, counts.pushed), (2, 1, pushed), "{kind:?}");
            assert_eq!(t.list(&q).await.len(), 2, "{kind:?}");
            assert_eq!(reschedule(t, &q, &id(9), None).await, ItemChange::Gone);
        }
    });
}

#[test]
fn a_dead_letter_whose_unique_key_is_taken_is_not_tried_again() {
    on_database(async |t| {
        let q = t.queue("q");
        fill_each_state(t, &q).await;
        let dead = id_of(t, &q, ItemState::Dead).await;
        let other = t.push_items(&q, &[item_for(ItemState::Dead)]).await;
        assert_eq!(other.items, 1);
        let holder = t.run(async |tr| q.unique_item(tr, b"dead").await).await.unwrap();
        assert_eq!(retry(t, &q, &dead).await, ItemChange::UniqueTaken(holder));
        assert_eq!(state(t, &q, &dead).await, Some(ItemState::Dead));
    });
}

#[test]
fn an_item_gets_another_payload_unless_it_is_running() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            fill_each_state(t, &q).await;
            for before in ItemState::ALL {
                let id = id_of(t, &q, before).await;
                let old = view(t, &q, &id).await.unwrap();
                // Longer, shorter, empty: with other parts, and without.
                for payload in [vec![b'y'; 320_000], b"short".to_vec(), Vec::new(), vec![b'z'; 100_000]] {
                    let effect = edit(t, &q, &id, &payload).await;
                    let now = view(t, &q, &id).await.unwrap();
                    let item = now.item.clone().unwrap();
                    if is_refused("edit-payload", before) {
                        assert_eq!(effect, ItemChange::Refused(before), "{kind:?}");
                        assert_eq!(
                            Some(item.payload),
                            old.item.as_ref().ok().map(|item| item.payload.clone())
                        );
                        continue;
                    }
                    assert_eq!(effect, ItemChange::Done(before), "{kind:?}");
                    assert!(item.payload == payload, "{kind:?}, {before}, {}", payload.len());
                    assert_eq!((now.state, now.due, now.attempts()), (before, old.due, old.attempts()));
                    assert_eq!(item.meta.unwrap().unique, Some(before.to_string().into_bytes()));
                }
            }
            let most = kvqueue_queue::PAYLOAD_CEILING;
            let long = q.edit_item(&t.db, &RetryPolicy::default(), &id(9), &vec![0; most + 1]).await;
            let long = std::error::Error::source(&long.unwrap_err()).unwrap().to_string();
            assert!(long.starts_with("payload has 9000001 bytes"), "{kind:?}: {long}");
            assert_eq!(edit(t, &q, &id(9), b"x").await, ItemChange::Gone);
            // Only items that cannot be edited have chunks left.
            let left = ItemState::ALL.into_iter().filter(|state| is_refused("edit-payload", *state)).count();
            assert_eq!(t.records(&q, "chunk").await.len(), 2 * left, "{kind:?}");
        }
    });
}

#[test]
fn a_fetch_that_has_read_a_payload_conflicts_with_its_edit() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["old"]).await;
        let ready = id_of(t, &q, ItemState::Ready).await;
        let tr = t.db.create_trx().unwrap();
        let popped = q.pop_k(&tr, k(1)).await.unwrap();
        assert_eq!(popped.items.len(), 1);
        assert_eq!(edit(t, &q, &ready, b"new").await, ItemChange::Done(ItemState::Ready));
        assert!(tr.commit().await.is_err());
        assert_eq!(t.list(&q).await, ["new"]);
    });
}

#[test]
fn a_frozen_queue_refuses_every_change() {
    on_database(async |t| {
        let q = t.queue("q");
        fill_each_state(t, &q).await;
        let pause = Pause { at: from_millis(1), reason: "moving".to_owned(), frozen: true };
        t.run(async |tr| {
            q.pause(tr, &pause);
            Ok(())
        })
        .await;
        let before = t.rows().await;
        let (db, policy) = (&t.db, &RetryPolicy::default());
        let is_frozen = |result: Result<ItemChange, RetryError>| {
            let error = result.expect_err("the queue is frozen");
            assert!(std::error::Error::source(&error).unwrap().to_string().contains("frozen"), "{error:?}");
        };
        for state in ItemState::ALL {
            let id = id_of(t, &q, state).await;
            if !is_refused("cancel", state) {
                is_frozen(q.cancel_item(db, policy, &id).await);
                let tr = t.db.create_trx().unwrap();
                assert!(q.cancel(&tr, &id).await.unwrap_err().frozen().is_some());
            }
            if !is_refused("reschedule", state) {
                is_frozen(q.reschedule_item(db, policy, &id, Some(from_millis(7))).await);
            }
            if !is_refused("requeue", state) {
                is_frozen(q.retry_item(db, policy, &id).await);
            }
            if !is_refused("edit-payload", state) {
                is_frozen(q.edit_item(db, policy, &id, b"x").await);
            }
        }
        assert_eq!(t.rows().await, before);
    });
}

#[test]
fn an_item_is_changed_once_under_unknown_outcomes() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            let q = t.queue(format!("q{i}"));
            fill_each_state(t, &q).await;
            let ready = id_of(t, &q, ItemState::Ready).await;
            let dead = id_of(t, &q, ItemState::Dead).await;
            let running = id_of(t, &q, ItemState::Running).await;
            let faults = || Faults::script(script.clone());
            if !t.install(faults()) {
                return;
            }
            assert_eq!(
                reschedule(t, &q, &ready, Some(9)).await,
                ItemChange::Done(ItemState::Ready),
                "{script:?}"
            );
            t.install(faults());
            assert_eq!(retry(t, &q, &dead).await, ItemChange::Done(ItemState::Dead), "{script:?}");
            t.install(faults());
            assert_eq!(edit(t, &q, &dead, b"new").await, ItemChange::Done(ItemState::Ready), "{script:?}");
            t.install(faults());
            assert_eq!(cancel(t, &q, &running).await, ItemChange::Done(ItemState::Running), "{script:?}");
            t.end_faults();
            let counts = t.run(async |tr| q.counts(tr).await).await;
            let expected = Counts {
                ready: 1,
                waiting: 3,
                pushed: Some(ItemState::ALL.len() as u64),
                ..Counts::default()
            };
            assert_eq!(counts, expected, "{script:?}");
            assert_eq!(t.counter(&q, "ncancel").await, 1, "{script:?}");
        }
    });
}

async fn payloads(t: &TestDb, q: &Queue, n: usize) -> Vec<String> {
    let lease = t.lease_for(q, n, HOUR).await;
    let items = lease.iter().flat_map(kvqueue_queue::Lease::items);
    items.map(|item| String::from_utf8(item.payload.to_vec()).unwrap()).collect()
}

#[test]
fn cancelling_a_running_item_frees_its_slot() {
    on_database(async |t| {
        let q = t.queue_of("q", Kind::Keyed);
        rule(t, &q, "a", &Limits::default().with_running(1)).await;
        let keyed = |payload: &str| NewItem::new(payload.to_owned()).with_key("a");
        t.push_items(&q, &[keyed("1"), keyed("2")]).await;
        assert_eq!(payloads(t, &q, 9).await, ["1"]);
        assert!(payloads(t, &q, 9).await.is_empty());
        let running = id_of(t, &q, ItemState::Running).await;
        assert_eq!(cancel(t, &q, &running).await, ItemChange::Done(ItemState::Running));
        assert_eq!(payloads(t, &q, 9).await, ["2"]);
    });
}

#[test]
fn an_ordered_key_goes_on_after_its_held_item_is_cancelled() {
    on_database(async |t| {
        let q = t.queue_of("q", Kind::Keyed);
        rule(t, &q, "a", &Limits::default().with_ordered(true)).await;
        let keyed = |payload: &str| NewItem::new(payload.to_owned()).with_key("a");
        t.push_items(&q, &[keyed("1"), keyed("2"), keyed("3")]).await;
        let mut lease = t.lease_for(&q, 1, HOUR).await.unwrap();
        t.acknowledge(&mut lease, &later(1_000)).await;
        // The key is held, and stays so while the item only gets another time or payload.
        assert!(payloads(t, &q, 9).await.is_empty());
        let first = id_of(t, &q, ItemState::Retrying).await;
        assert_eq!(reschedule(t, &q, &first, Some(5_000)).await, ItemChange::Done(ItemState::Retrying));
        assert_eq!(edit(t, &q, &first, b"one").await, ItemChange::Done(ItemState::Retrying));
        assert!(payloads(t, &q, 9).await.is_empty());
        // Now it is ready, and first.
        assert_eq!(reschedule(t, &q, &first, None).await, ItemChange::Done(ItemState::Retrying));
        let mut lease = t.lease_for(&q, 1, HOUR).await.unwrap();
        assert_eq!(lease.items()[0].id, first);
        t.acknowledge(&mut lease, &later(1_000)).await;
        assert_eq!(cancel(t, &q, &first).await, ItemChange::Done(ItemState::Retrying));
        assert!(t.records(&q, "hold").await.is_empty());
        assert_eq!(payloads(t, &q, 9).await, ["2"]);
        // A running one, too.
        let second = id_of(t, &q, ItemState::Running).await;
        cancel(t, &q, &second).await;
        assert_eq!(payloads(t, &q, 9).await, ["3"]);
    });
}

#[test]
fn a_ready_item_of_an_ordered_key_that_gets_a_time_does_not_hold_the_key() {
    on_database(async |t| {
        let q = t.queue_of("q", Kind::Keyed);
        rule(t, &q, "a", &Limits::default().with_ordered(true)).await;
        let keyed = |payload: &str| NewItem::new(payload.to_owned()).with_key("a");
        t.push_items(&q, &[keyed("1"), keyed("2")]).await;
        let last = id_of(t, &q, ItemState::Ready).await;
        assert_eq!(reschedule(t, &q, &last, Some(5_000)).await, ItemChange::Done(ItemState::Ready));
        assert!(t.records(&q, "hold").await.is_empty());
        assert_eq!(payloads(t, &q, 9).await, ["1"]);
    });
}

/// A sweep makes an item ready that was given an earlier time, though it has slept since.
#[test]
fn a_sweeper_is_woken_by_an_earlier_time() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push_items(&q, &[NewItem::new("a").with_due(from_millis(u64::MAX >> 1))]).await;
        let scheduled = id_of(t, &q, ItemState::Scheduled).await;
        let tr = t.db.create_trx().unwrap();
        let watch = tr.watch(&[q.range().0.strip_suffix(&[0]).unwrap(), b"\x01nlater\x00"].concat());
        tr.commit().await.unwrap();
        reschedule(t, &q, &scheduled, Some(5)).await;
        tokio::time::timeout(Duration::from_secs(10), watch).await.unwrap().unwrap();
    });
}
