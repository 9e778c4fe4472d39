//! Commits that wait for the test's word.

use std::pin::Pin;

use fdb_embedded::{Fault, Gate, HeldCommit};
use foundationdb::{Database, FdbError, Transaction};
use futures::FutureExt;

use crate::common::{get, scratch};

/// A transaction that has read `a` and writes `key`.
async fn writer(db: &Database, key: &[u8]) -> Transaction {
    let tr = db.create_trx().unwrap();
    tr.get(b"a", false).await.unwrap();
    tr.set(key, b"");
    tr
}

/// A client that waits for the outcome of its commit: an error's code, or 0.
type Client = Pin<Box<dyn Future<Output = i32>>>;

/// Commits, as far as the gate.
fn at_the_gate(gate: &Gate, tr: Transaction) -> (Client, HeldCommit) {
    let mut client: Client = Box::pin(async { tr.commit().await.map_or_else(|error| error.code(), |_| 0) });
    assert!((&mut client).now_or_never().is_none(), "it waits");
    (client, gate.arrived().pop().expect("it has come"))
}

#[tokio::test]
async fn commits_wait_at_a_gate_for_the_outcome_it_sets() {
    let scratch = scratch();
    let Some(url) = scratch.place.embedded_url() else { return };
    let gate = Gate::close(&url).unwrap();
    // The second lets the first wait, and makes it conflict.
    let (first, of_first) = at_the_gate(&gate, writer(&scratch.db, b"b").await);
    let (second, mut of_second) = at_the_gate(&gate, writer(&scratch.db, b"a").await);
    assert!(get(&scratch.db, b"a").unwrap().is_none());
    of_second.add_stamped_key(b"log/..........".to_vec(), 4, b"second".to_vec());
    let version = of_second.pass(Fault::None).unwrap();
    assert_eq!(of_first.pass(Fault::None).unwrap_err().raw(), 1020);
    assert_eq!((first.await, second.await), (1020, 0));
    let key = [b"log/".as_slice(), &version.to_be_bytes(), &[0, 0]].concat();
    assert_eq!(get(&scratch.db, &key).unwrap().as_deref(), Some(&b"second"[..]));

    for (fault, code, stored) in [
        (Fault::UnknownCommitted, 1021, true),
        (Fault::UnknownNotCommitted, 1021, false),
        (Fault::TooOld, 1007, false),
    ] {
        let key = format!("{fault:?}");
        let (client, held) = at_the_gate(&gate, writer(&scratch.db, key.as_bytes()).await);
        assert_eq!(held.pass(fault).unwrap_err().raw(), code);
        assert_eq!(client.await, code);
        assert_eq!(get(&scratch.db, key.as_bytes()).unwrap().is_some(), stored);
    }
    let (client, mut late) = at_the_gate(&gate, writer(&scratch.db, b"late").await);
    late.time_out();
    assert_eq!(client.await, 1031);
    assert!(get(&scratch.db, b"late").unwrap().is_none());
    late.pass(Fault::None).unwrap();
    assert!(get(&scratch.db, b"late").unwrap().is_some());
    let (client, lost) = at_the_gate(&gate, writer(&scratch.db, b"lost").await);
    drop(lost);
    assert_eq!(client.await, 1021);

    // Who waits when the gate opens goes on.
    let tr = writer(&scratch.db, b"c").await;
    let mut client = Box::pin(tr.commit());
    assert!((&mut client).now_or_never().is_none());
    drop(gate);
    client.await.unwrap();
}

#[tokio::test]
async fn after_a_version_jump_open_transactions_are_too_old() {
    let scratch = scratch();
    let Some(url) = scratch.place.embedded_url() else { return };
    let gate = Gate::close(&url).unwrap();
    let (client, held) = at_the_gate(&gate, writer(&scratch.db, b"b").await);
    let before = held.read_version();
    gate.advance(3_600_000_000);
    assert_eq!(held.pass(Fault::None).unwrap_err().raw(), 1007);
    assert_eq!(client.await, 1007);
    // Who is to wait before it tries again waits for the test.
    let mut again = Box::pin(scratch.db.create_trx().unwrap().on_error(FdbError::from_code(1007)));
    assert!((&mut again).now_or_never().is_none());
    assert_eq!(gate.backoffs().len(), 1);
    let tr = again.await.unwrap();
    assert!(tr.get_read_version().await.unwrap() >= before + 3_600_000_000);
}
