//! Unique keys: one item of a key at a time.

use std::pin::pin;

use fdb_embedded::Faults;
use foundationdb::tuple::pack;
use kvqueue_queue::{
    Failure, ItemOutcome, Kind, NewItem, Packing, PushEffect, PushOptions, Pushed, Queue, from_millis,
};

use crate::common::gate::to_the_end;
use crate::common::{KINDS, TestDb, k, on_database, session_id};
use crate::unknown::scripts;

fn item(payload: &str, key: &str) -> NewItem {
    NewItem::new(payload.to_owned()).with_unique(key)
}

fn effects(pushed: &Pushed) -> Vec<PushEffect> {
    pushed.each().map(|item| item.effect).collect()
}

/// Pushes an item of the key "k"; whether it was added.
async fn push(t: &TestDb, q: &Queue) -> bool {
    t.push_items(q, &[item("again", "k")]).await.items == 1
}

#[test]
fn an_item_with_a_taken_unique_key_is_not_pushed() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            let first = t.push_items(&q, &[item("a", "k"), item("b", "other"), item("c", "k")]).await;
            assert_eq!(first.items, 2);
            let each: Vec<_> = first.each().collect();
            assert_eq!(effects(&first), [PushEffect::Added, PushEffect::Added, PushEffect::Duplicate]);
            assert_eq!((&each[0].id, each[0].id != each[1].id), (&each[2].id, true));

            let before = t.rows().await;
            let second = t.push_items(&q, &[item("d", "k")]).await;
            assert_eq!((second.items, effects(&second)), (0, vec![PushEffect::Duplicate]));
            assert_eq!(second.each().next().unwrap().id, each[0].id);
            assert!(t.rows().await == before, "a push that does nothing wrote something");

            // What is not a duplicate goes in.
            let third = t.push_items(&q, &[item("d", "k"), item("e", "third"), NewItem::new("f")]).await;
            assert_eq!(effects(&third), [PushEffect::Duplicate, PushEffect::Added, PushEffect::Added]);
            assert_eq!(t.list(&q).await.len(), 4);
            let stored: Vec<_> =
                t.run(async |tr| q.list(tr).await).await.into_iter().map(|item| item.id).collect();
            assert!(each[..2].iter().all(|item| stored.contains(item.id.as_ref().unwrap())));
        }
    });
}

#[test]
fn a_unique_key_is_taken_until_its_item_ends() {
    on_database(async |t| {
        let failure = Failure::new(from_millis(0), 1, "no");
        let again = |due| ItemOutcome::Retry { due, failure: failure.clone() };
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            assert!(push(t, &q).await);
            for outcome in [ItemOutcome::Release, again(None), ItemOutcome::Done] {
                let mut lease = t.lease(&q, 1).await.unwrap();
                assert!(!push(t, &q).await, "while it is handled");
                t.acknowledge(&mut lease, &outcome).await;
                assert_eq!(push(t, &q).await, outcome == ItemOutcome::Done, "after {outcome:?}");
            }
            let mut lease = t.lease(&q, 1).await.unwrap();
            t.acknowledge(&mut lease, &ItemOutcome::Dead(failure.clone())).await;
            assert!(push(t, &q).await, "after it died");
            t.run(async |tr| q.pop(tr).await).await;
            assert!(push(t, &q).await, "after it was popped");
            drop(t.session(&q).take(&t.db, k(1)).await.unwrap());
            assert!(push(t, &q).await, "after it was taken at most once");
            let mut lease = t.lease(&q, 1).await.unwrap();
            t.acknowledge(&mut lease, &again(Some(from_millis(9_000)))).await;
            assert!(!push(t, &q).await, "while it waits to be retried");
            let later = item("later", "delayed").with_due(from_millis(9_000));
            assert_eq!(t.push_items(&q, std::slice::from_ref(&later)).await.items, 1);
            assert_eq!(
                t.push_items(&q, &[later, item("now", "delayed")]).await.items,
                0,
                "while it is delayed"
            );
        }
    });
}

