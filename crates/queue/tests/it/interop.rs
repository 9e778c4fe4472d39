//! Side by side with the Erlang program: its bytes, written and read without our code.

use foundationdb::Transaction;
use foundationdb::options::MutationType;
use foundationdb::tuple::{Bytes, Subspace, Versionstamp};
use kvqueue_queue::Queue;

use crate::common::{TestDb, k, on_database, payloads};

/// What `push/2` of the Erlang program does, by way of the tuple layer.
pub(crate) fn erlang_push(t: &TestDb, tr: &Transaction, name: &[u8], next_tx_id: u16, value: &[u8]) {
    let space = Subspace::from_bytes(t.prefix.clone());
    let (name, val, npush) = (Bytes::from(name), Bytes::from(&b"val"[..]), Bytes::from(&b"npush"[..]));
    let stamp = Versionstamp::incomplete(next_tx_id);
    let key = space.pack_with_versionstamp(&(name.clone(), val, stamp));
    tr.atomic_op(&key, value, MutationType::SetVersionstampedKey);
    tr.atomic_op(&space.pack(&(name, npush)), &1_i64.to_le_bytes(), MutationType::Add);
}

/// The rows of a queue as stored, the prefix taken off.
async fn rows(t: &TestDb, q: &Queue) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (begin, end) = q.range();
    t.run(async |tr| {
        let rows = tr.get_range(&(begin.clone(), end.clone()).into(), 1, false).await?;
        let row = |key: &[u8], value: &[u8]| (key[t.prefix.len()..].to_vec(), value.to_vec());
        Ok(rows.iter().map(|kv| row(kv.key(), kv.value())).collect())
    })
    .await
}

#[test]
fn items_pushed_by_the_erlang_program_are_popped() {
    on_database(async |t| {
        for name in ["q", "with\0zero"] {
            let q = t.queue(name);
            let tr = t.db.create_trx().unwrap();
            erlang_push(t, &tr, name.as_bytes(), 0, b"one");
            erlang_push(t, &tr, name.as_bytes(), 1, b"two");
            tr.commit().await.unwrap();
            t.push(&q, &["three"]).await;
            assert_eq!(t.len(&q).await, 3);
            let popped = t.run(async |tr| q.pop_k(tr, k(9)).await).await;
            assert_eq!(payloads(&popped.items), ["one", "two", "three"]);
            assert_eq!(t.len(&q).await, 0);
        }
    });
}

#[test]
fn stored_rows_equal_those_of_the_erlang_program() {
    on_database(async |t| {
        let q = t.queue("q");
        let tr = t.db.create_trx().unwrap();
        let mut pusher = q.pusher(&tr);
        pusher.push(b"one").await.unwrap();
        pusher.push(b"two").await.unwrap();
        let stamp = tr.get_versionstamp();
        tr.commit().await.unwrap();
        let stamp = stamp.await.unwrap();

        let item = |user: &[u8]| [b"\x01q\0\x01val\0\x33", &stamp[..], user].concat();
        let npush = (b"\x01q\0\x01npush\0".to_vec(), vec![2, 0, 0, 0, 0, 0, 0, 0]);
        let first = (item(b"\0\0"), b"one".to_vec());
        let second = (item(b"\0\x01"), b"two".to_vec());
        assert_eq!(rows(t, &q).await, [npush.clone(), first, second.clone()]);

        t.run(async |tr| q.pop(tr).await).await;
        let npop = (b"\x01q\0\x01npop\0".to_vec(), vec![1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(rows(t, &q).await, [npop, npush, second]);
    });
}
