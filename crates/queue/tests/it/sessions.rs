//! Sessions in fair weather.

use kvqueue_queue::{BatchLimits, Stamp, batches};

use crate::common::{TestDb, k, on_database, payloads};

/// How many token slots the queue has.
async fn slots(t: &TestDb, queue: &kvqueue_queue::Queue) -> usize {
    let base = queue.range().0;
    let slots = [&base[..base.len() - 1], b"\x01token\0"].concat();
    let (begin, end) = ([slots.as_slice(), b"\0"].concat(), [slots.as_slice(), b"\xff"].concat());
    t.run(async |tr| Ok(tr.get_range(&(begin.clone(), end.clone()).into(), 1, false).await?.len())).await
}

#[test]
fn push_returns_the_stamps_of_its_items() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut session = t.session(&q);
        let first = session.push(&t.db, &["a", "b"]).await.unwrap();
        let second = session.push(&t.db, &["c"]).await.unwrap();
        assert_eq!((first.items, second.items), (2, 1));
        assert_eq!((first.attempts.begun, first.attempts.unknown), (1, 0));
        let stored: Vec<Stamp> =
            t.run(async |tr| q.list(tr).await).await.iter().map(|item| item.id.stamp().unwrap()).collect();
        assert_eq!(first.stamps().chain(second.stamps()).collect::<Vec<_>>(), stored);
    });
}

#[test]
fn a_push_of_nothing_does_nothing() {
    on_database(async |t| {
        let q = t.queue("q");
        let pushed = t.session(&q).push(&t.db, &[b""; 0]).await.unwrap();
        assert_eq!((pushed.items, pushed.stamps().count(), pushed.attempts.begun), (0, 0, 0));
        assert_eq!(slots(t, &q).await, 0);
    });
}

#[test]
fn take_returns_items_or_a_watch() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b", "c"]).await;
        let mut session = t.session(&q);
        let full = session.take(&t.db, k(2)).await.unwrap();
        assert_eq!((payloads(&full.got), full.watch.is_none()), (vec!["a".into(), "b".into()], true));
        let short = session.take(&t.db, k(2)).await.unwrap();
        assert_eq!((payloads(&short.got), short.watch.is_none()), (vec!["c".into()], true));
        let empty = session.take(&t.db, k(2)).await.unwrap();
        assert!(empty.got.is_empty() && empty.watch.is_some());
        assert_eq!(t.len(&q).await, 0);
    });
}

#[test]
fn a_session_has_one_token_and_close_clears_it() {
    on_database(async |t| {
        let q = t.queue("q");
        let (mut one, mut other) = (t.session(&q), t.session(&q));
        one.push(&t.db, &["a"]).await.unwrap();
        one.push(&t.db, &["b"]).await.unwrap();
        drop(one.take(&t.db, k(1)).await.unwrap());
        assert_eq!(slots(t, &q).await, 1);
        drop(other.take(&t.db, k(1)).await.unwrap());
        assert_eq!(slots(t, &q).await, 2);
        one.close(&t.db).await.unwrap();
        assert_eq!(slots(t, &q).await, 1);
        other.close(&t.db).await.unwrap();
        assert_eq!(slots(t, &q).await, 0);
        // One that did nothing has nothing to clear.
        t.session(&q).close(&t.db).await.unwrap();
        assert_eq!(t.len(&q).await, 0);
    });
}

#[test]
fn batches_are_pushed_whole_and_in_order() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut session = t.session(&q);
        let payloads: Vec<String> = (0..2_500).map(|i| i.to_string()).collect();
        let mut pushed = 0;
        for batch in batches(&payloads, BatchLimits::default()) {
            pushed += session.push(&t.db, &batch).await.unwrap().items;
        }
        assert_eq!(pushed, 2_500);
        assert_eq!(t.list(&q).await, payloads);
    });
}

#[test]
fn a_take_does_not_conflict_with_pushes() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let (mut consumer, mut producer) = (t.session(&q), t.session(&q));
        let consume = async {
            let (mut items, mut conflicts) = (0, 0);
            while items < 101 {
                let taken = consumer.take(&t.db, k(50)).await.unwrap();
                items += taken.got.len();
                conflicts += taken.attempts.conflicts;
                if let Some(watch) = taken.watch {
                    watch.await.unwrap();
                }
            }
            conflicts
        };
        let produce = async {
            let mut conflicts = 0;
            for _ in 0..100 {
                conflicts += producer.push(&t.db, &["b"]).await.unwrap().attempts.conflicts;
            }
            conflicts
        };
        assert_eq!(tokio::join!(consume, produce), (0, 0));
    });
}
