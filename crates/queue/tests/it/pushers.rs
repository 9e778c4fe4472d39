//! Pushing into a transaction of the caller's.

use kvqueue_queue::{
    Kind, MAX_PUSHES, NewItem, Packing, PushEffect, PushError, PushOptions, Pusher, QueueError, from_millis,
};

use crate::common::{KINDS, on_database, session_id};

fn unique(payload: &'static str) -> NewItem {
    NewItem::new(payload).with_unique(b"k".to_vec())
}

#[test]
fn pushes_of_one_transaction_are_numbered_in_order() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            let tr = t.db.create_trx().unwrap();
            let mut pusher = q.pusher(&tr).seeded(session_id().0);
            let options = PushOptions::default();
            let first = pusher.push_items(&[NewItem::new("a"), unique("b")], &options).await.unwrap();
            if kind == Kind::Fifo {
                pusher.push(b"c").await.unwrap();
            } else {
                pusher.push_items(&[NewItem::new("c")], &options).await.unwrap();
            }
            let named = options.with_idempotency_key(b"op".to_vec());
            let same = [unique("twice"), NewItem::new("d")];
            let last = pusher.push_items(&same, &named).await.unwrap();
            let again = pusher.push_items(&same, &named).await.unwrap();
            // A due time may have been a delay, so it is no part of what a key stands for.
            let delayed = same.clone().map(|item| item.with_due(from_millis(7)));
            assert!(pusher.push_items(&delayed, &named).await.unwrap().is_repetition());
            let refused = pusher.push_items(&[NewItem::new("never")], &named).await.unwrap_err();
            assert!(refused.idempotency_key_reused().is_some(), "{refused}");
            let other = PushOptions::default().with_idempotency_key(b"other".to_vec());
            pusher.push_items(&[unique("never")], &other).await.unwrap();
            assert_eq!(pusher.pushed(), 4);
            let stamp = tr.get_versionstamp();
            tr.commit().await.unwrap();
            let stamp: Option<[u8; 10]> = stamp.await.ok().and_then(|stamp| stamp[..].try_into().ok());

            let mut stored = t.run(async |tr| q.list(tr).await).await;
            stored.sort_by(|a, b| a.id.cmp(&b.id));
            assert_eq!(crate::common::payloads(&stored), ["a", "b", "c", "d"], "{kind:?}");
            let ids: Vec<_> = stored.into_iter().map(|item| Some(item.id)).collect();
            let of = |placed: &kvqueue_queue::PendingPush| {
                placed.items(stamp).map(|item| item.id).collect::<Vec<_>>()
            };
            assert_eq!(of(&first), ids[..2]);
            assert_eq!(of(&last), [ids[1].clone(), ids[3].clone()]);
            assert_eq!((again.is_repetition(), again.added(), of(&again)), (true, 0, of(&last)));
            assert_eq!((t.len(&q).await, t.records(&q, "oplog").await.len()), (4, 2));

            let refused =
                t.session(&q).push_items(&t.db, &[NewItem::new("never")], &named).await.unwrap_err();
            assert!(refused.idempotency_key_reused().is_some(), "{refused}");
            let repeated = t.session(&q).push_items(&t.db, &same, &named).await.unwrap();
            let known: Vec<_> = repeated.each().map(|item| (item.effect, item.id)).collect();
            let id = ids[3].clone().filter(|_| matches!(kind, Kind::Fifo | Kind::Keyed));
            assert_eq!(known, [(PushEffect::Duplicate, ids[1].clone()), (PushEffect::Repeated, id)]);
        }
    });
}

#[test]
fn a_push_without_commit_writes_nothing() {
    on_database(async |t| {
        let q = t.queue("q");
        let tr = t.db.create_trx().unwrap();
        q.pusher(&tr).push_items(&[unique("a")], &PushOptions::default()).await.unwrap();
        drop(tr);
        assert!(t.rows().await.is_empty());
    });
}

#[test]
fn a_refused_push_leaves_the_transaction_unchanged() {
    on_database(async |t| {
        let q = t.queue("q");
        let tr = t.db.create_trx().unwrap();
        let mut pusher = q.pusher(&tr);
        let items = [NewItem::new("fits"), NewItem::new("").with_unique(Vec::new())];
        let refused = pusher.push_items(&items, &PushOptions::default()).await.unwrap_err();
        assert!(matches!(refused, PushError::KeyLength { what: "unique key", len: 0, .. }));
        tr.commit().await.unwrap();
        assert!(t.rows().await.is_empty());
    });
}

#[test]
fn a_pusher_to_a_recipe_queue_needs_a_seed() {
    on_database(async |t| {
        let q = t.queue_of("q", Kind::Recipe(Packing::Raw));
        let tr = t.db.create_trx().unwrap();
        let refused = q.pusher(&tr).push_items(&[NewItem::new("a")], &PushOptions::default()).await;
        assert!(matches!(refused, Err(PushError::NotSeeded)));
        assert!(matches!(q.pusher(&tr).push(b"a").await, Err(PushError::NotSeeded)));
    });
}

