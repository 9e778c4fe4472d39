//! A queue that nothing may move in, as during a migration. No command makes one.

use kvqueue::{
    database::Store,
    queue::{Pause, Queue},
};

use super::{Database, database_of_helper, helper};

/// Freezes the queue `q`.
pub(crate) fn freeze(db: &Database) {
    assert!(helper(db, "support::frozen::helper_freeze").output().unwrap().status.success());
}

#[test]
#[ignore = "a helper, run by other tests"]
fn helper_freeze() {
    let Some((database, prefix)) = database_of_helper() else { return };
    let store = Store::open(&database).unwrap();
    let queue = Queue::new(prefix.as_bytes(), b"q").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let tr = store.db.create_trx().unwrap();
        let pause = Pause { at: 1_800_000_000_000, frozen: true, reason: "migrating".to_owned() };
        queue.pause(&tr, &pause);
        tr.commit().await.unwrap();
    });
}
