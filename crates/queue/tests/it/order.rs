//! Order, paging and conflicts.

use std::collections::BTreeSet;

use crate::common::{k, on_database, payloads};

#[test]
fn order_is_by_commit_and_then_by_push() {
    on_database(async |t| {
        let q = t.queue("q");
        // Begun in one order, committed in the other.
        let (first, second) = (t.db.create_trx().unwrap(), t.db.create_trx().unwrap());
        let (mut a, mut b) = (q.pusher(&first), q.pusher(&second));
        for i in 0..300 {
            a.push(format!("later {i}").as_bytes()).await.unwrap();
            b.push(format!("earlier {i}").as_bytes()).await.unwrap();
        }
        second.commit().await.unwrap();
        first.commit().await.unwrap();

        let items = t.run(async |tr| q.list(tr).await).await;
        let expected: Vec<String> =
            ["earlier", "later"].iter().flat_map(|w| (0..300).map(move |i| format!("{w} {i}"))).collect();
        assert_eq!(payloads(&items), expected);
        assert!(items.is_sorted_by(|a, b| a.id < b.id));
    });
}

#[test]
fn long_queues_are_read_page_by_page() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut session = t.session(&q);
        // 1.2 MB: a page is 80 kB at most.
        let large: Vec<Vec<u8>> = (0..200_u8).map(|i| vec![i; 6_000]).collect();
        session.push(&t.db, &large).await.unwrap();
        let listed = t.run(async |tr| q.list(tr).await).await;
        assert!(listed.iter().map(|item| &item.payload[..]).eq(large.iter().map(|payload| &payload[..])));

        let taken = session.take(&t.db, k(150)).await.unwrap().got;
        assert!(
            taken.iter().map(|item| &item.payload[..]).eq(large[..150].iter().map(|payload| &payload[..]))
        );
        let rest = t.run(async |tr| q.pop_k(tr, k(150)).await).await;
        assert_eq!((rest.items.len(), rest.short), (50, true));
        assert_eq!(t.len(&q).await, 0);
    });
}

#[test]
fn pushes_do_not_conflict() {
    on_database(async |t| {
        let q = t.queue("q");
        let transactions: Vec<_> = (0..20).map(|_| t.db.create_trx().unwrap()).collect();
        for (i, tr) in transactions.iter().enumerate() {
            // A read version of before all commits.
            tr.get_read_version().await.unwrap();
            q.pusher(tr).push(i.to_string().as_bytes()).await.unwrap();
        }
        for tr in transactions {
            tr.commit().await.unwrap();
        }
        assert_eq!(t.len(&q).await, 20);
    });
}

#[test]
fn two_pops_of_one_item_conflict() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b"]).await;
        let (first, second) = (t.db.create_trx().unwrap(), t.db.create_trx().unwrap());
        assert!(q.pop(&first).await.unwrap().is_some());
        assert!(q.pop(&second).await.unwrap().is_some());
        first.commit().await.unwrap();
        assert_eq!(second.commit().await.unwrap_err().code(), 1020);
        assert_eq!(t.list(&q).await, ["b"]);
    });
}

#[test]
fn concurrent_sessions_lose_and_double_nothing() {
    on_database(async |t| {
        let q = t.queue("q");
        let names: Vec<String> = (0..100).map(|i| i.to_string()).collect();
        t.session(&q).push(&t.db, &names).await.unwrap();
        let consume = async || {
            let mut session = t.session(&q);
            let mut items = Vec::new();
            loop {
                let taken = session.take(&t.db, k(3)).await.unwrap();
                if taken.watch.is_some() {
                    return items;
                }
                items.extend(payloads(&taken.got));
            }
        };
        let (a, b, c) = tokio::join!(consume(), consume(), consume());
        let all: Vec<String> = [a, b, c].concat();
        assert_eq!(all.len(), 100);
        assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), names.into_iter().collect());
    });
}
