//! Operations on the batches of a queue: in transactions of the caller's, and in transactions of their own.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::SystemTime;

use foundationdb::{Database, Transaction};

use crate::client::queue::Queue;
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::item_batch::{
    BatchCommit, BatchCounts, BatchError, BatchId, BatchView, Join, MAX_AFTER, Missing, NewBatch,
};
use crate::model::retry_error::RetryError;
use crate::model::session_id::SessionId;
use crate::model::time::{Millis, from_millis, millis};
use crate::ops::batches::{change, join, read};
use crate::run::exactly_once::{Act, Body, Marked};
use crate::run::retry::RetryPolicy;

impl Queue {
    /// Makes a batch whose callback goes to this queue, at `now`. `id` is a new id with this queue as its home. If the batch is there already,
    /// nothing happens, so a transaction of unknown outcome can be repeated with the same id.
    ///
    /// # Errors
    /// [`BatchError`]; [`QueueError::Frozen`].
    pub async fn new_batch(
        &self,
        tr: &Transaction,
        id: &BatchId,
        batch: &NewBatch,
        now: SystemTime,
    ) -> Result<(), BatchError> {
        if !self.is_home(id) {
            return Err(BatchError::OtherHome { id: id.clone() });
        }
        batch.check(self.kind(), now)?;
        Ok(change::new(self.space(), tr, id, batch, millis(now)).await?)
    }

    /// Makes a batch in a transaction of its own, exactly once, and returns its id.
    ///
    /// # Errors
    /// [`BatchError`]. No batch was made, unless [`RetryError::is_maybe_committed`] says so.
    pub async fn create_batch(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        batch: &NewBatch,
        now: SystemTime,
    ) -> Result<BatchId, BatchError> {
        batch.check(self.kind(), now)?;
        let id = BatchId::new(self.name());
        self.change_batch(db, policy, Change::New(&id, batch, millis(now))).await?;
        Ok(id)
    }

    /// Makes items that are in this queue members of an open batch, whichever queue is its home. Returns the effect on each, in their order.
    ///
    /// Those of them that have ended, as a dead letter or the history says, count as members that have, with each call again: use a batch that was made in this transaction.
    /// An item can be a member of several batches. It joins whatever it is doing, also while it is running: then its holder's acknowledgement counts
    /// it. Ready and scheduled items are found by a few reads each; if there are others, all leases are read once.
    ///
    /// # Errors
    /// [`QueueError::NoBatch`], [`QueueError::BatchCommitted`]; [`QueueError::TooManyBatches`]; [`QueueError::TooMuchRunning`];
    /// [`QueueError::WrongKind`], [`QueueError::OtherKind`]; [`QueueError::Frozen`], for either queue; [`QueueError::Unreadable`], if an item's record, or a lease that may have
    /// one of the items, cannot be read. Do not commit the transaction then.
    pub async fn join_batch(
        &self,
        tr: &Transaction,
        id: &BatchId,
        items: &[ItemId],
    ) -> Result<Vec<Join>, QueueError> {
        join::join(self.space(), tr, id, items).await
    }

    /// Lets an item of this queue come after others: in one transaction of its own, exactly once, makes a batch with it as the callback, lets the others join, and commits the
    /// batch. `after`: the others, each once, with their queues. Returns the batch's id, and the effect on each of the others in their order.
    ///
    /// The item is pushed when all of them have ended, whichever way; at once, if they have. One that is not in its queue, and not in the history, is `missing`.
    ///
    /// # Errors
    /// [`BatchError`]. Nothing was written, unless [`RetryError::is_maybe_committed`] says so.
    pub async fn push_after(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        batch: &NewBatch,
        (after, missing): (&[(Queue, ItemId)], Missing),
        now: SystemTime,
    ) -> Result<(BatchId, Vec<Join>), BatchError> {
        batch.check(self.kind(), now)?;
        let len = after.len();
        if !(1..=MAX_AFTER).contains(&len) {
            return Err(BatchError::After { len });
        }
        let id = BatchId::new(self.name());
        match self.change_batch(db, policy, Change::After(&id, batch, (after, missing), millis(now))).await? {
            Effect::Waits(joins) => Ok((id, joins)),
            Effect::Missing(ids) => Err(BatchError::Missing { ids }),
            Effect::New | Effect::Committed(_) | Effect::Cancelled(_) => Ok((id, Vec::new())),
        }
    }

