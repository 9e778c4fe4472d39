//! Pushes that any session may repeat.

use fdb_embedded::Fault::{UnknownCommitted, UnknownNotCommitted};
use fdb_embedded::Faults;
use kvqueue_queue::{
    ItemId, Kind, NewItem, PushEffect, PushOptions, Pushed, Queue, RetryPolicy, Session, from_millis,
};

use crate::common::{KINDS, TestDb, on_database, payloads, record};
use crate::unknown::scripts;

fn operation(id: &str) -> PushOptions {
    PushOptions::default().with_idempotency_key(id)
}

/// One of everything.
fn items() -> [NewItem; 6] {
    let unique = NewItem::new("unique").with_unique(b"k".to_vec());
    [
        NewItem::new("plain"),
        NewItem::new("attributes").with_attribute("k", "v"),
        unique.clone(),
        {
            let mut item = unique;
            item.payload = "duplicate".into();
            item
        },
        NewItem::new("later").with_due(from_millis(9_000)),
        NewItem::new("long".repeat(60_000)),
    ]
}

fn ids(pushed: &Pushed, effect: PushEffect) -> Vec<Option<ItemId>> {
    pushed.each().filter(|item| item.effect == effect).map(|item| item.id).collect()
}

async fn push(t: &TestDb, session: &mut Session, id: &str) -> Pushed {
    session.push_items(&t.db, &items(), &operation(id)).await.unwrap()
}

/// Another session repeats the operation. It adds nothing, and gets the result of the first time.
async fn repeat(t: &TestDb, q: &Queue, id: &str, first: &Pushed) {
    let before = t.rows().await;
    let again = push(t, &mut t.session(q), id).await;
    assert!(t.rows().await == before, "a repetition wrote something");
    assert_eq!((again.items, again.repeated), (0, true));
    for (again, first) in again.each().zip(first.each()) {
        let was_added = first.effect == PushEffect::Added;
        assert_eq!(again.effect, if was_added { PushEffect::Repeated } else { first.effect });
        // Nobody keeps the random bytes of a recipe's items.
        let is_unknown = was_added && matches!(q.kind(), Kind::Recipe(_) | Kind::Priority(..));
        assert_eq!(again.id, first.id.filter(|_| !is_unknown));
    }
    if q.kind() == Kind::Fifo {
        assert!(again.stamps().eq(first.stamps()));
    }
}

#[test]
fn an_idempotency_key_pushes_once_across_sessions() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            let first = push(t, &mut t.session(&q), "op").await;
            assert_eq!((first.items, first.repeated), (5, false));
            assert_eq!((t.len(&q).await, t.records(&q, "op").await.len()), (4, 1));
            repeat(t, &q, "op", &first).await;
            // Also when all of it has been processed.
            t.run(async |tr| q.pop_k(tr, crate::common::k(9)).await).await;
            repeat(t, &q, "op", &first).await;
            assert!(!push(t, &mut t.session(&q), "another").await.repeated);
            let log: Vec<_> = t.records(&q, "oplog").await.into_iter().map(|(_, id)| id).collect();
            assert_eq!(log, [b"op".to_vec(), b"another".to_vec()]);
        }
    });
}

#[test]
fn an_idempotency_key_is_used_up_by_a_push_of_only_duplicates() {
    on_database(async |t| {
        let q = t.queue("q");
        let item = NewItem::new("a").with_unique(b"k".to_vec());
        t.push_items(&q, std::slice::from_ref(&item)).await;
        let mut session = t.session(&q);
        let first = session.push_items(&t.db, std::slice::from_ref(&item), &operation("op")).await.unwrap();
        assert_eq!((first.items, first.repeated), (0, false));
        t.run(async |tr| q.pop(tr).await).await;
        let again = session.push_items(&t.db, &[item], &operation("op")).await.unwrap();
        assert_eq!((again.items, again.repeated), (0, true));
        assert!(
            again.each().eq(first.each()),
            "it answers as before, with the id of the item that had the key then"
        );
        assert_eq!(t.len(&q).await, 0);
    });
}

