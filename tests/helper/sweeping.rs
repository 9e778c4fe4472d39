//! Programs for the tests of `tests/it/sweeping.rs`.

use std::{num::NonZeroUsize, time::Duration};

use foundationdb::tuple::{Bytes, pack};

use kvqueue_queue::{Approach, FetchOptions, Queue, Session};

use crate::support::database;

/// Takes all items of the queue `q` on a lease that runs out at once, and dies.
pub(crate) fn die_with_items() {
    let (database, prefix) = database();
    let store = kvqueue::database::Store::open(&database).unwrap();
    let queue = Queue::new(prefix.as_bytes(), b"q").unwrap();
    let mut session = Session::new(queue);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let k = NonZeroUsize::new(100).unwrap();
    let mut approach = Approach::Front;
    let mut take = FetchOptions::new(k, Duration::from_micros(1), &mut approach);
    let leased = runtime.block_on(session.fetch(&store.db, &mut take)).unwrap();
    assert!(leased.got.is_some());
    std::process::abort();
}

/// Leaves a lease in the queue `q` that has run out, and whose only item is not there.
pub(crate) fn break_lease() {
    let (database, prefix) = database();
    let store = kvqueue::database::Store::open(&database).unwrap();
    let records = pack(&(Bytes::from(&b"q"[..]), Bytes::from(&b"lease"[..])));
    // A session, and the number of its attempt.
    let key = [prefix.as_bytes(), &records, b"\x30", &[0; 16], b"\x15\x01"].concat();
    // Format, deadline and length; an item, in a piece; not settled.
    let header = [&[1][..], &[0; 16], &1_u32.to_le_bytes(), &1_u32.to_le_bytes(), &[0]].concat();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let tr = store.db.create_trx().unwrap();
        tr.set(&key, &header);
        tr.commit().await.unwrap();
    });
}

/// Prints whether a sweeper of the queue `q` is on duty.
pub(crate) fn duty() {
    let (database, prefix) = database();
    let store = kvqueue::database::Store::open(&database).unwrap();
    let record = pack(&(Bytes::from(&b"q"[..]), Bytes::from(&b"duty"[..])));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let duty = runtime.block_on(async {
        let tr = store.db.create_trx().unwrap();
        tr.get(&[prefix.as_bytes(), &record].concat(), true).await.unwrap()
    });
    println!("{}", duty.is_some());
}
