//! Programs for the tests of schedules.

use std::time::{Duration, SystemTime};

use kvqueue::database::Store;
use kvqueue_queue::{
    NewItem, Queue,
    schedule::{Calendar, Schedule},
};

use crate::support::database;

/// Makes a schedule `theirs` of the queue `q` that belongs to a configuration.
pub(crate) fn configured() {
    let (database, prefix) = database();
    let store = Store::open(&database).unwrap();
    let queue = Queue::new(prefix.as_bytes(), b"q").unwrap();
    let every = Calendar::every(Duration::from_hours(24 * 365)).unwrap();
    let mut schedule = Schedule::new("theirs", every, NewItem::new("x"));
    schedule.owner = Some("/etc/kvqueue/kvqueue.toml".to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let tr = store.db.create_trx().unwrap();
        queue.put_schedule(&tr, &schedule, SystemTime::now()).await.unwrap();
        tr.commit().await.unwrap();
    });
}