    /// Commits a batch: it gets no more members, and calls back when all have ended. One without members calls back at once.
    ///
    /// # Errors
    /// [`QueueError::Frozen`]; [`QueueError::Unreadable`].
    pub async fn commit_batch(
        &self,
        tr: &Transaction,
        id: &BatchId,
        now: SystemTime,
    ) -> Result<BatchCommit, QueueError> {
        match self.is_home(id) {
            true => change::commit(self.space(), tr, id, millis(now)).await,
            false => Ok(BatchCommit::Gone),
        }
    }

    /// [`Queue::commit_batch`] in a transaction of its own, exactly once.
    ///
    /// # Errors
    /// Nothing was changed, unless [`RetryError::is_maybe_committed`] says so.
    pub async fn finish_batch(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        id: &BatchId,
        now: SystemTime,
    ) -> Result<BatchCommit, RetryError> {
        match self.change_batch(db, policy, Change::Commit(id, millis(now))).await? {
            Effect::Committed(effect) => Ok(effect),
            Effect::New | Effect::Waits(_) | Effect::Missing(_) | Effect::Cancelled(_) => {
                Ok(BatchCommit::Gone)
            }
        }
    }

    /// Removes a batch without a callback. Its members stay, and belong to no batch any more. Returns how many there were; `None` if the
    /// batch is not there.
    ///
    /// # Errors
    /// [`QueueError::Frozen`].
    pub async fn cancel_batch(
        &self,
        tr: &Transaction,
        id: &BatchId,
    ) -> Result<Option<BatchCounts>, QueueError> {
        if self.is_home(id) { change::cancel(self.space(), tr, id).await } else { Ok(None) }
    }

    /// [`Queue::cancel_batch`] in a transaction of its own, exactly once.
    ///
    /// # Errors
    /// Nothing was changed, unless [`RetryError::is_maybe_committed`] says so.
    pub async fn drop_batch(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        id: &BatchId,
    ) -> Result<Option<BatchCounts>, RetryError> {
        match self.change_batch(db, policy, Change::Cancel(id)).await? {
            Effect::Cancelled(counts) => Ok(counts),
            Effect::New | Effect::Waits(_) | Effect::Missing(_) | Effect::Committed(_) => Ok(None),
        }
    }

    /// A batch that has not called back; `None` if there is none of this id. Snapshot reads, which conflict with nothing.
    ///
    /// # Errors
    /// [`QueueError::Unreadable`].
    pub async fn batch(&self, tr: &Transaction, id: &BatchId) -> Result<Option<BatchView>, QueueError> {
        if self.is_home(id) { read::one(self.space(), tr, id).await } else { Ok(None) }
    }

    /// Batches whose callbacks go to this queue, in the order of their ids, which is about that of their beginnings: those behind `after`, or the
    /// first. Up to `k` of them, and none only if there are none. A batch that cannot be read is left out. Snapshot reads, which conflict with nothing.
    pub async fn batches_after(
        &self,
        tr: &Transaction,
        after: Option<&BatchId>,
        k: NonZeroUsize,
    ) -> Result<Vec<BatchView>, QueueError> {
        read::page(self.space(), tr, after, k).await
    }

    fn is_home(&self, id: &BatchId) -> bool {
        id.home() == self.name()
    }

