//! Records that cannot be read: they stop nobody, and what is known of them is kept.

use fdb_embedded::Fault::{Conflict, None as Fine};
use fdb_embedded::Faults;
use kvqueue_queue::{
    Approach, Failure, FetchError, ItemChange, ItemOutcome, ItemState, Movable, Mover, NewItem, Queue,
    QueueError, RetryPolicy, Session, Staged, SweepRules, from_millis,
};

use crate::common::{SHORT, TestDb, fetch_options, id, k, on_database, payloads, record, rules, sweeper};

/// Takes up to three items, for good or on a lease.
async fn take(t: &TestDb, q: &Queue, on_lease: bool, mut approach: Approach) -> Vec<String> {
    let mut take = fetch_options(3, 30_000_000, &mut approach, false);
    let mut session = t.session(q);
    if on_lease {
        let lease = session.fetch(&t.db, &mut take).await.unwrap().got.unwrap();
        payloads(lease.items())
    } else {
        payloads(&session.take_with(&t.db, &mut take).await.unwrap().got)
    }
}

#[test]
fn an_unreadable_item_becomes_a_dead_letter_and_the_take_continues() {
    on_database(async |t| {
        for on_lease in [false, true] {
            for (damage, kind) in ["chunk", "meta"].into_iter().enumerate() {
                let q = t.queue(format!("{on_lease} {kind}"));
                t.store(&q, &id(1), "long", "key 1").await;
                t.store(&q, &id(2), "long", "key 2").await;
                let chunk = [id(1).as_bytes(), b"\x15\x01"].concat();
                t.run(async |tr| {
                    match damage {
                        0 => tr.clear(&record(&q, "chunk", &chunk)),
                        _ => tr.set(&record(&q, "meta", id(1).as_bytes()), b"\x01garbage"),
                    }
                    Ok(())
                })
                .await;
                let approach =
                    if on_lease { Approach::Staged(Default::default()) } else { Approach::default() };
                let found = take(t, &q, on_lease, approach).await;
                assert_eq!(found.iter().map(String::len).collect::<Vec<_>>(), [100_004], "{kind}");
                assert_eq!((t.len(&q).await, t.counter(&q, "ndead").await), (0, 1));
                let letters = t.run(async |tr| q.dead_list(tr, None, k(9)).await).await;
                assert_eq!((&letters[0].id, letters.len()), (&id(1), 1));
                assert!(letters[0].reason.contains(kind), "{}", letters[0].reason);
                // Of a side record that says nothing its bytes are kept.
                let kept = t.records(&q, "dead").await[0].1.windows(7).any(|bytes| bytes == b"garbage");
                assert_eq!(kept, kind == "meta");
                q.purge_dead(&t.db, &RetryPolicy::default(), &id(1)).await.unwrap();
                assert!(t.records(&q, "body").await.is_empty());
                assert_eq!(t.records(&q, "chunk").await.len(), usize::from(on_lease));
            }
        }
    });
}

#[test]
fn an_item_with_an_unreadable_side_record_is_retried_with_it() {
    on_database(async |t| {
        let q = t.queue("q");
        t.store(&q, &id(1), "long", "key").await;
        let key = record(&q, "meta", id(1).as_bytes());
        let readable = t.records(&q, "meta").await[0].1.clone();
        let garbled = [b"\x01garbage".as_slice(), &readable].concat();
        t.run(async |tr| {
            tr.set(&key, &garbled);
            Ok(())
        })
        .await;
        let retry = async || q.retry_dead(&t.db, &RetryPolicy::default(), &id(1)).await.unwrap();
        let none = t.session(&q).take(&t.db, k(1)).await.unwrap();
        assert_eq!((none.got.len(), t.counter(&q, "ndead").await), (0, 1));
        retry().await;
        assert_eq!(t.records(&q, "meta").await[0].1, garbled);
        // Nobody gets the beginning of its payload for the whole.
        assert!(t.session(&q).take(&t.db, k(1)).await.unwrap().got.is_empty());
        retry().await;
        t.run(async |tr| {
            tr.set(&key, &readable);
            Ok(())
        })
        .await;
        assert_eq!(t.session(&q).take(&t.db, k(1)).await.unwrap().got[0].payload.len(), 100_004);
        for kind in ["chunk", "unique", "meta", "dead", "body"] {
            assert!(t.records(&q, kind).await.is_empty(), "{kind}");
        }
    });
}

