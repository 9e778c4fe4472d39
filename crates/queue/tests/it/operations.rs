//! The operations of the Erlang program, each by its name there.

use foundationdb::FdbError;
use kvqueue_queue::{MAX_PAYLOAD, MAX_PUSHES, MAX_VALUE, PushError, QueueError};

use crate::common::{k, on_database, payloads};

#[test]
fn pushed_items_are_listed_in_order() {
    on_database(async |t| {
        let q = t.queue("q");
        assert!(t.list(&q).await.is_empty());
        t.push(&q, &["a"]).await;
        t.push(&q, &["b", "c"]).await;
        assert_eq!(t.list(&q).await, ["a", "b", "c"]);
    });
}

#[test]
fn pop_returns_items_in_order_until_empty() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b"]).await;
        let pop = async || {
            let item = t.run(async |tr| q.pop(tr).await).await;
            item.map(|item| String::from_utf8(item.payload.to_vec()).unwrap())
        };
        assert_eq!(pop().await.as_deref(), Some("a"));
        assert_eq!(t.list(&q).await, ["b"]);
        assert_eq!(pop().await.as_deref(), Some("b"));
        assert_eq!(pop().await, None);
        assert_eq!(t.len(&q).await, 0);
    });
}

#[test]
fn pop_k_returns_up_to_k_items_in_order() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b", "c", "d", "e"]).await;
        let pop_k = async |n| {
            let popped = t.run(async |tr| q.pop_k(tr, k(n)).await).await;
            (payloads(&popped.items), popped.short)
        };
        assert_eq!(pop_k(2).await, (vec!["a".into(), "b".into()], false));
        assert_eq!(t.len(&q).await, 3);
        // Exactly as many as there are is not short: whether more follow was not looked at.
        assert_eq!(pop_k(3).await, (vec!["c".into(), "d".into(), "e".into()], false));
        assert_eq!(pop_k(1).await, (vec![], true));
        t.push(&q, &["f"]).await;
        assert_eq!(pop_k(10).await, (vec!["f".into()], true));
        assert_eq!(t.len(&q).await, 0);
    });
}

#[test]
fn len_counts_pushed_less_popped_items() {
    on_database(async |t| {
        let q = t.queue("q");
        assert_eq!(t.len(&q).await, 0);
        t.push(&q, &["a", "b", "c"]).await;
        assert_eq!(t.len(&q).await, 3);
        t.run(async |tr| q.pop_k(tr, k(2)).await).await;
        assert_eq!(t.len(&q).await, 1);
    });
}

#[test]
fn delete_leaves_neighbouring_queues_unchanged() {
    on_database(async |t| {
        // Their keys stand on either side of those of "q", as near as names allow.
        let neighbours = ["p", "q\0", "q\0\0", "q\u{1}", "qa"].map(|name| t.queue(name));
        let q = t.queue("q");
        for queue in neighbours.iter().chain([&q]) {
            t.push(queue, &["item"]).await;
        }
        t.run(async |tr| {
            q.delete(tr);
            Ok(())
        })
        .await;
        assert!(t.list(&q).await.is_empty());
        assert_eq!(t.len(&q).await, 0);
        for queue in &neighbours {
            assert_eq!(t.list(queue).await, ["item"], "{queue:?}");
        }
        // It can be used again.
        t.push(&q, &["again"]).await;
        assert_eq!((t.list(&q).await, t.len(&q).await), (vec!["again".to_owned()], 1));
    });
}

#[test]
fn delete_clears_all_keys_of_the_queue() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut session = t.session(&q);
        session.push(&t.db, &["a", "b"]).await.unwrap();
        drop(session.take(&t.db, k(1)).await.unwrap());
        t.run(async |tr| {
            q.delete(tr);
            Ok(())
        })
        .await;
        let (begin, end) = q.range();
        let left =
            t.run(async |tr| Ok(tr.get_range(&(begin.clone(), end.clone()).into(), 1, false).await?.len()));
        assert_eq!(left.await, 0);
    });
}

#[test]
fn peek_k_leaves_items_where_they_are() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b", "c"]).await;
        let peeked = t.run(async |tr| q.peek_k(tr, k(2)).await).await;
        assert_eq!(payloads(&peeked), ["a", "b"]);
        assert_eq!(t.len(&q).await, 3);
    });
}

#[test]
fn a_push_is_part_of_the_callers_transaction() {
    on_database(async |t| {
        let q = t.queue("q");
        let tr = t.db.create_trx().unwrap();
        q.pusher(&tr).push(b"never").await.unwrap();
        drop(tr);
        assert!(t.list(&q).await.is_empty());

        let nearby = [t.prefix.as_slice(), b"nearby"].concat();
        let tr = t.db.create_trx().unwrap();
        tr.set(&nearby, b"1");
        q.pusher(&tr).push(b"item").await.unwrap();
        tr.commit().await.unwrap();
        assert_eq!(t.list(&q).await, ["item"]);
        assert!(t.run(async |tr| Ok(tr.get(&nearby, false).await?.is_some())).await);
    });
}

