//! How many items the queues have: the stats poller counts them in the database, for the
//! [status](crate::status).
//!
//! Reading a queue reads its counters, of a keyed queue also that of blocked keys, the header of each lease and the first item's key; of a queue in a
//! recipe's layout, which has no counters, all keys. It conflicts with no other transaction. `schedule`
//! bounds its cost, however many items the queue has.

pub(crate) mod disk_space;
mod poller;
mod schedule;
#[cfg(test)]
mod tests;

use std::{convert::Infallible, sync::Arc, time::Instant};

use foundationdb::Database;
use tokio::{sync::watch, time::sleep_until};

use self::poller::StatsPoller;
use crate::{config::Config, status::DaemonStatus};

/// Reads the configured queues, again and again.
pub(crate) async fn forever(
    db: Arc<Database>,
    status: Arc<DaemonStatus>,
    mut config: watch::Receiver<Arc<Config>>,
) -> Infallible {
    let mut viewers = status.viewers.count_changes();
    let mut requests = status.viewers.requests();
    let mut poller = StatsPoller::new(db, status);
    poller.configure(&config.borrow_and_update().clone());
    loop {
        poller.requested(*requests.borrow_and_update());
        let next = poller.next_round();
        if next <= Instant::now() {
            poller.round().await;
            continue;
        }
        tokio::select! {
            () = sleep_until(next.into()) => {}
            // If the other end is dropped, no more requests come.
            Ok(()) = config.changed() => poller.configure(&config.borrow_and_update().clone()),
            Ok(()) = viewers.changed() => {}
            Ok(()) = requests.changed() => {}
        }
    }
}
