//! Batches: items of any queues whose ends are waited for together. When all of them have ended, one item, the callback, is pushed.
//!
//! A batch lives in the queue that gets its callback, its home. It is made open, so that items can be pushed to it ([`NewItem::batch`]), in any
//! queues behind the same prefix and in any number of transactions. Once it is committed it gets no more items. When it is committed and all
//! its members have ended, whichever way, the [`Sweeper`](crate::Sweeper) of its home pushes the callback, in the transaction that removes the batch. So
//! the callback is pushed exactly once. At its deadline a batch calls back as it is.
//!
//! An item that is in a queue already can join an open batch, whatever it is doing ([`Queue::join_batch`](crate::Queue::join_batch)). So an item that is to come
//! after others is the callback of a batch that these join ([`Queue::push_after`](crate::Queue::push_after)).
//!
//! Members conflict with each other neither when they are pushed nor when they end. A push and an end conflict with the commit of
//! their batch, and with the end of the batch itself.

mod id;

use std::time::{Duration, SystemTime};

pub use id::{BatchId, MAX_ITEM_BATCHES, ParseBatchIdError};

use crate::model::error::{PushError, QueueError};
use crate::model::history::Ending;
use crate::model::id::ItemId;
use crate::model::kind::Kind;
use crate::model::new_item::NewItem;
use crate::model::retry_error::RetryError;
use crate::model::time::{Millis, from_millis, millis, span_millis};
use crate::model::view::ItemState;

/// The longest payload of a callback, in bytes.
pub const MAX_CALLBACK_PAYLOAD: usize = 64 << 10;

/// The longest time from the beginning of a batch to its deadline.
pub const MAX_BATCH_DEADLINE: Duration = Duration::from_hours(366 * 24);

/// The most items that one batch waits for which is made by [`Queue::push_after`](crate::Queue::push_after).
pub const MAX_AFTER: usize = 100;

/// The names of the attributes that a callback gets: the id of its batch, the outcome (`complete` or `deadline`), the number of members, and how many
/// of them have ended in each way.
pub const CALLBACK_ATTRIBUTES: [&str; 8] = [
    "batch",
    "batch-outcome",
    "batch-members",
    "batch-done",
    "batch-dead",
    "batch-cancelled",
    "batch-expired",
    "batch-taken",
];

/// A batch to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewBatch {
    /// What is pushed in the end: payload, attributes, content type, priority and key. The other fields have to be `None`.
    pub callback: NewItem,
    /// When it calls back at the latest, by the clock of the sweeper and to the [millisecond](crate::millis); `None`: it waits for its members,
    /// however long that takes.
    pub deadline: Option<SystemTime>,
}

impl NewBatch {
    /// A batch with this callback and no deadline.
    pub fn new(callback: NewItem) -> NewBatch {
        NewBatch { callback, deadline: None }
    }

    /// The same batch with a deadline.
    #[must_use]
    pub fn with_deadline(self, deadline: SystemTime) -> NewBatch {
        NewBatch { deadline: Some(deadline), ..self }
    }

    /// Whether a queue of this kind can have it, at the time `now`.
    ///
    /// # Errors
    /// Names what is wrong, and what is possible.
    pub fn check(&self, kind: Kind, now: SystemTime) -> Result<(), BatchError> {
        let NewBatch { callback, deadline } = self;
        let len = callback.payload.len();
        if len > MAX_CALLBACK_PAYLOAD {
            return Err(BatchError::Payload { len });
        }
        let (now, most) = (millis(now), span_millis(MAX_BATCH_DEADLINE));
        let is_possible = |deadline: Millis| deadline > now && deadline <= now.saturating_add(most);
        if !deadline.map(millis).is_none_or(is_possible) {
            return Err(BatchError::Deadline);
        }
        let foreign = [
            ("a unique key", callback.unique.is_some()),
            ("a due time", callback.due.is_some()),
            ("an expiry", callback.expires.is_some()),
            ("a time of its push", callback.enqueued_at.is_some()),
            ("a trace parent", callback.trace_parent.is_some()),
            ("a batch", callback.batch.is_some()),
        ];
        if let Some((what, _)) = foreign.into_iter().find(|(_, is_there)| *is_there) {
            return Err(BatchError::ForeignField { what });
        }
        let is_reserved = |name: &&str| callback.attributes.contains_key(*name);
        if let Some(name) = CALLBACK_ATTRIBUTES.into_iter().find(is_reserved) {
            return Err(BatchError::ReservedAttribute { name });
        }
        // With all attributes, which count too.
        let longest = BatchId::with_unique(&[0; crate::model::sizes::MAX_NAME], [0; 16]);
        let most = BatchCounts::all(u64::MAX);
        Ok(self.item(&longest, CloseReason::Complete, &most, 0).check_new(kind, MAX_CALLBACK_PAYLOAD)?)
    }

