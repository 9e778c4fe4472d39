//! Items that come with a history.

use std::sync::Arc;

use kvqueue_queue::{
    Counts, Failure, Item, ItemId, Kind, Meta, PushError, PushOptions, Queue, ScheduledItem, State,
    StoredItem, from_millis,
};

use crate::common::{KINDS, TestDb, k, on_database, payloads};

/// An item of some attempts and a failure.
pub(crate) fn item(payload: &str, state: State) -> StoredItem {
    let mut meta = Meta::default();
    meta.attempts = 2;
    meta.crashes = 1;
    meta.failures = vec![Failure::new(from_millis(5), 1, "no"), Failure::new(from_millis(6), 2, "no again")];
    meta.attributes.insert("to".to_owned(), payload.chars().take(9).collect());
    meta.content_type = Some("text/plain".to_owned());
    meta.enqueued_at = Some(from_millis(4));
    assert!(meta.add_unknown_field(200, vec![1, 2]));
    if state == State::Dead {
        meta.death = Some(Failure::new(from_millis(7), 2, "it is over"));
    }
    StoredItem { payload: payload.to_owned().into(), meta, state, priority: 0, key: None }
}

pub(crate) fn unique(item: StoredItem, key: &str) -> StoredItem {
    let mut item = item;
    item.meta.unique = Some(key.into());
    item
}

pub(crate) async fn restore(t: &TestDb, queue: &Queue, items: &[StoredItem]) -> usize {
    let options = PushOptions::default();
    let seed = uuid::Uuid::now_v7().into_bytes();
    t.run(async |tr| match queue.pusher(tr).seeded(seed).restore(items, &options).await {
        Ok(placed) => Ok(placed.added()),
        Err(PushError::Queue(error)) => Err(error),
        Err(error) => panic!("{error}"),
    })
    .await
}

/// All that a queue has, but for items in hand, by pages of one item and of many.
pub(crate) async fn stored(t: &TestDb, queue: &Queue, page: usize) -> Vec<(ItemId, StoredItem)> {
    let mut all = Vec::new();
    let of = |item: Item, state| {
        let meta = item.meta.map(Arc::unwrap_or_clone).unwrap_or_default();
        (item.id, StoredItem { payload: item.payload, meta, state, priority: 0, key: None })
    };
    let mut after = None;
    loop {
        let found = t.run(async |tr| queue.peek_after(tr, after.as_ref(), k(page)).await).await;
        let Some(last) = found.last() else { break };
        after = Some(last.id.clone());
        all.extend(found.into_iter().map(|item| of(item, State::Ready)));
    }
    let mut after: Option<ScheduledItem> = None;
    loop {
        let place = after.as_ref().map(|delayed| (delayed.due, &delayed.id));
        let found = t.run(async |tr| queue.scheduled_after(tr, place, k(page)).await).await;
        let Some(last) = found.last().cloned() else { break };
        after = Some(last);
        all.extend(found.into_iter().map(|found| of(found.item.unwrap(), State::Later(found.due))));
    }
    let mut after = None;
    loop {
        let found = t.run(async |tr| queue.dead_after(tr, after.as_ref(), k(page)).await).await;
        let Some(last) = found.last() else { break };
        after = Some(last.id.clone());
        all.extend(found.into_iter().map(|letter| {
            let meta = Arc::unwrap_or_clone(letter.meta);
            (
                letter.id,
                StoredItem {
                    payload: letter.payload.unwrap(),
                    meta,
                    state: State::Dead,
                    priority: 0,
                    key: None,
                },
            )
        }));
    }
    all
}

/// What differs from place to place taken off: ids, and how payloads are stored.
pub(crate) fn plain(stored: Vec<(ItemId, StoredItem)>) -> Vec<StoredItem> {
    let plain = |(_, mut item): (ItemId, StoredItem)| {
        item.meta.payload_len = None;
        item
    };
    stored.into_iter().map(plain).collect()
}

