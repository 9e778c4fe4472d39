//! Looking at items by what they are doing.

use kvqueue_queue::{Cursor, ItemOutcome, ItemPage, ItemState, ItemView, NewItem, Queue, from_millis};

use crate::common::states::{HOUR, put};
use crate::common::{KINDS, TestDb, k, on_database, record};

/// All items of a state, by pages of `n`.
async fn all(t: &TestDb, queue: &Queue, state: ItemState, n: usize) -> Vec<ItemView> {
    let (mut found, mut after): (_, Option<Cursor>) = (Vec::new(), None);
    loop {
        let page: ItemPage = t.run(async |tr| queue.view(tr, state, after.as_ref(), k(n)).await).await;
        assert!(page.items.len() <= n && page.unreadable == 0, "{page:?}");
        found.extend(page.items);
        after = match page.next {
            Some(next) => Some(Cursor::parse(state, &next.to_string()).unwrap()),
            None => return found,
        };
    }
}

fn text(view: &ItemView) -> String {
    String::from_utf8(view.item.as_ref().unwrap().payload.to_vec()).unwrap()
}

/// One item in each state, three times. Every other delayed item has an attempt behind it.
async fn filled(t: &TestDb, q: &Queue) {
    for n in 0..3_u64 {
        for state in ItemState::ALL {
            if !matches!(state, ItemState::Ready | ItemState::Running) {
                let due = 1_000 + 2 * n + u64::from(state == ItemState::Scheduled);
                put(t, q, state, NewItem::new(format!("{state} {n}")), due).await;
            }
        }
    }
    t.fill(q, &["running 0", "running 1", "running 2"]).await;
    // One lease of two, and one of one. They stay when they are dropped.
    let mut lease = t.lease_for(q, 2, HOUR).await.unwrap();
    drop(t.lease_for(q, 1, HOUR).await.unwrap());
    // One of a lease that is settled is not running any more.
    t.fill(q, &["done"]).await;
    let settled = t.lease(q, 1).await;
    t.acknowledge(&mut settled.unwrap(), &ItemOutcome::Done).await;
    lease.extend(&t.db, &kvqueue_queue::RetryPolicy::default()).await.unwrap();
    t.fill(q, &["ready 0", "ready 1", "ready 2"]).await;
}

#[test]
fn items_of_each_state_are_paged_in_every_kind_of_queue() {
    on_database(async |t| {
        for (number, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{number}"), kind);
            filled(t, &q).await;
            let before = t.rows().await;
            for state in ItemState::ALL {
                for n in [1, 2, 3, 10] {
                    let found = all(t, &q, state, n).await;
                    let mut texts: Vec<_> = found.iter().map(text).collect();
                    if !matches!(state, ItemState::Ready | ItemState::Scheduled | ItemState::Retrying) {
                        // By lease, or by id: the kinds differ.
                        texts.sort();
                    }
                    let expected: Vec<_> = (0..3).map(|n| format!("{state} {n}")).collect();
                    assert_eq!(texts, expected, "{kind:?}, {state}, pages of {n}");
                    assert!(found.iter().all(|view| view.state == state));
                }
            }
            assert_eq!(t.rows().await, before, "a look changes nothing");
        }
    });
}