#[test]
fn other_items_under_a_used_idempotency_key_are_refused() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            push(t, &mut t.session(&q), "op").await;
            let rows = t.rows().await;
            let mut session = t.session(&q);
            for other in [vec![NewItem::new("other")], items()[..5].to_vec()] {
                let refused = session.push_items(&t.db, &other, &operation("op")).await.unwrap_err();
                assert!(
                    refused.idempotency_key_reused().is_some() && !refused.is_maybe_committed(),
                    "{refused:?}"
                );
                assert!(t.rows().await == rows, "something was written");
            }
            // The session goes on, and so does a delay that is counted from now.
            session.push(&t.db, &["next"]).await.unwrap();
            let mut later = items();
            later[4].due = Some(from_millis(9_999));
            let again = session.push_items(&t.db, &later, &operation("op")).await.unwrap();
            assert_eq!((again.repeated, again.each().count()), (true, later.len()));
            // The time has come meanwhile, and a caller leaves it out.
            later[4].due = None;
            assert!(session.push_items(&t.db, &later, &operation("op")).await.unwrap().repeated);
        }
    });
}

#[test]
fn a_repeated_push_of_keyed_items_is_one_of_the_same_keys() {
    on_database(async |t| {
        let q = t.queue_of("q", Kind::Keyed);
        let item = |key: &str| [NewItem::new("a").with_key(key), NewItem::new("b")];
        let first = t.session(&q).push_items(&t.db, &item("ann/1"), &operation("op")).await.unwrap();
        let refused = t.session(&q).push_items(&t.db, &item("bob/1"), &operation("op")).await.unwrap_err();
        assert!(refused.idempotency_key_reused().is_some(), "{refused:?}");
        let again = t.session(&q).push_items(&t.db, &item("ann/1"), &operation("op")).await.unwrap();
        assert!(again.repeated && again.each().map(|it| it.id).eq(first.each().map(|it| it.id)));
    });
}

#[test]
fn a_repeated_push_answers_for_replaced_items_and_for_many_pushes_of_a_transaction() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            t.push_items(&q, &[NewItem::new("old").with_unique("u")]).await;
            let items = [
                NewItem::new("x").with_unique("u").replacing(),
                NewItem::new("y").with_unique("v"),
                NewItem::new("z").with_unique("v"),
                NewItem::new("w").with_unique("u"),
            ];
            let first = t.session(&q).push_items(&t.db, &items, &operation("op")).await.unwrap();
            let effects: Vec<_> = first.each().map(|it| it.effect).collect();
            assert_eq!(
                effects,
                [PushEffect::Replaced, PushEffect::Added, PushEffect::Duplicate, PushEffect::Duplicate],
                "{kind}"
            );
            let again = t.session(&q).push_items(&t.db, &items, &operation("op")).await.unwrap();
            let known = |it: &kvqueue_queue::PushedItem| {
                it.effect != PushEffect::Repeated || matches!(q.kind(), Kind::Fifo | Kind::Keyed)
            };
            for (again, first) in again.each().zip(first.each()) {
                assert_eq!(again.id, first.id.filter(|_| known(&again)), "{kind}");
            }
        }
    });
}

/// Earlier versions stored records without what became of each item, and with another digest of items that have a due time.
#[test]
fn idempotency_records_of_earlier_versions_are_answered_as_far_as_they_say() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push_items(&q, &[NewItem::new("old").with_unique("u")]).await;
        let items = [NewItem::new("x").with_unique("u"), NewItem::new("y")];
        t.session(&q).push_items(&t.db, &items, &operation("op")).await.unwrap();
        let (rest, value) = t.records(&q, "op").await.remove(0);
        let key = record(&q, "op", &rest);
        t.run(async |tr| {
            tr.set(&key, &value[..32]);
            Ok(())
        })
        .await;
        let again = t.session(&q).push_items(&t.db, &items, &operation("op")).await.unwrap();
        let answers: Vec<_> = again.each().map(|it| (it.effect, it.id)).collect();
        assert_eq!((again.repeated, answers), (true, vec![(PushEffect::Repeated, None); 2]));
    });
}