#[test]
fn a_served_unreadable_item_becomes_a_dead_letter() {
    on_database(async |t| {
        for on_lease in [false, true] {
            let q = t.queue(format!("{on_lease}"));
            for n in 1..=3 {
                t.store(&q, &id(n), &"x".repeat(n.into()), &n.to_string()).await;
            }
            let ids = async |session: &mut Session, n| {
                let approach = &mut Approach::Staged(Staged::default());
                let length = if on_lease { 30_000_000 } else { 0 };
                let mut take = fetch_options(n, length, approach, false);
                let items = match on_lease {
                    true => session.fetch(&t.db, &mut take).await?.got.unwrap().items().to_vec(),
                    false => session.take_with(&t.db, &mut take).await?.got,
                };
                Ok::<_, FetchError>(items.into_iter().map(|item| item.id).collect::<Vec<_>>())
            };
            // It asks, and gets no further.
            if !t.install(Faults::script([Conflict, Fine, Conflict, Conflict])) {
                return;
            }
            let mut session = t.session(&q).with_policy(RetryPolicy { max_attempts: Some(2), timeout: None });
            ids(&mut session, 2).await.unwrap_err();
            t.end_faults();
            t.run(async |tr| {
                tr.clear(&record(&q, "chunk", &[id(1).as_bytes(), b"\x15\x01"].concat()));
                Ok(())
            })
            .await;
            // Who serves it looks at its own items only.
            assert_eq!(ids(&mut t.session(&q), 1).await.unwrap(), [id(3)]);
            assert_eq!(t.records(&q, "lease").await.len(), 1 + usize::from(on_lease));
            let mut session = session.with_policy(RetryPolicy::default());
            assert_eq!(ids(&mut session, 2).await.unwrap(), [id(2)], "{on_lease}");
            assert_eq!((t.len(&q).await, t.counter(&q, "ndead").await), (0, 1));
        }
    });
}

#[test]
fn a_pop_of_an_unreadable_item_writes_nothing() {
    on_database(async |t| {
        let q = t.queue("q");
        t.store(&q, &id(1), "long", "key").await;
        t.run(async |tr| {
            tr.clear(&record(&q, "chunk", &[id(1).as_bytes(), b"\x15\x01"].concat()));
            Ok(())
        })
        .await;
        let before = t.rows().await;
        let tr = t.db.create_trx().unwrap();
        let refused = q.pop_k(&tr, k(2)).await.unwrap_err();
        assert!(matches!(&refused, QueueError::UnreadableItem { id: which, .. } if *which == id(1)));
        tr.commit().await.unwrap();
        assert_eq!(t.rows().await, before);
    });
}

#[test]
fn leases_that_cannot_be_returned_do_not_hide_others() {
    on_database(async |t| {
        let q = t.queue("q");
        // More than a look names, all before others: an item each, in a piece that is not there.
        let header =
            [b"\x01".as_slice(), &[0; 16], &1_u32.to_le_bytes(), &1_u32.to_le_bytes(), &[0]].concat();
        t.run(async |tr| {
            for number in 1..=130 {
                let key = [b"\x30".as_slice(), &[0; 16], &[0x15, number]].concat();
                tr.set(&record(&q, "lease", &key), &header);
            }
            Ok(())
        })
        .await;
        t.push(&q, &["a"]).await;
        let lease = t.lease_for(&q, 1, SHORT).await.unwrap();
        t.until_past(lease.deadline()).await;
        let mut sweeper = sweeper(&q);
        let swept = sweeper.sweep(&t.db, &|| from_millis(0), &rules()).await.unwrap();
        assert_eq!((swept.moved.returned, t.list(&q).await), (1, vec!["a".to_owned()]));
        assert!(swept.trouble.is_some());
        // They are passed over for a while, and meanwhile the sweeper does its work as ever, also when it is woken for it.
        t.put_aside(&q, &[("b", 5)]).await;
        swept.watch.await.unwrap();
        let again = t.sweep(&mut sweeper, 10, &rules()).await;
        assert_eq!(again.moved.promoted, 1);
    });
}

