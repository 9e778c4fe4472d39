//! Changing one item by its id, whatever it is doing: cancelling it, giving it another time, another payload.

use std::time::SystemTime;

use foundationdb::{Database, Transaction};

use crate::client::queue::Queue;
use crate::keys::{Counter, counters};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::item_change::ItemChange;
use crate::model::retry_error::RetryError;
use crate::model::session_id::SessionId;
use crate::model::time::millis;
use crate::ops::{cancel, edit, reschedule};
use crate::run::exactly_once::{Act, Body, Marked};
use crate::run::retry::RetryPolicy;
use crate::run::watch::Watch;

impl Queue {
    /// Cancels an item that is ready, scheduled, retrying or running: it ends, without a dead letter, and its unique key is free.
    ///
    /// The cancellation of a running item ends it on its lease, as its holder's acknowledgement would, in this transaction: so nothing that
    /// the holder does about the item commits afterwards, and nothing waits for the holder. The holder finds it out by
    /// [`Queue::watch_cancellations`], or when it acknowledges: [`Lease::is_cancelled`](crate::Lease::is_cancelled). A dead letter is refused:
    /// purge it instead ([`Queue::purge_dead`]).
    ///
    /// # Errors
    /// [`QueueError::Frozen`], if the queue is frozen; [`QueueError::TooMuchRunning`], if it is not ready and there are too many leases
    /// to be searched.
    pub async fn cancel(&self, tr: &Transaction, id: &ItemId) -> Result<ItemChange, QueueError> {
        self.in_transaction(tr, &Change::Cancel, id).await
    }

    /// Gives a ready, scheduled or retrying item another time at which it becomes ready; `None`: now. Its attempts stay as they are.
    ///
    /// A running item is refused, and so is a dead letter, and a time at which the item will have expired. A ready item is left as it is if it is to be ready now. In an ordered key a ready
    /// item that gets a time leaves the order: items behind it do not wait for it.
    ///
    /// # Errors
    /// As [`Queue::cancel`].
    pub async fn reschedule(
        &self,
        tr: &Transaction,
        id: &ItemId,
        due: Option<SystemTime>,
    ) -> Result<ItemChange, QueueError> {
        self.in_transaction(tr, &Change::Reschedule(due), id).await
    }

    /// Makes a scheduled or retrying item ready now, or a dead letter with all its attempts before it. A ready item and a running one are
    /// refused.
    ///
    /// # Errors
    /// As [`Queue::cancel`].
    pub async fn retry(&self, tr: &Transaction, id: &ItemId) -> Result<ItemChange, QueueError> {
        self.in_transaction(tr, &Change::Retry, id).await
    }

    /// Gives an item that is ready, scheduled, retrying or a dead letter another payload. Everything else of it stays as it is, its unique key
    /// too. A running item is refused.
    ///
    /// # Errors
    /// As [`Queue::cancel`], and [`QueueError::PayloadTooLong`].
    pub async fn edit_payload(
        &self,
        tr: &Transaction,
        id: &ItemId,
        payload: &[u8],
    ) -> Result<ItemChange, QueueError> {
        self.in_transaction(tr, &Change::Edit(payload), id).await
    }

    /// As [`Queue::cancel`], in a transaction of its own, exactly once.
    pub async fn cancel_item(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        id: &ItemId,
    ) -> Result<ItemChange, RetryError> {
        self.change_item(db, policy, Change::Cancel, id).await
    }

    /// As [`Queue::reschedule`], in a transaction of its own, exactly once.
    pub async fn reschedule_item(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        id: &ItemId,
        due: Option<SystemTime>,
    ) -> Result<ItemChange, RetryError> {
        self.change_item(db, policy, Change::Reschedule(due), id).await
    }

    /// As [`Queue::retry`], in a transaction of its own, exactly once.
    pub async fn retry_item(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        id: &ItemId,
    ) -> Result<ItemChange, RetryError> {
        self.change_item(db, policy, Change::Retry, id).await
    }

