//! Looking at items by what they are doing, a page at a time.

use std::num::NonZeroUsize;

use foundationdb::Transaction;

use crate::client::queue::Queue;
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::view::{Cursor, ItemPage, ItemState, ItemView};
use crate::model::waiting::Waiting;
use crate::ops;

impl Queue {
    /// Items of one state with their payloads: those behind `after`, or the first; up to `k` of them, and fewer where
    /// [`MAX_TAKE_BYTES`](crate::model::sizes::MAX_TAKE_BYTES) of payloads and side records are reached, or where many items of another state lie between.
    ///
    /// Ready items come in the order in which they are fetched, scheduled and retrying ones in the order of their times, running ones by
    /// lease, dead letters by id. A snapshot read: it conflicts with nothing. An `after` of another state counts as none.
    pub async fn view(
        &self,
        tr: &Transaction,
        state: ItemState,
        after: Option<&Cursor>,
        k: NonZeroUsize,
    ) -> Result<ItemPage, QueueError> {
        let mut page = ops::view::page(self.space(), tr, state, after, k).await?;
        ops::view::tell_ages(tr, &mut page.items).await?;
        Ok(page)
    }

    /// The item of this id, whatever it is doing; `None` if the queue has none. A snapshot read: it conflicts with nothing.
    ///
    /// An item that is not running is found at once. To find a running one, the headers of all leases are read, and then the items of a lease that may have it.
    ///
    /// # Errors
    /// [`QueueError::TooMuchRunning`], if these have more than 100 MB.
    pub async fn view_item(&self, tr: &Transaction, id: &ItemId) -> Result<Option<ItemView>, QueueError> {
        let mut found = ops::view::one(self.space(), tr, id).await?;
        ops::view::tell_ages(tr, found.as_mut_slice()).await?;
        Ok(found)
    }

    /// What a ready item waits for; `None` if the item is not ready. It reads up to 10,000 rows of items, or 1 MB of them, and of keys, and conflicts
    /// with nothing.
    pub async fn waiting(&self, tr: &Transaction, id: &ItemId) -> Result<Option<Waiting>, QueueError> {
        ops::waiting::waiting(self.space(), tr, id).await
    }
}
