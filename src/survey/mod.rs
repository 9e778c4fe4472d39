//! What is in the queues: read from the database for the [board](crate::board), now and then, and often while somebody looks.
//!
//! | file | role |
//! |---|---|
//! | `surveyor` | what is known of the queues, and one round of looks |
//! | `pace` | when a queue is looked at next |
//! | `look` | one look |
//! | `space` | free space on the disk of an embedded database |
//!
//! A look reads counters, the header of each lease and the first item's key; of a recipe's queue, which has no counters, all keys. It
//! conflicts with nobody. What that costs is bounded by `pace`, whatever the queue holds.

mod look;
mod pace;
pub(crate) mod space;
mod surveyor;
#[cfg(test)]
mod tests;

use std::{convert::Infallible, sync::Arc};

use foundationdb::Database;
use tokio::{sync::watch, time::sleep_until};

use self::surveyor::Surveyor;
use crate::{board::Board, config::Config};

/// Looks at the configured queues, again and again.
pub(crate) async fn forever(
    db: Arc<Database>,
    board: Arc<Board>,
    mut config: watch::Receiver<Arc<Config>>,
) -> Infallible {
    let mut audience = board.audience.changed();
    let mut questions = board.audience.questions();
    let mut surveyor = Surveyor::new(db, board);
    surveyor.configure(&config.borrow_and_update().clone());
    loop {
        let asked = *questions.borrow_and_update();
        surveyor.round(asked).await;
        let next = surveyor.next();
        tokio::select! {
            () = sleep_until(next.into()) => {}
            pushed = surveyor.pushed() => surveyor.stir(&pushed),
            // Where the other end is gone, nothing comes from there any more.
            Ok(()) = config.changed() => surveyor.configure(&config.borrow_and_update().clone()),
            Ok(()) = audience.changed() => {}
            Ok(()) = questions.changed() => {}
        }
    }
}
