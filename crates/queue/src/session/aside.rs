//! What a take does about an item that cannot be read.

use foundationdb::{Database, Transaction};

use super::Session;
use crate::error::QueueError;
use crate::id::ItemId;
use crate::ops::unreadable::bury;
use crate::retry::{Retry, RetryError, run};

/// The most unreadable items that one take puts aside.
const MAX_ASIDE: usize = 1_000;

impl Session {
    /// The transaction of a take's next attempt after its body failed. An item that cannot be read is made a dead letter first, so that
    /// the next attempt does not meet it; `aside` are those that were. One that the take was served with is given back before.
    pub(super) async fn after_take(
        &mut self,
        db: &Database,
        retry: &mut Retry,
        tr: Transaction,
        error: QueueError,
        aside: &mut Vec<ItemId>,
    ) -> Result<Transaction, RetryError> {
        let id = match &error {
            QueueError::UnreadableItem { id, .. } if !aside.contains(id) && aside.len() < MAX_ASIDE => {
                id.clone()
            }
            _ => return retry.after_body(tr, error).await,
        };
        self.give_up(db).await;
        let (space, item) = (self.queue.space(), &id);
        run(db, &self.policy, |tr| async move {
            let buried = bury(space, &tr, item).await;
            (tr, buried)
        })
        .await?;
        aside.push(id);
        retry.anew(db)
    }
}