    /// The callback, pushed at `now` by the clock of the sweeper.
    pub(crate) fn item(
        &self,
        id: &BatchId,
        reason: CloseReason,
        counts: &BatchCounts,
        now: Millis,
    ) -> NewItem {
        let numbers =
            [counts.members, counts.done, counts.dead, counts.cancelled, counts.expired, counts.taken];
        let values = [id.to_string(), reason.to_string()].into_iter().chain(numbers.map(|n| n.to_string()));
        let item = self.callback.clone().with_enqueued_at(from_millis(now));
        CALLBACK_ATTRIBUTES
            .into_iter()
            .zip(values)
            .fold(item, |item, (name, value)| item.with_attribute(name, value))
    }
}

/// How many members a batch has, and how many of them have ended in which way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BatchCounts {
    /// Items that were pushed to it.
    pub members: u64,
    /// Members that handlers have finished.
    pub done: u64,
    /// Members that became dead letters. One that is retried is no longer a member.
    pub dead: u64,
    /// Members that were cancelled or deleted.
    pub cancelled: u64,
    /// Members that ended because they were not handled in time.
    pub expired: u64,
    /// Members that were taken for good: by a fetch with at-most-once delivery, a pop, or another program.
    pub taken: u64,
    /// Members that ended in a way that only a later version knows.
    pub other: u64,
}

impl BatchCounts {
    /// How many members have ended.
    pub fn ended(&self) -> u64 {
        let ways = [self.done, self.dead, self.cancelled, self.expired, self.taken, self.other];
        ways.into_iter().fold(0, u64::saturating_add)
    }

    /// How many members have not ended.
    pub fn open(&self) -> u64 {
        self.members.saturating_sub(self.ended())
    }

    fn all(n: u64) -> BatchCounts {
        BatchCounts { members: n, done: n, dead: n, cancelled: n, expired: n, taken: n, other: n }
    }
}

/// A batch that has not called back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchView {
    /// Which one.
    pub id: BatchId,
    /// When it was made, by the clock of the process that made it.
    pub created: SystemTime,
    /// Since when it gets no more members; `None`: it is open.
    pub committed: Option<SystemTime>,
    /// What is pushed in the end, and by when.
    pub batch: NewBatch,
    /// Its members.
    pub counts: BatchCounts,
}

/// A batch that has called back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedBatch {
    /// Which one.
    pub id: BatchId,
    /// Why it was closed.
    pub reason: CloseReason,
    /// When it was made.
    pub created: SystemTime,
    /// Whether it was committed.
    pub is_committed: bool,
    /// Its members.
    pub counts: BatchCounts,
}

/// Why a batch has called back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// It was committed, and all members have ended.
    Complete,
    /// Its deadline has passed.
    Deadline,
}

impl CloseReason {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            CloseReason::Complete => "complete",
            CloseReason::Deadline => "deadline",
        }
    }
}

impl std::fmt::Display for CloseReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a commit does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchCommit {
    /// The batch is committed.
    Committed,
    /// It was committed before.
    WasCommitted,
    /// It is not there: it has called back, was cancelled, or never was.
    Gone,
}

/// The effect on an item that is to join a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// It is a member from now on. This is what it is doing.
    Joined(ItemState),
    /// It was a member before.
    WasMember,
    /// It has ended, in this way, and counts as a member that has. That is known of dead letters, and while the queue's history has the item.
    Ended(Ending),
    /// The queue has no item of this id, and the batch does not count it. If it had one before, the item has ended, or was moved.
    Gone,
}

/// What an item means for [`Queue::push_after`](crate::Queue::push_after) that is not in its queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Missing {
    /// It may be a wrong id: nothing is pushed.
    #[default]
    Refused,
    /// It has ended, and is not waited for.
    HasEnded,
}

