//! The history of a queue: its setting, and reading it.

use std::num::NonZeroUsize;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use foundationdb::Transaction;

use crate::client::queue::Queue;
use crate::model::error::QueueError;
use crate::model::history::{
    EndedItem, HistoryCursor, HistoryFilter, HistoryIndex, HistoryPage, MAX_HISTORY,
};
use crate::model::id::ItemId;
use crate::model::time::millis;
use crate::ops::ended;

impl Queue {
    /// How long ended items are kept; `None`: they are not. One key, a snapshot read.
    pub async fn history_kept(&self, tr: &Transaction) -> Result<Option<Duration>, QueueError> {
        let setting = ended::setting(self.space(), tr, true).await?;
        Ok(setting.map(|setting| Duration::from_millis(setting.retention)).filter(|kept| !kept.is_zero()))
    }

    /// Sets how long ended items are kept: at most [`MAX_HISTORY`], a longer time counts as that. With a time of zero, a [`Sweeper`](crate::Sweeper) removes them all. Returns whether that is
    /// a change. The setting makes no queue.
    pub async fn keep_history(&self, tr: &Transaction, kept: Duration) -> Result<bool, QueueError> {
        ended::keep(self.space(), tr, kept.min(MAX_HISTORY)).await
    }

    /// The attributes by which the history is indexed. One key, a snapshot read.
    pub async fn history_index(&self, tr: &Transaction) -> Result<HistoryIndex, QueueError> {
        let setting = ended::setting(self.space(), tr, true).await?.unwrap_or_default();
        Ok(HistoryIndex(setting.indexed.into_keys().collect()))
    }

    /// Sets by which attributes the history is indexed, and returns whether that is a change. Without effect if the queue keeps no history. [`Queue::history`] uses the
    /// index for items that end ten minutes after `now` or later, and reads the older ones one after the other.
    pub async fn index_history(
        &self,
        tr: &Transaction,
        index: &HistoryIndex,
        now: SystemTime,
    ) -> Result<bool, QueueError> {
        ended::declare_index(self.space(), tr, index, millis(now)).await
    }

    /// Ended items that match, the newest first: those before a place, or the last ones; up to `k`, and fewer where about a megabyte of records was
    /// read. If the filter has an attribute that the history is indexed by, only groups with its value are read. A snapshot read: it conflicts with nothing.
    /// The order is that of the clocks of the processes that ended the items, to a minute, and within a minute that of the commits.
    pub async fn history(
        &self,
        tr: &Transaction,
        filter: &HistoryFilter,
        before: Option<&HistoryCursor>,
        k: NonZeroUsize,
    ) -> Result<HistoryPage, QueueError> {
        ended::read::page(self.space(), tr, filter, before, k).await
    }

    /// The result of an ended item, as [`Queue::history`] or [`Queue::ended_item`] has read it. `None` if its handler gave none, if it was too long
    /// to be kept ([`EndedItem::result`]), or if it has been removed since. A snapshot read of one key.
    pub async fn result(&self, tr: &Transaction, item: &EndedItem) -> Result<Option<Bytes>, QueueError> {
        ended::read::result(self.space(), tr, item).await
    }

    /// The last end of the item of this id, if it is kept. Reads a few rows of each hour that is kept, the newest first. Snapshot reads.
    pub async fn ended_item(&self, tr: &Transaction, id: &ItemId) -> Result<Option<EndedItem>, QueueError> {
        ended::read::one(self.space(), tr, id).await
    }
}