/// A program written from the recipe removes only the item's own key.
#[test]
fn a_foreign_pop_frees_the_unique_key() {
    on_database(async |t| {
        for (i, kind) in [Kind::Fifo, Kind::Recipe(Packing::Raw)].into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            let long = {
                let mut item = item("", "k");
                item.payload = vec![7; 250_000].into();
                item
            };
            let pushed = t.push_items(&q, &[long]).await;
            let id = pushed.each().next().unwrap().id.unwrap();
            let keys = t.rows().await.into_iter().map(|(key, _)| key);
            let popped = keys.filter(|key| key.ends_with(id.as_bytes()) && !contains(key, b"meta"));
            let popped: Vec<_> = popped.map(|key| [t.prefix.as_slice(), &key].concat()).collect();
            assert_eq!(popped.len(), 1);
            t.run(async |tr| {
                tr.clear(&popped[0]);
                Ok(())
            })
            .await;
            assert!(push(t, &q).await);
            assert!(!push(t, &q).await);
            assert_eq!((t.list(&q).await, t.records(&q, "chunk").await.len()), (vec!["again".to_owned()], 0));
            assert_eq!(t.records(&q, "meta").await.len(), 1);
        }
    });
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn of_concurrent_pushes_with_one_unique_key_one_is_stored() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut sessions: Vec<_> = (0..8).map(|_| t.session(&q)).collect();
        let items = [item("a", "k")];
        let options = PushOptions::default();
        let pushes = sessions.iter_mut().map(|session| session.push_items(&t.db, &items, &options));
        let added = futures::future::join_all(pushes).await.into_iter().map(|pushed| pushed.unwrap().items);
        assert_eq!((added.sum::<usize>(), t.len(&q).await), (1, 1));
    });
}

#[test]
fn a_push_of_unknown_outcome_is_not_its_own_duplicate() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), KINDS[i % KINDS.len()]);
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            let pushed = t.push_items(&q, &[item("a", "k"), item("b", "k")]).await;
            t.end_faults();
            assert_eq!(effects(&pushed), [PushEffect::Added, PushEffect::Duplicate], "{script:?}");
            let stored = t.run(async |tr| q.list(tr).await).await;
            let ids: Vec<_> = pushed.each().map(|item| item.id.unwrap()).collect();
            assert_eq!(
                (ids.as_slice(), stored.len()),
                (&[stored[0].id.clone(), stored[0].id.clone()][..], 1),
                "{script:?}"
            );
        }
    });
}

#[test]
fn a_failed_push_keeps_the_records_of_an_orphan() {
    on_database(async |t| {
        let q = t.queue_of("q", Kind::Recipe(Packing::Raw));
        t.push_items(&q, &[item("a", "k")]).await;
        let space = [t.prefix.as_slice(), &pack(&("q",))].concat();
        t.run(async |tr| {
            // A recipe's program pops it, and another has an index that no number fits behind.
            tr.clear_range(&[space.as_slice(), &[0]].concat(), &[space.as_slice(), &[0xff]].concat());
            tr.set(&[space.as_slice(), &pack(&(i64::MAX,))].concat(), b"stray");
            Ok(())
        })
        .await;
        let before = t.rows().await;
        let tr = t.db.create_trx().unwrap();
        let mut pusher = q.pusher(&tr).seeded(session_id().0);
        pusher.push_items(&[item("b", "k")], &PushOptions::default()).await.unwrap_err();
        tr.commit().await.unwrap();
        assert_eq!(t.rows().await, before);
        t.run(async |tr| {
            tr.clear(&[space.as_slice(), &pack(&(i64::MAX,))].concat());
            Ok(())
        })
        .await;
        assert!(push(t, &q).await);
    });
}

#[test]
fn a_duplicate_of_a_stored_item_does_not_stop_other_pushes_of_its_transaction() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            // Versions stand still, so the transaction reads at the version of the item.
            let Some(gate) = t.close_gate() else { return };
            to_the_end(&gate, pin!(t.push_items(&q, &[item("a", "k")]))).await;
            let tr = t.db.create_trx().unwrap();
            let mut pusher = q.pusher(&tr).seeded(session_id().0);
            let options = PushOptions::default();
            pusher.push_items(&[item("b", "other")], &options).await.unwrap();
            let placed = pusher.push_items(&[item("c", "k"), item("d", "third")], &options).await.unwrap();
            assert_eq!(placed.added(), 1, "{kind}");
            to_the_end(&gate, pin!(tr.commit())).await.unwrap();
            drop(gate);
            assert_eq!(t.list(&q).await.len(), 3, "{kind}");
        }
    });
}
