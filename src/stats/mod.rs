//! What is in the queues: read from the database for the [status](crate::status), now and then, and often while somebody looks.
//!
//! | file | role |
//! |---|---|
//! | `poller` | what is known of the queues, and one round of looks |
//! | `pace` | when a queue is looked at next |
//! | `sample` | one look |
//! | `space` | free space on the disk of an embedded database |
//!
//! A look reads counters, the header of each lease and the first item's key; of a recipe's queue, which has no counters, all keys. It
//! conflicts with nobody. What that costs is bounded by `pace`, whatever the queue holds.

mod pace;
mod poller;
mod sample;
pub(crate) mod space;
#[cfg(test)]
mod tests;

use std::{convert::Infallible, sync::Arc};

use foundationdb::Database;
use tokio::{sync::watch, time::sleep_until};

use self::poller::StatsPoller;
use crate::{config::Config, status::DaemonStatus};

/// Looks at the configured queues, again and again.
pub(crate) async fn forever(
    db: Arc<Database>,
    status: Arc<DaemonStatus>,
    mut config: watch::Receiver<Arc<Config>>,
) -> Infallible {
    let mut viewers = status.viewers.changed();
    let mut questions = status.viewers.questions();
    let mut poller = StatsPoller::new(db, status);
    poller.configure(&config.borrow_and_update().clone());
    loop {
        let asked = *questions.borrow_and_update();
        poller.round(asked).await;
        let next = poller.next();
        tokio::select! {
            () = sleep_until(next.into()) => {}
            pushed = poller.pushed() => poller.stir(&pushed),
            // Where the other end is gone, nothing comes from there any more.
            Ok(()) = config.changed() => poller.configure(&config.borrow_and_update().clone()),
            Ok(()) = viewers.changed() => {}
            Ok(()) = questions.changed() => {}
        }
    }
}