    /// Deletes an item that is ready, scheduled, retrying or a dead letter, with all its records, exactly once. A running item is refused.
    ///
    /// # Errors
    /// As [`Queue::cancel`].
    pub async fn delete_item(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        id: &ItemId,
    ) -> Result<ItemChange, RetryError> {
        match self.purge_dead(db, policy, id).await? {
            ItemChange::Gone => self.change_item(db, policy, Change::Delete, id).await,
            purged => Ok(purged),
        }
    }

    /// As [`Queue::edit_payload`], in a transaction of its own, exactly once.
    pub async fn edit_item(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        id: &ItemId,
        payload: &[u8],
    ) -> Result<ItemChange, RetryError> {
        self.change_item(db, policy, Change::Edit(payload), id).await
    }

    /// The item that is there under a unique key: ready, scheduled, retrying or running. `None` if there is none; a dead letter has lost its
    /// key. A snapshot read of one key.
    pub async fn unique_item(&self, tr: &Transaction, key: &[u8]) -> Result<Option<ItemId>, QueueError> {
        let found = tr.get(&self.space().unique_key(key), true).await?;
        Ok(found.map(|id| ItemId::new(id.to_vec().into())))
    }

    /// How many running items were ever cancelled. A snapshot read of one key.
    pub async fn cancellations(&self, tr: &Transaction) -> Result<u64, QueueError> {
        Ok(counters::decode(tr.get(self.space().counter(Counter::Cancel), true).await?.as_deref()))
    }

    /// Watches for cancellations of running items, from the moment that `tr` reads at. Works if `tr` commits, which it can do without
    /// having written anything.
    pub fn watch_cancellations(&self, tr: &Transaction) -> Watch {
        cancel::watch(self.space(), tr)
    }

    async fn in_transaction(
        &self,
        tr: &Transaction,
        change: &Change<'_>,
        id: &ItemId,
    ) -> Result<ItemChange, QueueError> {
        match change.fill(self, tr, id).await? {
            Act::Nothing(found) => Ok(found),
            Act::Write(done) => {
                self.check_unfrozen(tr).await?;
                Ok(done)
            }
        }
    }

    async fn change_item(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        change: Change<'_>,
        id: &ItemId,
    ) -> Result<ItemChange, RetryError> {
        let mut marked = Marked::new(self.space(), SessionId::new());
        let done = marked.run(db, policy, OneChange { queue: self, change, id }).await?;
        // It is done, even if this fails: sweepers clear the mark later.
        let _ = marked.close(db, policy).await;
        Ok(done)
    }
}

/// What is done to an item.
#[derive(Debug, Clone, Copy)]
enum Change<'a> {
    Cancel,
    /// `None`: now.
    Reschedule(Option<SystemTime>),
    Retry,
    Delete,
    /// To this payload.
    Edit(&'a [u8]),
}

impl Change<'_> {
    async fn fill(
        &self,
        queue: &Queue,
        tr: &Transaction,
        id: &ItemId,
    ) -> Result<Act<ItemChange>, QueueError> {
        let space = queue.space();
        match self {
            Change::Cancel => cancel::item(space, tr, id).await,
            Change::Reschedule(due) => reschedule::item(space, tr, id, due.map(millis)).await,
            Change::Retry => reschedule::retry(space, tr, id).await,
            Change::Delete => cancel::delete(space, tr, id).await,
            Change::Edit(payload) => edit::item(space, tr, id, payload).await,
        }
    }
}

/// The transaction of one change.
struct OneChange<'a> {
    queue: &'a Queue,
    change: Change<'a>,
    id: &'a ItemId,
}

impl Body for OneChange<'_> {
    type Output = ItemChange;

    async fn fill(&mut self, tr: &Transaction) -> Result<Act<ItemChange>, QueueError> {
        self.change.fill(self.queue, tr, self.id).await
    }
}