#[test]
fn a_pop_and_then_a_push_fit_in_one_transaction() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let tr = t.db.create_trx().unwrap();
        let item = q.pop(&tr).await.unwrap().unwrap();
        q.pusher(&tr).push(&[&item.payload[..], b" again"].concat()).await.unwrap();
        tr.commit().await.unwrap();
        assert_eq!((t.list(&q).await, t.len(&q).await), (vec!["a again".to_owned()], 1));
    });
}

#[test]
fn a_push_and_then_a_pop_in_one_transaction_fail() {
    on_database(async |t| {
        let q = t.queue("q");
        let tr = t.db.create_trx().unwrap();
        q.pusher(&tr).push(b"a").await.unwrap();
        let error = q.pop(&tr).await.unwrap_err();
        assert_eq!(error.database().map(FdbError::code), Some(1036));
    });
}

#[test]
fn payloads_of_any_length_up_to_the_limit() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut session = t.session(&q);
        let largest = vec![0xab; MAX_PAYLOAD];
        session.push(&t.db, &[Vec::new(), vec![7; MAX_VALUE], largest.clone()]).await.unwrap();
        let mut payloads = Vec::new();
        while let taken = session.take(&t.db, k(3)).await.unwrap().got
            && !taken.is_empty()
        {
            payloads.extend(taken.into_iter().map(|item| item.payload));
        }
        assert!(payloads == [Vec::new(), vec![7; MAX_VALUE], largest], "payloads differ");
    });
}

#[test]
fn a_payload_over_the_limit_is_refused_and_nothing_is_written() {
    on_database(async |t| {
        let q = t.queue("q");
        let refused = |error: PushError| match error {
            PushError::PayloadTooLarge { len, limit } => {
                assert_eq!((len, limit), (MAX_PAYLOAD + 1, MAX_PAYLOAD));
            }
            other => panic!("{other}"),
        };
        let tr = t.db.create_trx().unwrap();
        let mut pusher = q.pusher(&tr);
        pusher.push(b"fits").await.unwrap();
        refused(pusher.push(&[0; MAX_PAYLOAD + 1]).await.unwrap_err());
        tr.commit().await.unwrap();
        assert_eq!(t.list(&q).await, ["fits"]);

        let payloads = [vec![1], vec![0; MAX_PAYLOAD + 1]];
        refused(t.session(&q).push(&t.db, &payloads).await.unwrap_err());
        assert_eq!(t.list(&q).await, ["fits"]);
    });
}

#[test]
fn a_group_over_the_transaction_limit_is_refused() {
    on_database(async |t| {
        let q = t.queue("q");
        let payloads = vec![vec![0; MAX_VALUE]; 101];
        match t.session(&q).push(&t.db, &payloads).await.unwrap_err() {
            PushError::TransactionTooLarge { items, bytes } => {
                assert_eq!((items, bytes), (101, 101 * MAX_VALUE));
            }
            other => panic!("{other}"),
        }
        assert_eq!(t.len(&q).await, 0);
    });
}

#[test]
fn more_pushes_than_user_versions_are_refused() {
    on_database(async |t| {
        let q = t.queue("q");
        let tr = t.db.create_trx().unwrap();
        let mut pusher = q.pusher(&tr);
        for _ in 0..MAX_PUSHES {
            pusher.push(b"").await.unwrap();
        }
        assert!(matches!(pusher.push(b"").await, Err(PushError::TooManyItems { limit: MAX_PUSHES })));
        let payloads = vec![b""; MAX_PUSHES + 1];
        let refused = t.session(&q).push(&t.db, &payloads).await;
        assert!(matches!(refused, Err(PushError::TooManyItems { limit: MAX_PUSHES })));
    });
}

#[test]
fn error_names_a_key_that_is_not_an_item() {
    on_database(async |t| {
        let q = t.queue("q");
        // (q, "val", "x"): a byte string where the stamp belongs.
        let foreign = [q.range().0.split_last().unwrap().1, b"\x01val\0\x01x\0"].concat();
        t.run(async |tr| {
            tr.set(&foreign, b"");
            Ok(())
        })
        .await;
        let tr = t.db.create_trx().unwrap();
        match q.pop(&tr).await {
            Err(QueueError::ForeignKey { key }) => assert_eq!(key, foreign.escape_ascii().to_string()),
            other => panic!("{other:?}"),
        }
    });
}
