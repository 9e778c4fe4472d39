//! Programs for the tests of `tests/it/dead.rs`.

use kvqueue_queue::{
    Approach, Failure, FetchOptions, ItemOutcome, NewItem, PushOptions, Queue, RetryPolicy, Session,
    from_millis,
};

use std::time::Duration;

use crate::support::database;

/// Pushes a few items to the queue `q` and lets them die. Items without a reason stay.
pub(crate) fn buries() {
    let (database, prefix) = database();
    let store = kvqueue::database::Store::open(&database).unwrap();
    let queue = Queue::new(prefix.as_bytes(), b"q").unwrap();
    let mut session = Session::new(queue);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(bury(&store.db, &mut session));
    std::process::exit(0);
}

async fn bury(db: &foundationdb::Database, session: &mut Session) {
    let item = NewItem::new("first").with_attribute("to", "ann").with_unique(b"order 1".to_vec());
    let items = [item, NewItem::new(b"\xff".as_slice()), NewItem::new("third")];
    session.push_items(db, &items, &PushOptions::default()).await.unwrap();
    for reason in ["no such address", "it is\nno text", "gone"] {
        let k = std::num::NonZeroUsize::MIN;
        let mut approach = Approach::Front;
        let mut take = FetchOptions::new(k, Duration::from_secs(30), &mut approach);
        let mut lease = session.fetch(db, &mut take).await.unwrap().got.unwrap();
        let dead = ItemOutcome::Dead(Failure::new(from_millis(1_800_000_000_010), 1, reason));
        lease.acknowledge(db, &RetryPolicy::default(), &[(0, dead)]).await.unwrap();
    }
}

/// Makes the record of the first letter of `q` one that nobody can read.
pub(crate) fn damages() {
    damage(b"\x01q\0\x01dead\0", 0);
}

/// Makes the side record of the second ready item of `q` one that nobody can read.
pub(crate) fn damage_ready() {
    damage(b"\x01q\0\x01meta\0", 1);
}

fn damage(records: &[u8], number: usize) {
    let (database, prefix) = database();
    let store = kvqueue::database::Store::open(&database).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let tr = store.db.create_trx().unwrap();
        let [begin, end] = [b"\0", b"\xff"].map(|end| [prefix.as_bytes(), records, end].concat());
        let option = foundationdb::RangeOption { limit: Some(number + 1), ..(begin, end).into() };
        let rows = tr.get_range(&option, 1, false).await.unwrap();
        tr.set(rows[number].key(), b"\x01garbage");
        tr.commit().await.unwrap();
    });
    std::process::exit(0);
}