#[test]
fn an_unreadable_item_does_not_block_others_of_its_expired_lease() {
    on_database(async |t| {
        let q = t.queue("q");
        let marked = NewItem::new("b").with_attribute("mark", "");
        // Long enough for pieces of their own.
        let first = NewItem::new("a").with_attribute("long", "x".repeat(600));
        t.push_items(&q, &[first, marked, NewItem::new("c")]).await;
        t.lease_for(&q, 3, SHORT).await.unwrap();
        let (key, body) = t.records(&q, "held").await.remove(0);
        let at = body.windows(4).position(|bytes| bytes == b"mark").unwrap();
        let damaged = [&body[..at], b"\xff", &body[at + 1..]].concat();
        t.run(async |tr| {
            tr.set(&record(&q, "held", &key), &damaged);
            Ok(())
        })
        .await;
        assert_eq!(t.sweep_leases(&q, 1, &rules()).await.returned, 3);
        assert_eq!(take(t, &q, false, Approach::default()).await, ["a"]);
        assert_eq!(take(t, &q, false, Approach::default()).await, ["c"]);
        assert_eq!((t.len(&q).await, t.counter(&q, "ndead").await), (0, 1));
    });
}

#[test]
fn unreadable_scheduled_items_do_not_block_others() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put_aside(&q, &[("a", 5), ("b", 6)]).await;
        t.run(async |tr| {
            // No value, no id, and no time.
            tr.set(&record(&q, "later", &[b"\x15\x01", id(7).as_bytes()].concat()), b"");
            tr.set(&record(&q, "later", b"\x15\x05"), b"");
            tr.set(&record(&q, "later", b"\x01time\0"), b"");
            Ok(())
        })
        .await;
        let swept = sweeper(&q).sweep(&t.db, &|| from_millis(5), &rules()).await.unwrap();
        assert_eq!((swept.moved.promoted, swept.trouble.is_some()), (1, true));
        assert_eq!(t.list(&q).await, ["a"]);
        assert_eq!(t.records(&q, "later").await.len(), 4);
    });
}

#[test]
fn a_stray_key_behind_all_due_times_does_not_keep_a_sweeper_busy() {
    on_database(async |t| {
        let q = t.queue("q");
        t.run(async |tr| {
            tr.set(&record(&q, "later", b"\x30"), b"");
            Ok(())
        })
        .await;
        let swept = sweeper(&q).sweep(&t.db, &|| from_millis(5), &SweepRules::default()).await.unwrap();
        assert!(swept.trouble.is_none() && !swept.next.is_zero(), "{swept:?}");
    });
}

