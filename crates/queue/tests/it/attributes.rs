//! What goes in addition to a payload, from the push to the worker that gets the item.

use kvqueue_queue::{Item, ItemOutcome, NewItem, from_millis};

use crate::common::{KINDS, k, on_database, payloads};

fn letter() -> NewItem {
    NewItem::new("letter")
        .with_attribute("to", "ann")
        .with_attribute("", "é")
        .with_content_type("text/plain".to_owned())
        .with_trace_parent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned())
        .with_enqueued_at(from_millis(1_700_000_000_123))
}

#[track_caller]
fn check(items: &[Item]) {
    assert_eq!(payloads(items), ["plain", "letter"]);
    assert_eq!(items[0].meta, None);
    let (meta, pushed) = (items[1].meta.as_deref().unwrap(), letter());
    assert_eq!(meta.attributes, pushed.attributes);
    assert_eq!((&meta.content_type, &meta.trace_parent), (&pushed.content_type, &pushed.trace_parent));
    assert_eq!(meta.enqueued_at, pushed.enqueued_at);
    assert_eq!((items[1].attribute("to"), items[1].attribute("from")), (Some("ann"), None));
    assert!(items.iter().all(|item| item.attempt == 1));
}

#[test]
fn attributes_come_with_the_item_to_every_consumer() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            for _ in 0..3 {
                t.push_items(&q, &[NewItem::new("plain"), letter()]).await;
            }
            // The highest priority goes first, and among equals the last.
            let last_first = matches!(kind, kvqueue_queue::Kind::Priority(kvqueue_queue::End::Max, _));
            let check = |mut items: Vec<Item>| {
                if last_first {
                    items.reverse();
                }
                check(&items);
            };
            check(t.run(async |tr| q.peek_k(tr, k(2)).await).await);
            check(t.run(async |tr| q.pop_k(tr, k(2)).await).await.items);
            check(t.session(&q).take(&t.db, k(2)).await.unwrap().got);
            let mut lease = t.lease(&q, 2).await.unwrap();
            check(lease.items().to_vec());
            t.acknowledge(&mut lease, &ItemOutcome::Release).await;
            check(t.run(async |tr| q.list(tr).await).await);
            let mut lease = t.lease(&q, 2).await.unwrap();
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            assert!(t.records(&q, "meta").await.is_empty());
        }
    });
}

#[test]
fn an_item_without_attributes_has_no_side_record() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push_items(&q, &[NewItem::new("a"), NewItem::new(vec![0; 100_000])]).await;
        assert_eq!(t.records(&q, "val").await.len(), 2);
        assert!(t.records(&q, "meta").await.is_empty());
        t.push_items(&q, &[NewItem::new("b").with_enqueued_at(from_millis(0))]).await;
        assert_eq!(t.records(&q, "meta").await.len(), 1);
    });
}
