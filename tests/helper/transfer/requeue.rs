//! Programs for the tests of `tests/it/transfer/requeue.rs`.

use kvqueue_queue::{Approach, FetchOptions, Queue, Session};

use std::time::Duration;

use crate::support::database;

/// Takes an item on a lease that runs out at once, and dies; or, with a long one, lives on in the database.
pub(crate) fn take_and_die() {
    let (database, prefix) = database();
    let store = kvqueue::database::Store::open(&database).unwrap();
    let queue = Queue::new(prefix.as_bytes(), b"q").unwrap();
    let mut session = Session::new(queue);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    // Versions jump ahead by some seconds whenever another process opens the database.
    for length in [1, 3_000_000_000] {
        let k = std::num::NonZeroUsize::MIN;
        let mut approach = Approach::Front;
        let mut take = FetchOptions::new(k, Duration::from_micros(length), &mut approach);
        let lease = runtime.block_on(session.fetch(&store.db, &mut take)).unwrap().got;
        assert!(lease.is_some());
    }
    std::process::exit(0);
}