#[test]
fn an_unreadable_item_frees_its_unique_key_when_dead_or_purged() {
    on_database(async |t| {
        for (all, more) in [(false, 0), (true, 0), (true, 5_000)] {
            let q = t.queue(format!("{all} {more}"));
            // Keys of others, more than one reply of the database has.
            for page in 0..more / 1_000 {
                let items: Vec<_> =
                    (0..1_000).map(|n| NewItem::new("x").with_unique(format!("a {page} {n}"))).collect();
                t.push_items(&q, &items).await;
            }
            t.store(&q, &id(1), "long", "key").await;
            let garble = async || {
                t.run(async |tr| {
                    tr.set(&record(&q, "meta", id(1).as_bytes()), b"\x01garbage");
                    Ok(())
                })
                .await;
                drop(t.session(&q).take(&t.db, k(1)).await.unwrap());
                assert_eq!(t.counter(&q, "ndead").await, 1);
            };
            garble().await;
            let policy = RetryPolicy::default();
            let (before, purged) = (t.records(&q, "unique").await.len(), async || match all {
                true => q.purge_all_dead(&t.db, &policy, None).await.unwrap().moved,
                false => usize::from(
                    q.purge_dead(&t.db, &policy, &id(1)).await.unwrap() == ItemChange::Done(ItemState::Dead),
                ),
            });
            assert_eq!(purged().await, 1);
            assert_eq!(t.records(&q, "unique").await.len(), before - 1);
            assert_eq!(t.counter(&q, "ndead").await, 0);
            // A dead letter that was not purged does not keep its key either, and its purge does not free the key of the item that has it now.
            t.store(&q, &id(1), "long", "key").await;
            garble().await;
            let next = NewItem::new("next").with_unique("key");
            assert_eq!(t.push_items(&q, std::slice::from_ref(&next)).await.items, 1);
            assert_eq!(purged().await, 1);
            assert_eq!(t.push_items(&q, &[next]).await.items, 0);
        }
    });
}

#[test]
fn a_missing_payload_does_not_break_pages_of_delayed_items_or_dead_letters() {
    on_database(async |t| {
        let q = t.queue("q");
        let dead = ItemOutcome::Dead(Failure::new(from_millis(1), 1, "no"));
        t.push(&q, &["a", "b", "c"]).await;
        let mut lease = t.lease(&q, 3).await.unwrap();
        t.acknowledge(&mut lease, &dead).await;
        t.put_aside(&q, &[("a", 7), ("b", 8), ("c", 9)]).await;
        let letters = t.run(async |tr| q.dead_list(tr, None, k(9)).await).await;
        let delayed = t.run(async |tr| q.scheduled_after(tr, None, k(9)).await).await;
        t.run(async |tr| {
            for id in [&letters[1].id, &delayed[1].id] {
                tr.clear(&record(&q, "body", id.as_bytes()));
            }
            Ok(())
        })
        .await;
        let found = t.run(async |tr| q.dead_after(tr, None, k(9)).await).await;
        assert_eq!(
            found.iter().map(|letter| letter.payload.is_some()).collect::<Vec<_>>(),
            [true, false, true]
        );
        assert!(found[1].unreadable.as_ref().is_some_and(|why| why.contains("body")), "{found:?}");
        assert_eq!((found[1].id.clone(), found[1].reason.as_str()), (letters[1].id.clone(), "no"));
        let one = t.run(async |tr| q.dead_get(tr, &letters[1].id).await).await.unwrap();
        assert_eq!(one, found[1]);
        let found = t.run(async |tr| q.scheduled_after(tr, None, k(9)).await).await;
        assert_eq!(found.iter().map(|delayed| delayed.due).collect::<Vec<_>>(), [7, 8, 9].map(from_millis));
        assert!(found[0].item.is_ok() && found[2].item.is_ok());
        assert!(found[1].item.as_ref().is_err_and(|why| why.contains("body")), "{found:?}");
        // The next page begins behind it.
        let behind =
            t.run(async |tr| q.scheduled_after(tr, Some((from_millis(8), &found[1].id)), k(9)).await).await;
        assert_eq!(behind, found[2..]);
        // A move leaves it where it is.
        let (to, policy) = (t.queue("to"), RetryPolicy::default());
        let mut mover = Mover::new(q, to.clone(), Movable::Dead).unwrap();
        let moved = mover.page(&t.db, &policy, k(9)).await.unwrap().unwrap();
        assert_eq!((moved.moved, moved.unreadable), (2, 1));
        assert_eq!(t.list(&to).await, ["a", "c"]);
    });
}