#[test]
fn an_empty_push_with_idempotency_key_adds_nothing() {
    on_database(async |t| {
        let q = t.queue("q");
        let tr = t.db.create_trx().unwrap();
        let mut pusher = q.pusher(&tr);
        let options = PushOptions::default().with_idempotency_key(b"op".to_vec());
        assert_eq!(pusher.push_items(&[], &options).await.unwrap().added(), 0);
        for _ in 0..MAX_PUSHES {
            pusher.push(b"").await.unwrap();
        }
        assert_eq!(pusher.push_items(&[], &options).await.unwrap().added(), 0);
        let refused = pusher.push_items(&[NewItem::new("one more")], &options).await;
        assert!(matches!(refused, Err(PushError::TooManyItems { limit: MAX_PUSHES })));
        drop(tr);
        let tr = t.db.create_trx().unwrap();
        q.pusher(&tr).push_items(&[], &options).await.unwrap();
        tr.commit().await.unwrap();
        assert!(t.rows().await.is_empty());
    });
}

/// Pushes one of three kinds of items, which lie in different records.
async fn push_as(pusher: &mut Pusher<'_>, how: usize) -> Result<(), PushError> {
    let options = match how {
        2 => PushOptions::default().with_idempotency_key("op"),
        _ => PushOptions::default(),
    };
    let item = match how {
        1 => NewItem::new("later").with_due(from_millis(9_000_000_000_000)),
        _ => NewItem::new("ready"),
    };
    pusher.push_items(&[item], &options).await.map(drop)
}

#[test]
fn second_pusher_in_a_transaction_is_refused() {
    on_database(async |t| {
        for (i, (first, second)) in (0..3).flat_map(|a| (0..3).map(move |b| (a, b))).enumerate() {
            let q = t.queue(format!("q{i}"));
            // With a read version of its own, and without.
            for reads in [false, true] {
                let tr = t.db.create_trx().unwrap();
                if reads {
                    q.len(&tr).await.unwrap();
                }
                push_as(&mut q.pusher(&tr), first).await.unwrap();
                // Another queue has numbers of its own.
                push_as(&mut t.queue("other").pusher(&tr), second).await.unwrap();
                let refused = push_as(&mut q.pusher(&tr), second).await.unwrap_err();
                assert!(
                    matches!(&refused, PushError::Queue(QueueError::SecondPusher { queue }) if *queue == format!("q{i}")),
                    "{first} {second}: {refused:?}"
                );
                assert!(tr.commit().await.is_err(), "{first} {second}");
            }
            assert_eq!(t.len(&q).await, 0);
            // Of one that has pushed nothing there is nothing to replace.
            let tr = t.db.create_trx().unwrap();
            let (_idle, mut busy) = (q.pusher(&tr), q.pusher(&tr));
            push_as(&mut busy, first).await.unwrap();
            busy.push(b"more").await.unwrap();
            tr.commit().await.unwrap();
        }
    });
}

#[test]
fn a_second_pusher_to_a_recipe_queue_continues_the_numbers() {
    on_database(async |t| {
        let recipes = |kind: &Kind| !matches!(kind, Kind::Fifo | Kind::Keyed);
        for (i, kind) in KINDS.into_iter().filter(recipes).enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            let tr = t.db.create_trx().unwrap();
            let seed = session_id().0;
            for how in [0, 1, 0] {
                push_as(&mut q.pusher(&tr).seeded(seed), how).await.unwrap();
            }
            tr.commit().await.unwrap();
            let counts = t.run(async |tr| q.counts(tr).await).await;
            assert_eq!((counts.ready, counts.waiting), (2, 1), "{kind:?}");
        }
    });
}

/// In a keyed queue items of two keys have different ids, so pushers replace each other's items only within a key.
#[test]
fn a_second_pusher_of_a_key_is_refused_and_of_another_key_is_not() {
    on_database(async |t| {
        let q = t.queue_of("q", Kind::Keyed);
        let item = |key: &str| [NewItem::new("x").with_key(key)];
        let options = PushOptions::default();
        let tr = t.db.create_trx().unwrap();
        let (mut first, mut second) = (q.pusher(&tr), q.pusher(&tr));
        first.push_items(&item("a"), &options).await.unwrap();
        second.push_items(&item("b"), &options).await.unwrap();
        first.push_items(&item("a"), &options).await.unwrap();
        tr.commit().await.unwrap();
        assert_eq!(t.len(&q).await, 3);
        let tr = t.db.create_trx().unwrap();
        q.pusher(&tr).push_items(&item("a"), &options).await.unwrap();
        let refused = q.pusher(&tr).push_items(&item("a"), &options).await.unwrap_err();
        assert!(matches!(refused, PushError::Queue(QueueError::SecondPusher { .. })), "{refused:?}");
    });
}