    async fn change_batch(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        change: Change<'_>,
    ) -> Result<Effect, RetryError> {
        let mut marked = Marked::new(self.space(), SessionId::new());
        let body = Changing { queue: self, change };
        let effect = match change {
            Change::New(..) | Change::After(..) => marked.run_adding(db, policy, body).await?,
            Change::Commit(..) | Change::Cancel(_) => marked.run(db, policy, body).await?,
        };
        // The change is made, even if this fails: sweepers clear the mark later.
        let _ = marked.close(db, policy).await;
        Ok(effect)
    }
}

/// Lets items join, those of each queue together. Returns the effect on each, in their order.
async fn join_all(
    tr: &Transaction,
    id: &BatchId,
    items: &[(Queue, ItemId)],
) -> Result<Vec<Join>, QueueError> {
    // Two handles of one name may be of other prefixes or kinds.
    let mut queues: BTreeMap<_, (&Queue, Vec<usize>)> = BTreeMap::new();
    for (index, (queue, _)) in items.iter().enumerate() {
        let place = (&queue.space().queue, queue.kind().to_string());
        queues.entry(place).or_insert((queue, Vec::new())).1.push(index);
    }
    let mut joins = vec![None; items.len()];
    for (queue, indexes) in queues.into_values() {
        let ids: Vec<_> = indexes.iter().map(|index| items[*index].1.clone()).collect();
        let effects = queue.join_batch(tr, id, &ids).await?;
        indexes.into_iter().zip(effects).for_each(|(index, effect)| joins[index] = Some(effect));
    }
    Ok(joins.into_iter().flatten().collect())
}

/// What is to be done about a batch.
#[derive(Clone, Copy)]
enum Change<'a> {
    New(&'a BatchId, &'a NewBatch, Millis),
    After(&'a BatchId, &'a NewBatch, (&'a [(Queue, ItemId)], Missing), Millis),
    Commit(&'a BatchId, Millis),
    Cancel(&'a BatchId),
}

/// What was done.
#[derive(Debug, Clone)]
enum Effect {
    New,
    /// The effect on each of the items that are waited for.
    Waits(Vec<Join>),
    /// These are not there, so nothing was done.
    Missing(Vec<ItemId>),
    Committed(BatchCommit),
    Cancelled(Option<BatchCounts>),
}

struct Changing<'a> {
    queue: &'a Queue,
    change: Change<'a>,
}

impl Body for Changing<'_> {
    type Output = Effect;

    async fn fill(&mut self, tr: &Transaction) -> Result<Act<Effect>, QueueError> {
        let space = self.queue.space();
        Ok(match self.change {
            Change::New(id, batch, now) => {
                change::new(space, tr, id, batch, now).await?;
                Act::Write(Effect::New)
            }
            Change::After(id, batch, (after, missing), now) => {
                change::new(space, tr, id, batch, now).await?;
                let joins = join_all(tr, id, after).await?;
                let is_gone =
                    |(_, join): &(_, &Join)| matches!(join, Join::Gone) && missing == Missing::Refused;
                let gone = after.iter().zip(&joins).filter(is_gone);
                let gone: Vec<ItemId> = gone.map(|((_, item), _)| item.clone()).collect();
                if !gone.is_empty() {
                    // What was written is not committed.
                    return Ok(Act::Nothing(Effect::Missing(gone)));
                }
                change::commit(space, tr, id, now).await?;
                Act::Write(Effect::Waits(joins))
            }
            Change::Commit(id, now) => match self.queue.commit_batch(tr, id, from_millis(now)).await? {
                done @ BatchCommit::Committed => Act::Write(Effect::Committed(done)),
                nothing => Act::Nothing(Effect::Committed(nothing)),
            },
            Change::Cancel(id) => match self.queue.cancel_batch(tr, id).await? {
                done @ Some(_) => Act::Write(Effect::Cancelled(done)),
                None => Act::Nothing(Effect::Cancelled(None)),
            },
        })
    }
}
