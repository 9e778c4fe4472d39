//! The recipes' operations, each by its name there, and the bytes that they leave.

use foundationdb::future::FdbKeyValue as KeyValue;
use foundationdb::tuple::{Bytes, Element, Subspace, Versionstamp, pack, unpack};
use foundationdb::{FdbError, RangeOption};
use kvqueue_queue::recipes::{PriorityQueue, RANDOM, RecipeQueue};
use kvqueue_queue::{End, Item, ItemId, MAX_VALUE, Packing, QueueError};

use crate::common::{TestDb, k, on_database, payloads};

/// Random elements that sort as their numbers do.
fn random(number: u8) -> [u8; RANDOM] {
    [number; RANDOM]
}

fn queue(t: &TestDb, packing: Packing) -> RecipeQueue {
    RecipeQueue::new(&t.prefix, "Q", packing).unwrap()
}

fn priorities(t: &TestDb, packing: Packing) -> PriorityQueue {
    PriorityQueue::new(&t.prefix, "P", packing).unwrap()
}

/// The subspace of the text `name`, as the recipes' programs make it.
fn subspace(t: &TestDb, name: &str) -> Subspace {
    Subspace::from_bytes(t.prefix.clone()).subspace(&name)
}

/// What is stored in a subspace, with keys as tuples.
async fn stored(t: &TestDb, space: &Subspace) -> Vec<(Vec<Element<'static>>, Vec<u8>)> {
    t.run(async |tr| {
        let rows = tr.get_range(&RangeOption::from(space.range()), 1, true).await?;
        let row = |row: &KeyValue| {
            let key: Vec<Element<'_>> = space.unpack(row.key()).unwrap();
            (key.into_iter().map(Element::into_owned).collect(), row.value().to_vec())
        };
        Ok(rows.iter().map(row).collect())
    })
    .await
}

fn text(item: Option<Item>) -> Option<String> {
    item.map(|item| String::from_utf8(item.payload.to_vec()).unwrap())
}

#[test]
fn recipe_queue_enqueues_dequeues_and_reads_first_and_last() {
    on_database(async |t| {
        let q = queue(t, Packing::Raw);
        assert_eq!(t.run(async |tr| q.last_index(tr).await).await, 0);
        assert_eq!(t.run(async |tr| q.first_item(tr).await).await, None);
        for (number, value) in ["a", "b", "c"].into_iter().enumerate() {
            t.run(async |tr| q.enqueue(tr, value.as_bytes(), random(9 - number as u8)).await).await;
        }
        assert_eq!(t.run(async |tr| q.last_index(tr).await).await, 3);
        assert_eq!(text(t.run(async |tr| q.first_item(tr).await).await).as_deref(), Some("a"));
        assert_eq!(t.len(q.queue()).await, 3);
        for value in ["a", "b", "c"] {
            assert_eq!(text(t.run(async |tr| q.dequeue(tr).await).await).as_deref(), Some(value));
        }
        assert_eq!(t.run(async |tr| q.dequeue(tr).await).await, None);
        // Numbers begin again.
        t.run(async |tr| q.enqueue(tr, b"d", random(0)).await).await;
        assert_eq!(t.run(async |tr| q.last_index(tr).await).await, 1);
        assert_eq!(t.len(q.queue()).await, 1);
    });
}

#[test]
fn push_pop_and_peek_at_both_ends() {
    on_database(async |t| {
        let p = priorities(t, Packing::Raw);
        for (priority, value) in [(5, "e"), (-3, "a"), (5, "f"), (0, "c"), (-3, "b"), (300, "g"), (0, "d")] {
            t.run(async |tr| p.push(tr, priority, value.as_bytes(), random(7)).await).await;
        }
        assert_eq!(t.list(p.queue(End::Min)).await, ["a", "b", "c", "d", "e", "f", "g"]);
        assert_eq!(t.list(p.queue(End::Max)).await, ["g", "f", "e", "d", "c", "b", "a"]);
        assert_eq!(text(t.run(async |tr| p.peek_min(tr).await).await).as_deref(), Some("a"));
        assert_eq!(text(t.run(async |tr| p.peek_max(tr).await).await).as_deref(), Some("g"));
        assert_eq!(text(t.run(async |tr| p.pop_max(tr).await).await).as_deref(), Some("g"));
        assert_eq!(text(t.run(async |tr| p.pop_min(tr).await).await).as_deref(), Some("a"));
        assert_eq!(text(t.run(async |tr| p.pop_max(tr).await).await).as_deref(), Some("f"));
        assert_eq!(t.len(p.queue(End::Min)).await, 4);
        assert_eq!(t.len(p.queue(End::Max)).await, 4);
    });
}

