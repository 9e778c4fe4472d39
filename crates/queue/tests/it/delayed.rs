//! Items pushed for a time.

use foundationdb::tuple::{Element, unpack};
use futures::FutureExt;
use kvqueue_queue::{ItemOutcome, NewItem, PushEffect, from_millis};

use crate::common::{KINDS, on_database, rules, sweeper};

#[test]
fn delayed_items_are_scheduled_and_wake_no_consumer() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            let tr = t.db.create_trx().unwrap();
            let mut watch = q.watch(&tr);
            tr.commit().await.unwrap();
            let later = NewItem::new("later").with_due(from_millis(5_000));
            let items = [later.clone(), later.with_attribute("k", "v").with_due(from_millis(4_000))];
            let pushed = t.push_items(&q, &items).await;
            assert!((&mut watch).now_or_never().is_none());
            assert_eq!((t.list(&q).await.len(), t.len(&q).await), (0, 0));
            assert_eq!((t.counter(&q, "npush").await, t.counter(&q, "nlater").await), (0, 2));
            assert!(t.records(&q, "meta").await.is_empty());

            // By time, and each with its id.
            let each: Vec<_> = pushed.each().collect();
            assert!(each.iter().all(|item| item.effect == PushEffect::Added));
            let ids: Vec<_> = each.into_iter().map(|item| item.id.unwrap().as_bytes().to_vec()).collect();
            let expected = [(4_000, &ids[1]), (5_000, &ids[0])];
            for ((suffix, meta), (due, id)) in t.records(&q, "later").await.iter().zip(expected) {
                assert!(suffix.ends_with(id) && suffix.len() < id.len() + 4);
                let time: Vec<Element<'_>> = unpack(&suffix[..suffix.len() - id.len()]).unwrap();
                assert_eq!(time, [Element::Int(due)]);
                assert_eq!(meta.is_empty(), due == 5_000);
            }
            let bodies = t.records(&q, "body").await;
            assert!(bodies.iter().all(|(id, _)| ids.contains(id)) && bodies.len() == 2);
            t.push(&q, &["now"]).await;
            watch.await.unwrap();
            assert_eq!(t.list(&q).await, ["now"]);
        }
    });
}

#[test]
fn delayed_items_become_ready_complete_when_due() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            let payload = vec![i as u8; 250_000];
            let item = NewItem::new(payload.clone()).with_due(from_millis(5_000)).with_unique(b"k".to_vec());
            t.push_items(&q, &[item.clone().with_attribute("k", "v")]).await;
            let mut sweeper = sweeper(&q);
            assert!(t.sweep(&mut sweeper, 4_999, &rules()).await.moved.is_nothing());
            assert_eq!(t.push_items(&q, std::slice::from_ref(&item)).await.items, 0);
            assert!(!t.sweep(&mut sweeper, 5_000, &rules()).await.moved.is_nothing());
            assert_eq!(t.push_items(&q, std::slice::from_ref(&item)).await.items, 0);
            let mut lease = t.lease(&q, 1).await.unwrap();
            let found = &lease.items()[0];
            assert!(found.payload == payload, "the payload differs");
            assert_eq!((found.attempt, found.attribute("k")), (1, Some("v")));
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            assert_eq!(t.records(&q, "chunk").await.len(), 0);
            assert_eq!(t.push_items(&q, &[item]).await.items, 1);
        }
    });
}

#[test]
fn a_postponed_item_waits_and_keeps_its_attempts() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            t.push_items(&q, &[NewItem::new("first"), NewItem::new("second").with_attribute("k", "v")]).await;
            let mut lease = t.lease(&q, 2).await.unwrap();
            t.acknowledge(&mut lease, &ItemOutcome::Postpone { due: from_millis(5_000) }).await;
            assert!(t.lease(&q, 1).await.is_none());
            let counts = t.run(async |tr| q.counts(tr).await).await;
            assert_eq!((counts.ready, counts.waiting, counts.running, counts.dead), (0, 2, 0, 0));
            let mut sweeper = sweeper(&q);
            assert!(t.sweep(&mut sweeper, 4_999, &rules()).await.moved.is_nothing());
            assert!(!t.sweep(&mut sweeper, 5_000, &rules()).await.moved.is_nothing());
            let mut lease = t.lease(&q, 2).await.unwrap();
            let found = lease.items().iter().map(|it| (&it.payload[..], it.attempt, it.attribute("k")));
            let mut found: Vec<_> = found.collect();
            // A priority queue has no order of pushes.
            found.sort_unstable();
            assert_eq!(found, [(&b"first"[..], 1, None), (&b"second"[..], 1, Some("v"))]);
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            assert!(t.lease(&q, 1).await.is_none());
        }
    });
}
