//! Dead letters in a transaction of the caller's. `whole` has the operations that run their own transactions.

mod whole;

use std::num::NonZeroUsize;

use foundationdb::Transaction;

use crate::client::queue::Queue;
use crate::model::dead::DeadLetter;
use crate::model::error::{DeadLetterError, QueueError};
use crate::model::id::ItemId;
use crate::ops;
use crate::ops::dead_page::{DeadLetterAction, Which, page};

impl Queue {
    /// Dead letters without their payloads, in the order of their ids: the first `limit`, or those behind `after`. A snapshot read: it
    /// conflicts with nothing. If a letter's record cannot be read, `reason` tells so.
    pub async fn dead_list(
        &self,
        tr: &Transaction,
        after: Option<&ItemId>,
        limit: NonZeroUsize,
    ) -> Result<Vec<DeadLetter>, QueueError> {
        ops::dead::list(self.space(), tr, after, limit).await
    }

    /// As [`Queue::dead_list`], with payloads. It stops at [`MAX_TAKE_BYTES`](crate::model::sizes::MAX_TAKE_BYTES) of payloads and side records, but returns
    /// at least one letter if there is one. A letter that cannot be read has no payload; `unreadable` has the reason.
    pub async fn dead_after(
        &self,
        tr: &Transaction,
        after: Option<&ItemId>,
        limit: NonZeroUsize,
    ) -> Result<Vec<DeadLetter>, QueueError> {
        ops::dead::after(self.space(), tr, after, limit).await
    }

    /// A dead letter with its payload; `None` if no dead letter has this id. If it cannot be read, it has no payload; `unreadable` has the reason. A snapshot read.
    pub async fn dead_get(&self, tr: &Transaction, id: &ItemId) -> Result<Option<DeadLetter>, QueueError> {
        ops::dead::get(self.space(), tr, id).await
    }

    /// Makes a dead letter an item again, at its own place, with all its attempts before it. It keeps the failures of earlier attempts.
    /// `false` if there is no dead letter of this id.
    ///
    /// # Errors
    /// [`DeadLetterError::UniqueTaken`] if another item is there under its unique key; nothing is written.
    pub async fn dead_retry(&self, tr: &Transaction, id: &ItemId) -> Result<bool, DeadLetterError> {
        let page = page(self.space(), tr, DeadLetterAction::Retry, Which::One(id)).await?;
        match page.holder {
            Some(by) => Err(DeadLetterError::UniqueTaken { id: id.clone(), by }),
            None => Ok(page.moved > 0),
        }
    }

    /// Deletes a dead letter for good. `false` if there is none of this id. If its record cannot be read, the item's unique key stays taken:
    /// [`Queue::purge_dead`] frees it.
    pub async fn dead_purge(&self, tr: &Transaction, id: &ItemId) -> Result<bool, QueueError> {
        Ok(page(self.space(), tr, DeadLetterAction::Purge, Which::One(id)).await?.moved > 0)
    }
}