/// Earlier versions stored records without a digest of the items.
#[test]
fn idempotency_records_without_digest_accept_any_items() {
    on_database(async |t| {
        let q = t.queue("q");
        push(t, &mut t.session(&q), "op").await;
        let (rest, value) = t.records(&q, "op").await.remove(0);
        let key = record(&q, "op", &rest);
        t.run(async |tr| {
            tr.set(&key, &value[..16]);
            Ok(())
        })
        .await;
        assert_eq!(t.records(&q, "op").await.len(), 1, "it was written again");
        let again =
            t.session(&q).push_items(&t.db, &[NewItem::new("other")], &operation("op")).await.unwrap();
        assert_eq!((again.repeated, again.items), (true, 0));
    });
}

#[test]
fn an_empty_push_does_not_use_up_its_idempotency_key() {
    on_database(async |t| {
        let q = t.queue("q");
        let pushed = t.session(&q).push_items(&t.db, &[], &operation("op")).await.unwrap();
        assert_eq!((pushed.items, pushed.repeated), (0, false));
        assert!(t.rows().await.is_empty());
    });
}

#[test]
fn a_push_with_idempotency_key_happens_once_under_unknown_outcomes() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), KINDS[i % KINDS.len()]);
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            let first = push(t, &mut t.session(&q), "op").await;
            t.end_faults();
            assert_eq!((first.items, first.repeated), (5, false), "{script:?}");
            let stored = t.run(async |tr| q.list(tr).await).await;
            assert_eq!((stored.len(), t.len(&q).await), (4, 4), "{script:?}");
            assert_eq!(t.records(&q, "later").await.len(), 1, "{script:?}");
            assert_eq!(t.counter(&q, "nlater").await, 1, "{script:?}");
            let added = ids(&first, PushEffect::Added);
            assert!(stored.iter().all(|item| added.contains(&Some(item.id.clone()))), "{script:?}");
            repeat(t, &q, "op", &first).await;
        }
    });
}

/// The session that gave up repeats the push, and so does another process.
#[test]
fn an_abandoned_push_with_idempotency_key_can_be_repeated() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            for fault in [UnknownCommitted, UnknownNotCommitted] {
                let q = t.queue_of(format!("q{i}{fault:?}"), kind);
                let policy = RetryPolicy { max_attempts: Some(1), timeout: None };
                let mut impatient = t.session(&q).with_policy(policy);
                if !t.install(Faults::script([fault])) {
                    return;
                }
                let error = impatient.push_items(&t.db, &items(), &operation("op")).await.unwrap_err();
                assert!(error.is_maybe_committed());
                let again = push(t, &mut t.session(&q), "op").await;
                assert_eq!(again.repeated, fault == UnknownCommitted);
                let stored = payloads(&t.run(async |tr| q.list(tr).await).await);
                assert_eq!((stored.len(), t.len(&q).await), (4, 4));
            }
        }
    });
}

#[test]
fn of_concurrent_pushes_with_one_idempotency_key_one_happens() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            let mut sessions: Vec<_> = (0..8).map(|_| t.session(&q)).collect();
            let (items, options) = ([NewItem::new("a")], operation("op"));
            let pushes = sessions.iter_mut().map(|session| session.push_items(&t.db, &items, &options));
            let pushed: Vec<_> =
                futures::future::join_all(pushes).await.into_iter().map(Result::unwrap).collect();
            assert_eq!(pushed.iter().filter(|pushed| !pushed.repeated).count(), 1);
            assert_eq!((t.len(&q).await, t.records(&q, "oplog").await.len()), (1, 1));
        }
    });
}