#[test]
fn an_item_shows_its_due_time_its_attempts_their_reasons_and_its_lease() {
    on_database(async |t| {
        let q = t.queue("q");
        filled(t, &q).await;
        let retrying = all(t, &q, ItemState::Retrying, 10).await;
        assert_eq!(
            retrying.iter().map(|it| it.due).collect::<Vec<_>>(),
            [1_000, 1_002, 1_004].map(|due| Some(from_millis(due)))
        );
        let item = retrying[0].item.as_ref().unwrap();
        assert_eq!((item.attempt, retrying[0].attempts()), (2, 1));
        assert_eq!(item.meta.as_ref().unwrap().failures[0].reason, "not yet");
        let scheduled = all(t, &q, ItemState::Scheduled, 10).await;
        assert_eq!((scheduled[0].due, scheduled[0].attempts()), (Some(from_millis(1_001)), 0));
        let dead = all(t, &q, ItemState::Dead, 10).await;
        let meta = dead[0].item.as_ref().unwrap().meta.clone().unwrap();
        assert_eq!(meta.death.as_ref().unwrap().reason, "no such address");
        let running = all(t, &q, ItemState::Running, 10).await;
        let leases: Vec<_> = running.iter().map(|it| it.lease.unwrap()).collect();
        let sessions: std::collections::BTreeSet<_> = leases.iter().map(|it| it.id.session).collect();
        assert_eq!(sessions.len(), 2);
        for lease in leases {
            let left = lease.left.expect("it lasts an hour");
            assert!(lease.extended + left == std::time::Duration::from_micros(HOUR), "{lease:?}");
        }
        assert_eq!(running[0].item.as_ref().unwrap().attempt, 1);
        // An expired lease says so until a sweeper comes.
        t.fill(&q, &["expired"]).await;
        while t.lease(&q, 1).await.is_some() {}
        t.fill(&q, &["expired"]).await;
        let lease = t.lease_for(&q, 1, crate::common::SHORT).await.unwrap();
        t.until_past(lease.deadline()).await;
        let running = all(t, &q, ItemState::Running, 10).await;
        let of_it = running.iter().find(|it| it.lease.unwrap().id == lease.id()).unwrap();
        assert_eq!(of_it.lease.unwrap().left, None);
    });
}

#[test]
fn a_page_is_bounded_and_continues_past_many_items_of_another_state() {
    on_database(async |t| {
        let q = t.queue("q");
        // More than one page passes over: the one that is retrying lies behind all of them.
        let due = |n: u64| NewItem::new("scheduled").with_due(from_millis(n));
        for part in 0..5 {
            t.push_items(&q, &(0..500).map(|n| due(part * 500 + n)).collect::<Vec<_>>()).await;
        }
        t.put_aside(&q, &[("retrying", 10_000)]).await;
        let first = t.run(async |tr| q.view(tr, ItemState::Retrying, None, k(5)).await).await;
        assert!(first.items.is_empty() && first.next.is_some(), "{first:?}");
        assert_eq!(
            all(t, &q, ItemState::Retrying, 5).await.iter().map(text).collect::<Vec<_>>(),
            ["retrying"]
        );
        assert_eq!(all(t, &q, ItemState::Scheduled, 100).await.len(), 2_500);
    });
}

#[test]
fn a_page_of_large_items_is_bounded_in_bytes() {
    on_database(async |t| {
        let q = t.queue("q");
        let large = "x".repeat(200_000);
        for _ in 0..20 {
            t.push(&q, &[&large]).await;
        }
        for _ in 0..10 {
            drop(t.lease(&q, 1).await.unwrap());
        }
        for state in [ItemState::Ready, ItemState::Running] {
            let page = t.run(async |tr| q.view(tr, state, None, k(100)).await).await;
            let bytes: usize = page.items.iter().map(|it| it.item.as_ref().unwrap().payload.len()).sum();
            assert!((1..=kvqueue_queue::MAX_TAKE_BYTES).contains(&bytes) && page.next.is_some(), "{bytes}");
            assert_eq!(all(t, &q, state, 100).await.len(), 10, "{state}");
        }
    });
}

#[test]
fn unreadable_items_are_counted_or_explained_and_hide_no_other() {
    on_database(async |t| {
        let q = t.queue("q");
        filled(t, &q).await;
        let running = all(t, &q, ItemState::Running, 10).await;
        let retrying = all(t, &q, ItemState::Retrying, 10).await;
        let lost = running.last().unwrap().lease.unwrap().id;
        let (lease, _) = t.records(&q, "lease").await.pop().unwrap();
        t.run(async |tr| {
            tr.set(&record(&q, "lease", &lease), b"\x7fanother layout");
            tr.clear(&record(&q, "body", retrying[1].id.as_bytes()));
            Ok(())
        })
        .await;
        let page = t.run(async |tr| q.view(tr, ItemState::Running, None, k(10)).await).await;
        let left = running.iter().filter(|it| it.lease.unwrap().id != lost).count();
        assert_eq!((page.unreadable, page.items.len()), (1, left));
        let found = all(t, &q, ItemState::Retrying, 10).await;
        assert!(found[1].item.as_ref().is_err_and(|why| why.contains("body")), "{found:?}");
        assert_eq!(found.len(), 3);
    });
}