#[test]
fn keys_and_values_equal_those_of_the_recipe_programs() {
    on_database(async |t| {
        let (raw, packed) =
            (queue(t, Packing::Raw), RecipeQueue::new(&t.prefix, "J", Packing::Tuple).unwrap());
        let p = priorities(t, Packing::Tuple);
        t.run(async |tr| {
            raw.enqueue(tr, b"one", random(9)).await?;
            raw.enqueue(tr, b"two", random(1)).await?;
            packed.enqueue(tr, b"one", random(2)).await?;
            packed.enqueue(tr, b"\xff", random(3)).await?;
            p.push(tr, 7, b"one", random(4)).await?;
            p.push(tr, 7, b"two", random(5)).await?;
            p.push(tr, -1, b"three", random(6)).await
        })
        .await;
        let int = |number| Element::Int(number);
        let bytes = |number: u8| Element::Bytes(Bytes::from(random(number).to_vec()));
        let rows = stored(t, &subspace(t, "Q")).await;
        assert_eq!(
            rows,
            [(vec![int(1), bytes(9)], b"one".to_vec()), (vec![int(2), bytes(1)], b"two".to_vec())]
        );
        let rows = stored(t, &subspace(t, "J")).await;
        assert_eq!(
            rows,
            [
                (vec![int(1), bytes(2)], pack(&("one",))),
                (vec![int(2), bytes(3)], pack(&(Bytes::from(&b"\xff"[..]),))),
            ]
        );
        let rows = stored(t, &subspace(t, "P")).await;
        assert_eq!(
            rows,
            [
                (vec![int(-1), int(0), bytes(6)], pack(&("three",))),
                (vec![int(7), int(0), bytes(4)], pack(&("one",))),
                (vec![int(7), int(1), bytes(5)], pack(&("two",))),
            ]
        );
    });
}

#[test]
fn pushes_at_the_same_time_do_not_conflict() {
    on_database(async |t| {
        let (q, p) = (queue(t, Packing::Raw), priorities(t, Packing::Raw));
        let transactions: Vec<_> = (0..10_u8).map(|n| (n, t.db.create_trx().unwrap())).collect();
        for (n, tr) in &transactions {
            q.enqueue(tr, &[b'0' + n], random(9 - n)).await.unwrap();
            p.push(tr, 3, &[b'0' + n], random(9 - n)).await.unwrap();
        }
        for (_, tr) in transactions {
            tr.commit().await.unwrap();
        }
        // All have the same number, and their random elements decide.
        let expected = ["9", "8", "7", "6", "5", "4", "3", "2", "1", "0"];
        assert_eq!(t.list(q.queue()).await, expected);
        assert_eq!(t.list(p.queue(End::Min)).await, expected);
        assert_eq!(t.run(async |tr| q.last_index(tr).await).await, 1);
    });
}

#[test]
fn dequeues_and_reads_of_one_item_conflict() {
    on_database(async |t| {
        let q = queue(t, Packing::Raw);
        t.run(async |tr| q.enqueue(tr, b"a", random(0)).await).await;
        let nearby = [t.prefix.as_slice(), b"nearby"].concat();
        let (one, two, look) =
            (t.db.create_trx().unwrap(), t.db.create_trx().unwrap(), t.db.create_trx().unwrap());
        assert!(q.dequeue(&one).await.unwrap().is_some());
        assert!(q.dequeue(&two).await.unwrap().is_some());
        assert!(q.first_item(&look).await.unwrap().is_some());
        look.set(&nearby, b"");
        one.commit().await.unwrap();
        assert_eq!(two.commit().await.unwrap_err().code(), 1020);
        assert_eq!(look.commit().await.unwrap_err().code(), 1020);
    });
}

