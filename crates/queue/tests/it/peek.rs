//! Looking at items a page at a time, and at one.

use bytes::Bytes;
use kvqueue_queue::{Item, ItemId, MAX_TAKE_BYTES, NewItem, Queue};

use crate::common::{KINDS, TestDb, id, k, on_database, payloads};

/// All items by pages of `n`.
async fn in_pages(t: &TestDb, queue: &Queue, n: usize) -> Vec<Vec<Item>> {
    let mut pages: Vec<Vec<Item>> = Vec::new();
    loop {
        let after = pages.last().and_then(|page| page.last()).map(|item| item.id.clone());
        let page = t.run(async |tr| queue.peek_after(tr, after.as_ref(), k(n)).await).await;
        if page.is_empty() {
            return pages;
        }
        pages.push(page);
    }
}

#[test]
fn a_peek_and_a_pop_of_large_items_are_bounded_in_bytes() {
    on_database(async |t| {
        let q = t.queue("q");
        let large = "x".repeat(64 << 10);
        for _ in 0..5 {
            t.push(&q, &[large.as_str(); 20]).await;
        }
        let bytes = |items: &[Item]| items.iter().map(|item| item.payload.len()).sum::<usize>();
        let mut peeked = t.run(async |tr| q.peek_k(tr, k(100)).await).await;
        assert!((500_000..=1_000_000).contains(&bytes(&peeked)), "{}", bytes(&peeked));
        while let Some(last) = peeked.last().map(|item| item.id.clone()) {
            let more = t.run(async |tr| q.peek_after(tr, Some(&last), k(100)).await).await;
            if more.is_empty() {
                break;
            }
            peeked.extend(more);
        }
        assert_eq!(peeked.len(), 100);
        let mut left = 100;
        while left > 0 {
            let popped = t.run(async |tr| q.pop_k(tr, k(100)).await).await;
            assert!((1..=1_000_000).contains(&bytes(&popped.items)));
            left -= popped.items.len();
            assert!(!popped.short || left == 0);
        }
        assert!(t.run(async |tr| q.pop_k(tr, k(100)).await).await.short);
        assert_eq!(t.len(&q).await, 0);
    });
}

#[test]
fn pages_of_any_size_list_the_queue_in_order() {
    on_database(async |t| {
        for (number, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{number}"), kind);
            t.fill(&q, &["a", "b", "c", "d", "e"]).await;
            let all = t.run(async |tr| q.list(tr).await).await;
            assert_eq!(payloads(&all), ["a", "b", "c", "d", "e"], "{kind:?}");
            for n in 1..=6 {
                let pages = in_pages(t, &q, n).await;
                assert!(pages.iter().all(|page| page.len() <= n));
                assert_eq!(pages.concat(), all, "{kind:?} by {n}");
            }
            assert_eq!(t.run(async |tr| q.oldest(tr).await).await.as_ref(), Some(&all[0].id), "{kind:?}");
            for item in &all {
                let found = t.run(async |tr| q.item(tr, &item.id).await).await;
                assert_eq!(found.as_ref(), Some(item));
            }
        }
    });
}

#[test]
fn paging_continues_after_an_item_that_was_popped() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b"]).await;
        let gone = t.run(async |tr| q.pop(tr).await).await.unwrap();
        let page = t.run(async |tr| q.peek_after(tr, Some(&gone.id), k(9)).await).await;
        assert_eq!(payloads(&page), ["b"]);
        assert_eq!(t.run(async |tr| q.item(tr, &gone.id).await).await, None);
    });
}

#[test]
fn an_empty_queue_has_no_oldest_item() {
    on_database(async |t| {
        for (number, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{number}"), kind);
            // Keys before and behind it are none of its own.
            for neighbour in [format!("p{number}"), format!("r{number}")] {
                t.fill(&t.queue_of(neighbour, kind), &["other"]).await;
            }
            assert_eq!(t.run(async |tr| q.oldest(tr).await).await, None, "{kind:?}");
            assert!(t.run(async |tr| q.peek_after(tr, None, k(1)).await).await.is_empty());
        }
    });
}

#[test]
fn reading_an_item_by_an_unknown_id_finds_none() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let foreign: ItemId = "x1501".parse().unwrap();
        for id in [id(7), foreign] {
            assert_eq!(t.run(async |tr| q.item(tr, &id).await).await, None);
        }
    });
}

#[test]
fn a_page_is_bounded_in_bytes_and_has_at_least_one_item() {
    on_database(async |t| {
        let q = t.queue("q");
        let long =
            |len: usize| NewItem::new(Bytes::from(vec![b'x'; len])).with_attribute("len", len.to_string());
        // In parts, of which the page's first read sees one each.
        let lens = [MAX_TAKE_BYTES + 1, 1, MAX_TAKE_BYTES / 2, MAX_TAKE_BYTES / 2, 5];
        for len in lens {
            t.push_items(&q, &[long(len)]).await;
        }
        let pages = in_pages(t, &q, 100).await;
        let found: Vec<Vec<usize>> =
            pages.iter().map(|page| page.iter().map(|item| item.payload.len()).collect()).collect();
        let half = MAX_TAKE_BYTES / 2;
        assert_eq!(found, [vec![MAX_TAKE_BYTES + 1], vec![1, half], vec![half, 5]]);
        for item in pages.iter().flatten() {
            assert_eq!(item.attribute("len"), Some(item.payload.len().to_string().as_str()));
        }
    });
}
