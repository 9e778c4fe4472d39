//! Pushes to the queues of the recipes: the keys and values that the recipes' own programs make.

use foundationdb::tuple::{Bytes, Element, Subspace, pack, unpack};
use futures::FutureExt;
use kvqueue_queue::{End, Kind, NewItem, Packing, Queue};

use crate::common::{TestDb, on_database, payloads};

/// The rows behind the subspace of a text, unpacked.
async fn rows(t: &TestDb, name: &str) -> Vec<(Vec<Element<'static>>, Vec<u8>)> {
    let begin = pack(&(name,));
    let row = |(key, value): (Vec<u8>, Vec<u8>)| {
        let elements: Vec<Element<'_>> = unpack(key.strip_prefix(begin.as_slice())?).unwrap();
        Some((elements.into_iter().map(Element::into_owned).collect(), value))
    };
    t.rows().await.into_iter().filter_map(row).collect()
}

/// The integers that a key begins with; the one element more has to be 20 bytes.
fn integers(elements: &[Element<'_>]) -> Vec<i64> {
    let (last, rest) = elements.split_last().unwrap();
    assert!(matches!(last, Element::Bytes(bytes) if bytes.len() == 20), "{last:?}");
    rest.iter().map(|element| element.as_i64().unwrap()).collect()
}

/// What the recipes' programs do.
async fn foreign(t: &TestDb, name: &str, key: &[i64], value: &[u8]) {
    let subspace = Subspace::from_bytes(t.prefix.clone()).subspace(&(name,));
    let mut elements: Vec<Element<'_>> = key.iter().map(|number| Element::Int(*number)).collect();
    elements.push(Element::Bytes(Bytes::from(vec![0xab; 20])));
    let key = subspace.pack(&elements);
    t.run(async |tr| {
        tr.set(&key, value);
        Ok(())
    })
    .await;
}

#[test]
fn recipe_indexes_begin_with_1_and_continue_from_the_last() {
    on_database(async |t| {
        let q = t.queue_of("q", Kind::Recipe(Packing::Raw));
        t.push(&q, &["a", "b"]).await;
        foreign(t, "q", &[7], b"c").await;
        t.push(&q, &["d"]).await;
        let found = rows(t, "q").await;
        let found: Vec<_> = found.iter().map(|(key, value)| (integers(key)[0], value.as_slice())).collect();
        assert_eq!(found, [(1, &b"a"[..]), (2, b"b"), (7, b"c"), (8, b"d")]);
        assert_eq!(t.list(&q).await, ["a", "b", "c", "d"]);
        // Two pushes at a time may get the same index, and both are there.
        let (mut one, mut other) = (t.session(&q), t.session(&q));
        let (one, other) = tokio::join!(one.push(&t.db, &["e"]), other.push(&t.db, &["e"]));
        assert_eq!(one.unwrap().attempts.conflicts + other.unwrap().attempts.conflicts, 0);
        assert_eq!(t.list(&q).await, ["a", "b", "c", "d", "e", "e"]);
        // An empty queue begins again.
        t.run(async |tr| q.pop_k(tr, crate::common::k(9)).await).await;
        t.push(&q, &["f"]).await;
        assert_eq!(integers(&rows(t, "q").await[0].0), [1]);
    });
}

#[test]
fn priority_counts_begin_with_0_and_continue_per_priority() {
    on_database(async |t| {
        let q = t.queue_of("q", Kind::Priority(End::Min, Packing::Tuple));
        let item = |payload: &'static str, priority| NewItem::new(payload).with_priority(priority);
        t.push_items(&q, &[item("a", 5), item("b", -3), item("c", 5)]).await;
        foreign(t, "q", &[5, 9], &pack(&("d",))).await;
        t.push_items(&q, &[item("e", 5), item("f", i64::MIN), item("g", 0)]).await;
        let found = rows(t, "q").await;
        let found: Vec<_> = found.iter().map(|(key, value)| (integers(key), value.clone())).collect();
        let row = |priority, count, text: &str| (vec![priority, count], pack(&(text,)));
        let expected = [
            row(i64::MIN, 0, "f"),
            row(-3, 0, "b"),
            row(0, 0, "g"),
            row(5, 0, "a"),
            row(5, 1, "c"),
            row(5, 9, "d"),
            row(5, 10, "e"),
        ];
        assert_eq!(found, expected);
        let ordered = |q: Queue| async move { payloads(&t.run(async |tr| q.list(tr).await).await) };
        assert_eq!(ordered(q).await, ["f", "b", "g", "a", "c", "d", "e"]);
        let max = t.queue_of("q", Kind::Priority(End::Max, Packing::Tuple));
        assert_eq!(ordered(max).await, ["e", "d", "c", "a", "g", "b", "f"]);
    });
}

#[test]
fn payloads_that_are_not_utf8_are_packed_as_bytes() {
    on_database(async |t| {
        let q = t.queue_of("q", Kind::Recipe(Packing::Tuple));
        t.session(&q).push(&t.db, &[&b"\xff\0"[..], b"text"]).await.unwrap();
        let values: Vec<_> = rows(t, "q").await.into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, [pack(&(Bytes::from(&b"\xff\0"[..]),)), pack(&("text",))]);
    });
}

#[test]
fn pushes_to_a_recipe_queue_wake_consumers() {
    on_database(async |t| {
        let q = t.queue_of("q", Kind::Priority(End::Max, Packing::Raw));
        let tr = t.db.create_trx().unwrap();
        let mut watch = q.watch(&tr);
        tr.commit().await.unwrap();
        assert!((&mut watch).now_or_never().is_none());
        t.push(&q, &["a"]).await;
        watch.await.unwrap();
        assert_eq!(t.len(&q).await, 1);
    });
}