/// Foreign programs may use other random parts, priorities and values. All are items, in key order.
#[test]
fn items_with_foreign_keys_and_values_are_read_in_order() {
    on_database(async |t| {
        let p = priorities(t, Packing::Tuple);
        let space = subspace(t, "P");
        t.run(async |tr| {
            tr.set(&space.pack(&(2, 0, 77)), &pack(&("integer random",)));
            tr.set(&space.pack(&(2, 1, Bytes::from(&b"short"[..]))), &pack(&(5,)));
            tr.set(&space.pack(&(2.5_f64, 0, Bytes::from(&b"x"[..]))), &pack(&("float",)));
            tr.set(&space.pack(&("text", 0)), b"\x02 no tuple");
            tr.set(&space.pack(&(Versionstamp::complete([1; 10], 2),)), &pack(&(Bytes::from(&b"\x00"[..]),)));
            tr.set(&[space.bytes(), b"\x15"].concat(), b"a broken key");
            Ok(())
        })
        .await;
        // Neither order nor counts are disturbed by them.
        let id = t.run(async |tr| p.push(tr, 2, b"ours", random(1)).await).await;
        let key: (i64, i64, Bytes<'_>) = unpack(id.as_bytes()).unwrap();
        assert_eq!((key.0, key.1), (2, 2));
        let sorted = ["\u{2} no tuple", "a broken key", "integer random", "5", "ours", "float", "\0"];
        assert_eq!(t.list(p.queue(End::Min)).await, sorted);
        let mut backwards = sorted;
        backwards.reverse();
        assert_eq!(t.list(p.queue(End::Max)).await, backwards);
        let items = t.run(async |tr| p.queue(End::Min).list(tr).await).await;
        assert!(items.iter().all(|item| item.id.to_string().parse() == Ok(item.id.clone())));
        // Who pushed them did not count; so they are counted.
        assert_eq!(t.len(p.queue(End::Max)).await, 7);
        let popped = t.run(async |tr| p.queue(End::Min).pop_k(tr, k(9)).await).await;
        assert_eq!(payloads(&popped.items), sorted);
        assert_eq!(stored(t, &space).await, []);
    });
}

#[test]
fn stray_keys_do_not_keep_items_from_being_enqueued() {
    on_database(async |t| {
        let q = queue(t, Packing::Raw);
        let space = subspace(t, "Q");
        t.run(async |tr| {
            tr.set(&space.pack(&("stray", 1)), b"before");
            tr.set(&space.pack(&(4,)), b"without random");
            tr.set(&space.pack(&(1e9_f64,)), b"behind");
            Ok(())
        })
        .await;
        t.run(async |tr| q.enqueue(tr, b"ours", random(0)).await).await;
        assert_eq!(t.run(async |tr| q.last_index(tr).await).await, 5);
        assert_eq!(t.list(q.queue()).await, ["before", "without random", "ours", "behind"]);
        // There is no number behind the last one, so nothing can be put there.
        let last = space.pack(&(i64::MAX,));
        t.run(async |tr| {
            tr.set(&last, b"last");
            Ok(())
        })
        .await;
        let tr = t.db.create_trx().unwrap();
        let refused = q.enqueue(&tr, b"never", random(0)).await.unwrap_err();
        assert!(matches!(refused, QueueError::ForeignKey { .. }), "{refused}");
    });
}

#[test]
fn popping_a_key_leaves_longer_keys_with_its_prefix() {
    on_database(async |t| {
        let (q, space) = (queue(t, Packing::Raw), subspace(t, "Q"));
        t.run(async |tr| {
            tr.set(&space.pack(&(5,)), b"short");
            tr.set(&space.pack(&(5, Bytes::from(&random(7)[..]))), b"long");
            Ok(())
        })
        .await;
        for (popped, left) in [("short", vec!["long"]), ("long", vec![])] {
            assert_eq!(payloads(&t.run(async |tr| q.queue().pop_k(tr, k(1)).await).await.items), [popped]);
            assert_eq!(t.list(q.queue()).await, left);
        }
    });
}

#[test]
fn counts_continue_over_pushes_of_one_transaction() {
    on_database(async |t| {
        let (q, p) = (queue(t, Packing::Raw), priorities(t, Packing::Raw));
        t.run(async |tr| {
            for n in 0..5_u8 {
                q.enqueue(tr, &[b'0' + n], random(9 - n)).await?;
                p.push(tr, 1, &[b'0' + n], random(9 - n)).await?;
            }
            Ok(())
        })
        .await;
        assert_eq!(t.list(q.queue()).await, ["0", "1", "2", "3", "4"]);
        assert_eq!(t.list(p.queue(End::Min)).await, ["0", "1", "2", "3", "4"]);
        assert_eq!((t.len(q.queue()).await, t.len(p.queue(End::Max)).await), (5, 5));
    });
}

#[test]
fn a_value_over_the_limit_is_refused() {
    on_database(async |t| {
        let (raw, packed) =
            (queue(t, Packing::Raw), RecipeQueue::new(&t.prefix, "J", Packing::Tuple).unwrap());
        let tr = t.db.create_trx().unwrap();
        let largest = vec![b'x'; MAX_VALUE];
        raw.enqueue(&tr, &largest, random(0)).await.unwrap();
        // The tuple's own two bytes count.
        let refused = packed.enqueue(&tr, &largest, random(0)).await.unwrap_err();
        assert!(
            matches!(refused, QueueError::ValueTooLarge { len, .. } if len == MAX_VALUE + 2),
            "{refused}"
        );
        assert_eq!(refused.database().map(FdbError::code), None);
        packed.enqueue(&tr, &largest[2..], random(0)).await.unwrap();
        tr.commit().await.unwrap();
    });
}

#[test]
fn deleting_clears_the_items_and_their_records() {
    on_database(async |t| {
        let (q, other) = (queue(t, Packing::Raw), RecipeQueue::new(&t.prefix, "Q2", Packing::Raw).unwrap());
        for queue in [&q, &other] {
            t.run(async |tr| queue.enqueue(tr, b"a", random(0)).await).await;
        }
        let nearby = t.queue("Q");
        assert_eq!(t.len(&nearby).await, 1);
        t.run(async |tr| {
            q.queue().delete(tr);
            Ok(())
        })
        .await;
        assert_eq!((t.list(q.queue()).await.len(), t.len(q.queue()).await, t.len(&nearby).await), (0, 0, 0));
        assert_eq!(t.list(other.queue()).await, ["a"]);
    });
}

#[test]
fn ids_of_both_recipes_print_and_parse() {
    on_database(async |t| {
        let q = queue(t, Packing::Raw);
        let id = t.run(async |tr| q.enqueue(tr, b"a", random(0xab)).await).await;
        let text = id.to_string();
        assert_eq!(text, format!("x150101{}00", "ab".repeat(RANDOM)));
        assert_eq!(text.parse::<ItemId>().unwrap(), id);
    });
}
