//! Putting aside items that cannot be read.

use foundationdb::Database;
use mutant::bound;

use super::Session;
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::ops::unreadable::bury;
use crate::run::retry::run;

/// The most unreadable items that one fetch puts aside.
pub(super) fn max_aside() -> usize {
    bound("items-aside", 1_000)
}

impl Session {
    /// Makes an item that cannot be read a dead letter, so that the next attempt of a fetch does not meet it.
    pub(super) async fn put_aside(&mut self, db: &Database, id: &ItemId) -> Result<(), QueueError> {
        // Another session may have served this one with the item.
        self.give_up(db).await;
        let space = self.queue.space();
        let buried = run(db, &self.policy, |tr| async move {
            let buried = bury(space, &tr, id).await;
            (tr, buried)
        });
        buried.await.map(|_| ()).map_err(|error| error.error)
    }
}