#[test]
fn items_of_every_state_are_restored_as_they_were() {
    on_database(async |t| {
        let long = "x".repeat(250_000);
        let items = [
            item("a", State::Ready),
            item(&long, State::Ready),
            StoredItem { payload: "plain".into(), ..StoredItem::default() },
            item("b", State::Later(from_millis(1_000))),
            item(&long, State::Later(from_millis(2_000))),
            item("c", State::Dead),
            item(&long, State::Dead),
        ];
        for (i, kind) in KINDS.into_iter().enumerate() {
            // In the order in which they are taken.
            let mut items = items.clone();
            if kind == KINDS[4] || kind == KINDS[5] {
                items[..3].reverse();
            }
            let q = t.queue_of(format!("q{i}"), kind);
            assert_eq!(restore(t, &q, &items).await, items.len());
            if kind == KINDS[4] || kind == KINDS[5] {
                items[..3].reverse();
            }
            let counts = t.run(async |tr| q.counts(tr).await).await;
            let pushed = matches!(kind, Kind::Fifo | Kind::Keyed).then_some(5);
            assert_eq!(
                counts,
                Counts { ready: 3, waiting: 2, dead: 2, done: 0, running: 0, pushed },
                "{kind:?}"
            );
            for page in [1, 2, 100] {
                assert!(plain(stored(t, &q, page).await) == items, "{kind:?} by {page}");
            }
        }
    });
}

#[test]
fn restored_items_are_leased_and_retried_like_others() {
    on_database(async |t| {
        let q = t.queue("q");
        restore(
            t,
            &q,
            &[item("a", State::Ready), item("b", State::Later(from_millis(5))), item("c", State::Dead)],
        )
        .await;
        let taken = t.lease(&q, 9).await.unwrap();
        assert_eq!((payloads(taken.items()), taken.items()[0].attempt), (vec!["a".to_owned()], 3));
        let dead = t.run(async |tr| q.dead_list(tr, None, k(9)).await).await;
        assert_eq!((dead[0].died_at, dead[0].reason.as_str()), (from_millis(7), "it is over"));
        assert!(t.run(async |tr| Ok(q.dead_retry(tr, &dead[0].id).await.unwrap())).await);
        assert_eq!(t.list(&q).await, ["c"]);
    });
}

#[test]
fn restored_items_take_their_unique_keys_except_dead_letters() {
    on_database(async |t| {
        let q = t.queue("q");
        let first = [
            unique(item("a", State::Ready), "1"),
            unique(item("b", State::Later(from_millis(5))), "2"),
            unique(item("c", State::Dead), "3"),
        ];
        assert_eq!(restore(t, &q, &first).await, 3);
        assert_eq!(t.records(&q, "unique").await.len(), 2);
        let again = [
            unique(item("d", State::Ready), "1"),
            unique(item("e", State::Ready), "2"),
            unique(item("f", State::Ready), "3"),
            unique(item("g", State::Dead), "1"),
        ];
        assert_eq!(restore(t, &q, &again).await, 2);
        assert_eq!(t.list(&q).await, ["a", "f"]);
    });
}

#[test]
fn items_are_restored_once_per_idempotency_key() {
    on_database(async |t| {
        let q = t.queue("q");
        let items = [item("a", State::Ready), item("c", State::Dead)];
        let options = PushOptions::default().with_idempotency_key(b"import 1".to_vec());
        for repeated in [false, true] {
            let done = t.run(async |tr| {
                let placed = q.pusher(tr).restore(&items, &options).await.unwrap();
                Ok(placed.is_repetition())
            });
            assert_eq!(done.await, repeated);
        }
        let counts = t.run(async |tr| q.counts(tr).await).await;
        assert_eq!((counts.ready, counts.dead), (1, 1));
        assert_eq!(q.kind(), Kind::Fifo);
    });
}
