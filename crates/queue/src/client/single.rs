//! One item, by its id: looking at it, deleting it, and making it ready, whatever it is doing.

use foundationdb::{Database, Transaction};

use crate::client::queue::Queue;
use crate::model::dead::DeadLetterEffect;
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::item_change::ItemChange;
use crate::model::item_effect::ItemEffect;
use crate::model::retry_error::RetryError;
use crate::model::session_id::SessionId;
use crate::model::view::{ItemState, ItemView};
use crate::model::waiting::Waiting;
use crate::ops::{delete, view, waiting};
use crate::run::exactly_once::{Act, Body, Marked};
use crate::run::retry::RetryPolicy;

impl Queue {
    /// The item of this id, whatever it is doing; `None` if the queue has none. A snapshot read: it conflicts with nothing.
    ///
    /// An item that is not running is found at once. To find a running one, the headers of all leases are read, and then the items of a lease that may have it.
    ///
    /// # Errors
    /// [`QueueError::TooMuchRunning`], if these have more than 100 MB.
    pub async fn view_item(&self, tr: &Transaction, id: &ItemId) -> Result<Option<ItemView>, QueueError> {
        let mut found = view::one(self.space(), tr, id).await?;
        view::tell_ages(tr, found.as_mut_slice()).await?;
        Ok(found)
    }

    /// What a ready item waits for; `None` if the item is not ready. It reads up to 10,000 rows of items, or 1 MB of them, and of keys, and conflicts
    /// with nothing.
    pub async fn waiting(&self, tr: &Transaction, id: &ItemId) -> Result<Option<Waiting>, QueueError> {
        waiting::waiting(self.space(), tr, id).await
    }

    /// Deletes an item that is ready, scheduled, retrying or a dead letter, with all its records, and
    /// finds out an unknown outcome. A running item stays.
    pub async fn delete_item(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        id: &ItemId,
    ) -> Result<ItemEffect, RetryError> {
        if self.purge_dead(db, policy, id).await? == DeadLetterEffect::Moved {
            return Ok(ItemEffect::Done);
        }
        let mut marked = Marked::new(self.space(), SessionId::new());
        let fate = marked.run(db, policy, Deletion { queue: self, id }).await?;
        // It is done, whatever becomes of the mark: sweepers clear what is left of it.
        let _ = marked.close(db, policy).await;
        Ok(fate)
    }

    /// Makes a scheduled or retrying item ready before its time, or retries a dead letter, as [`Queue::retry_item`] does.
    pub async fn requeue_item(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        id: &ItemId,
    ) -> Result<ItemEffect, RetryError> {
        Ok(match self.retry_item(db, policy, id).await? {
            ItemChange::Done(_) => ItemEffect::Done,
            ItemChange::UniqueTaken(_) | ItemChange::ExpiresFirst(_) => ItemEffect::Refused,
            ItemChange::Refused(ItemState::Running) => ItemEffect::Running,
            ItemChange::Refused(_) => ItemEffect::Ready,
            ItemChange::Gone => ItemEffect::Gone,
        })
    }
}

/// The transaction that deletes an item.
struct Deletion<'a> {
    queue: &'a Queue,
    id: &'a ItemId,
}

impl Body for Deletion<'_> {
    type Output = ItemEffect;

    async fn fill(&mut self, tr: &Transaction) -> Result<Act<ItemEffect>, QueueError> {
        delete::item(self.queue.space(), tr, self.id).await
    }
}