fn names(ids: &[ItemId]) -> String {
    let first: Vec<_> = ids.iter().take(3).map(ToString::to_string).collect();
    match ids.len() - first.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// A batch cannot be made. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The payload of the callback is too long.
    #[error(
        "payload of a callback has {len} bytes, at most {MAX_CALLBACK_PAYLOAD} are possible; store it elsewhere and push where it is"
    )]
    Payload {
        /// Its length in bytes.
        len: usize,
    },
    /// The deadline is past, or too far ahead.
    #[error("deadline of a batch is not within {} days from now; change it", MAX_BATCH_DEADLINE.as_secs() / 86_400)]
    Deadline,
    /// The callback has a field that it cannot have.
    #[error("the callback of a batch has {what}; leave it out")]
    ForeignField {
        /// Which one.
        what: &'static str,
    },
    /// The callback has an attribute that the batch sets itself.
    #[error("the callback of a batch has the attribute `{name}`, which the batch sets; give it another name")]
    ReservedAttribute {
        /// The attribute's name.
        name: &'static str,
    },
    /// There is nothing to wait for, or too much.
    #[error("{len} items are to be waited for, 1 to {MAX_AFTER} are possible; name that many")]
    After {
        /// How many.
        len: usize,
    },
    /// Items that are to be waited for are not in their queues.
    #[error(
        "cannot wait for what is not there, {}: it has ended some time ago, was moved, or never was; correct its id or its queue, or say that what is missing has ended",
        names(.ids)
    )]
    Missing {
        /// Their ids.
        ids: Vec<ItemId>,
    },
    /// The id belongs to another queue.
    #[error("batch {id} does not belong to this queue; open the queue that its id names")]
    OtherHome {
        /// The batch.
        id: BatchId,
    },
    /// The queue cannot have such an item.
    #[error("the callback of a batch cannot be pushed")]
    Item(#[from] PushError),
    /// A read failed, or the queue is frozen.
    #[error("cannot change a batch")]
    Queue(#[from] QueueError),
    /// The database refused, or retries ran out.
    #[error("cannot change a batch")]
    Retry(#[from] RetryError),
}

impl BatchError {
    /// The database's error, if one in the caller's own transaction was the cause: what `on_error` wants.
    pub fn database(&self) -> Option<foundationdb::FdbError> {
        match self {
            Self::Queue(error) => error.database(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(callback: NewItem, deadline: Option<Millis>) -> String {
        let deadline = deadline.map(from_millis);
        NewBatch { callback, deadline }
            .check(Kind::Fifo, from_millis(1_000))
            .expect_err("it is wrong")
            .to_string()
    }

    #[test]
    fn a_batch_that_cannot_be_stored_is_refused() {
        let item = || NewItem::new("all done").with_attribute("k", "v");
        NewBatch::new(item())
            .with_deadline(from_millis(1_001))
            .check(Kind::Fifo, from_millis(1_000))
            .unwrap();
        let year = 366 * 24 * 3_600_000;
        assert!(refused(item(), Some(1_000)).contains("366 days"));
        assert!(refused(item(), Some(1_001 + year)).contains("366 days"));
        assert!(refused(NewItem::new(vec![0; MAX_CALLBACK_PAYLOAD + 1]), None).contains("65537"));
        assert!(refused(item().with_unique("u"), None).contains("unique key"));
        assert!(refused(item().with_expiry(from_millis(9)), None).contains("an expiry"));
        assert!(refused(item().with_batch(BatchId::new(b"q")), None).contains("has a batch"));
        assert!(refused(item().with_attribute("batch-done", "1"), None).contains("`batch-done`"));
        assert!(refused(item().with_priority(3), None).contains("cannot be pushed"));
    }

    #[test]
    fn a_callback_has_the_counts_of_its_batch_as_attributes() {
        let counts = BatchCounts { members: 7, done: 3, dead: 2, cancelled: 1, ..BatchCounts::default() };
        assert_eq!((counts.ended(), counts.open()), (6, 1));
        let id = BatchId::with_unique(b"q", [1; 16]);
        let item = NewBatch::new(NewItem::new("x")).item(&id, CloseReason::Deadline, &counts, 5);
        let of = |name: &str| item.attributes[name].clone();
        assert_eq!(of("batch"), id.to_string());
        let values = CALLBACK_ATTRIBUTES[1..].iter().map(|name| of(name)).collect::<Vec<_>>();
        assert_eq!(values, ["deadline", "7", "3", "2", "1", "0", "0"]);
    }
}
