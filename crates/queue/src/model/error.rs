//! The crate's errors: one enum for each kind of operation.

use std::time::SystemTime;

use foundationdb::FdbError;

use crate::model::id::ItemId;
use crate::model::item_batch::{BatchId, MAX_ITEM_BATCHES};
use crate::model::kind::Kind;
use crate::model::pause::Pause;
use crate::model::retry_error::{Attempts, RetryError};
use crate::model::sizes::{MAX_NAME, MAX_PREFIX};
use crate::model::time::millis;

/// A queue cannot have this name or prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name has no bytes.
    #[error("queue name is empty, give it 1 to {MAX_NAME} bytes")]
    Empty,
    /// The name is longer than [`MAX_NAME`].
    #[error("queue name has {len} bytes, at most {MAX_NAME} are possible")]
    TooLong {
        /// The name's length in bytes.
        len: usize,
    },
    /// The name of a recipe's queue is not UTF-8.
    #[error("queue name is not UTF-8, and the queues of recipes are named by texts; give it another name")]
    NotText,
    /// The prefix is longer than [`MAX_PREFIX`].
    #[error("key prefix has {len} bytes, at most {MAX_PREFIX} are possible")]
    PrefixTooLong {
        /// The prefix's length in bytes.
        len: usize,
    },
    /// The prefix lies in FoundationDB's own key space.
    #[error(
        "key prefix begins with byte 0xff, which FoundationDB keeps for itself; begin it with another byte"
    )]
    PrefixReserved,
}

/// An operation inside the caller's transaction failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The database refused; hand the error to the transaction's `on_error`.
    #[error("database refused a queue operation")]
    Database(#[from] FdbError),
    /// A key among those of the queue's items is not an item's. No retry helps.
    #[error(
        "key {key} lies among the items of a queue but is none; clear it, or keep other data under another prefix"
    )]
    ForeignKey {
        /// The key, printable.
        key: String,
    },
    /// A running item is looked for among all leases, and these have too many bytes for one transaction.
    #[error(
        "cannot find out whether item {id} is running: the leases of its queue have more than 100 MB of items; look again when fewer items are running"
    )]
    TooMuchRunning {
        /// The item.
        id: ItemId,
    },
    /// A payload is longer than can be stored. No retry helps.
    #[error(
        "payload has {len} bytes, at most {most} are possible; store it elsewhere, and where it is in the item"
    )]
    PayloadTooLong {
        /// Its length in bytes.
        len: usize,
        /// The longest one.
        most: usize,
    },
    /// A value is longer than FoundationDB stores. No retry helps.
    #[error(
        "value has {len} bytes as it is stored, at most {limit} are possible; store it elsewhere and push where it is"
    )]
    ValueTooLarge {
        /// The value's length in bytes.
        len: usize,
        /// The longest possible value in bytes.
        limit: usize,
    },
    /// An item belongs to a queue of another kind. No retry helps.
    #[error(
        "item {id} is in this queue, and no queue of kind {kind} has such items; set the `kind` that its items were pushed with"
    )]
    WrongKind {
        /// The item.
        id: ItemId,
        /// The kind that the queue was opened with.
        kind: Kind,
    },
    /// The queue has items of another kind than the one it was opened with. Nothing was written. No retry helps.
    #[error(
        "cannot use queue \"{queue}\" as one of kind {kind}: it has items of kind {there}; set kind = \"{there}\" and restart daemons that have \
         it otherwise, use another name, or move the items: kvqueue move {queue} OTHER --all --kind {there} --to-kind {kind}"
    )]
    OtherKind {
        /// The queue's name, printable.
        queue: String,
        /// The kind that it was opened with.
        kind: Kind,
        /// The kind of its items.
        there: &'static str,
        /// One of them.
        id: ItemId,
    },
    /// A record of an item is missing or damaged. No retry helps; a [`Session`](crate::Session) makes the
    /// item a dead letter when it fetches it.
    #[error(
        "item {id} cannot be read, what is at key {key} is damaged or missing; use the version that pushed it, or purge it as a dead letter"
    )]
    UnreadableItem {
        /// The item.
        id: ItemId,
        /// The key, or the beginning of keys, printable.
        key: String,
    },
    /// The database's versions are behind those of the queue's items, as after a restore into a new cluster.
    /// A new item would come before these items, or replace one. Advance the versions before you retry.
    #[error(
        "cannot use queue \"{queue}\": the database's version {version} is behind version {item} of its last item, as after a restore \
         into a new cluster; run `fdbcli --exec 'advanceversion {advance}'`"
    )]
    VersionsWentBack {
        /// The queue, printable.
        queue: String,
        /// The database's version.
        version: u64,
        /// That of the last item.
        item: u64,
        /// The version that the database's versions have to be advanced to.
        advance: u64,
    },
    /// This version of kvqueue cannot read the layout of a record. No retry helps.
    #[error(
        "value of key {key} has a layout that this version cannot read; use the version that wrote it, or a newer one"
    )]
    Unreadable {
        /// The key, printable.
        key: String,
    },
    /// The queue is frozen: a migration moves its items to another database, or has moved them. Nothing was pushed.
    #[error("cannot push to queue \"{queue}\": it is frozen, {}; push where the queue is moved to, or resume it", pause.why())]
    Frozen {
        /// The queue's name, printable.
        queue: String,
        /// Since when, and why.
        pause: Pause,
    },
    /// Another pusher has pushed to the queue in this transaction. The second one would replace its items, so
    /// the transaction cannot commit.
    #[error(
        "cannot push to queue \"{queue}\": another pusher has pushed to it in this transaction; pass that pusher on"
    )]
    SecondPusher {
        /// The queue's name, printable.
        queue: String,
    },
    /// An item is to replace another after a push in the same transaction, which the database does not know yet. Nothing was written.
    #[error(
        "cannot replace the item of unique key \"{key}\" in queue \"{queue}\" after another push in the same transaction; push all at once, or in two \
         transactions"
    )]
    ReplacesUncommitted {
        /// The queue's name, printable.
        queue: String,
        /// The unique key, printable.
        key: String,
    },
    /// A queue of this kind cannot have partitions. Nothing was written. No retry helps.
    #[error(
        "cannot divide queue \"{queue}\" into partitions: it is of kind {kind}; only a queue of kind fifo can have them"
    )]
    NotDivisible {
        /// The queue's name, printable.
        queue: String,
        /// Its kind.
        kind: Kind,
    },
    /// Other items were pushed with this idempotency key before. Nothing was pushed. No retry helps.
    #[error(
        "cannot push to queue \"{queue}\" with idempotency key \"{key}\": it was used for other items; repeat a push with the \
         same items, and use a new key for other items"
    )]
    IdempotencyKeyReused {
        /// The queue's name, printable.
        queue: String,
        /// The key, printable.
        key: String,
    },
    /// An item cannot be pushed to a batch that is not there. Nothing was pushed. No retry helps.
    #[error(
        "cannot push to batch {id}: it is not there; it has called back, was cancelled, or never was; make a new one with `kvqueue batch new`"
    )]
    NoBatch {
        /// The batch.
        id: BatchId,
    },
    /// An item can join no further batch: it is a member of [`MAX_ITEM_BATCHES`](crate::model::item_batch::MAX_ITEM_BATCHES), or the header of its lease has no more room. Nothing
    /// was written. It helps to wait for its end.
    #[error(
        "cannot wait for item {id}: it is a member of {MAX_ITEM_BATCHES} batches, or the items that run together with it are members of too many; \
         let one item wait for it, and push the others"
    )]
    TooManyBatches {
        /// The item.
        id: ItemId,
    },
    /// A batch that was committed gets no more items. Nothing was pushed. No retry helps.
    #[error(
        "cannot push to batch {id}: it is committed; push to another one, and commit that after the last push"
    )]
    BatchCommitted {
        /// The batch.
        id: BatchId,
    },
}

impl QueueError {
    /// The database's error, if it was one: what `on_error` wants.
    pub fn database(&self) -> Option<FdbError> {
        match self {
            Self::Database(error) => Some(*error),
            Self::ForeignKey { .. }
            | Self::TooMuchRunning { .. }
            | Self::PayloadTooLong { .. }
            | Self::ValueTooLarge { .. }
            | Self::WrongKind { .. }
            | Self::OtherKind { .. }
            | Self::UnreadableItem { .. }
            | Self::VersionsWentBack { .. }
            | Self::Unreadable { .. }
            | Self::Frozen { .. }
            | Self::SecondPusher { .. }
            | Self::ReplacesUncommitted { .. }
            | Self::NotDivisible { .. }
            | Self::IdempotencyKeyReused { .. }
            | Self::NoBatch { .. }
            | Self::TooManyBatches { .. }
            | Self::BatchCommitted { .. } => None,
        }
    }

    /// The pause of the frozen queue, if the operation was refused for that.
    pub fn frozen(&self) -> Option<&Pause> {
        match self {
            Self::Frozen { pause, .. } => Some(pause),
            _ => None,
        }
    }

    /// Sets a failure to read one record apart from a failure of the whole operation, which is the outer error.
    pub(crate) fn if_readable<T>(read: Result<T, QueueError>) -> Result<Result<T, QueueError>, QueueError> {
        match read {
            Err(error @ (Self::Unreadable { .. } | Self::UnreadableItem { .. } | Self::WrongKind { .. })) => {
                Ok(Err(error))
            }
            read => read.map(Ok),
        }
    }

    /// A push by a second pusher.
    pub(crate) fn second_pusher(queue: &[u8]) -> QueueError {
        QueueError::SecondPusher { queue: queue.escape_ascii().to_string() }
    }

    /// A push that would have to replace what its own transaction has pushed.
    pub(crate) fn replaces_uncommitted(queue: &[u8], key: &[u8]) -> QueueError {
        QueueError::ReplacesUncommitted {
            queue: queue.escape_ascii().to_string(),
            key: key.escape_ascii().to_string(),
        }
    }

    /// A push of other items with a used idempotency key.
    pub(crate) fn key_reused(queue: &[u8], key: &[u8]) -> QueueError {
        QueueError::IdempotencyKeyReused {
            queue: queue.escape_ascii().to_string(),
            key: key.escape_ascii().to_string(),
        }
    }

    /// An item that cannot be read.
    pub(crate) fn unreadable_item(id: &ItemId, key: &[u8]) -> QueueError {
        QueueError::UnreadableItem { id: id.clone(), key: key.escape_ascii().to_string() }
    }

    /// A record that cannot be read.
    pub(crate) fn unreadable(key: &[u8]) -> QueueError {
        QueueError::Unreadable { key: key.escape_ascii().to_string() }
    }
}

/// A push failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// A payload is longer than is accepted. Nothing was written.
    #[error("payload has {len} bytes, at most {limit} are possible; store it elsewhere and push where it is")]
    PayloadTooLarge {
        /// The payload's length in bytes.
        len: usize,
        /// The longest possible payload in bytes.
        limit: usize,
    },
    /// The limit given for payloads is itself too high.
    #[error(
        "limit of {limit} bytes for a payload is more than fits into a transaction; lower it to {most} or less"
    )]
    LimitTooHigh {
        /// The limit in bytes.
        limit: usize,
        /// The limit.
        most: usize,
    },
    /// An item's attributes are too long. Nothing was written.
    #[error(
        "attributes have {len} bytes with 8 added for each, at most {limit} are possible; put what is long into the payload"
    )]
    AttributesTooLarge {
        /// The length of names and values, and 8 for each attribute.
        len: usize,
        /// The most there may be.
        limit: usize,
    },
    /// An item's content type or trace parent is too long. Nothing was written.
    #[error("{what} has {len} bytes, at most {limit} are possible; shorten it")]
    TextTooLong {
        /// Which of them.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The longest possible in bytes.
        limit: usize,
    },
    /// An item's content type has a NUL character. Nothing was written.
    #[error("content type has a NUL character, which no command or webhook can be given; remove it")]
    NulInContentType,
    /// A unique key or idempotency key is empty or too long. Nothing was written.
    #[error("{what} has {len} bytes, 1 to {limit} are possible; give it another")]
    KeyLength {
        /// Which of them.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The longest possible in bytes.
        limit: usize,
    },
    /// All that is known of an item in addition to its payload is too long. Nothing was written.
    #[error(
        "side record has {len} bytes, at most {limit} are possible; leave out fields that are not needed"
    )]
    RecordTooLarge {
        /// Its length in bytes.
        len: usize,
        /// The longest possible in bytes.
        limit: usize,
    },
    /// An item would expire before it becomes ready, or in the same millisecond. Nothing was written.
    #[error(
        "item would expire at {} and become ready at {}, in milliseconds since 1970; let it expire later",
        millis(*.expires),
        millis(*.due)
    )]
    ExpiresBeforeDue {
        /// When it becomes ready.
        due: SystemTime,
        /// When it would expire.
        expires: SystemTime,
    },
    /// An item is to replace another, or to have a unique key for a time, and has no unique key. Nothing was written.
    #[error("item has no unique key, so it can neither have it for a time nor replace another; give it one")]
    NoUniqueKey,
    /// An item is to replace another, and to have its unique key for a time. Nothing was written.
    #[error("item cannot both replace the one that waits and have its unique key for a time; leave one out")]
    ReplacesForATime,
    /// An item is to replace another, and to be a member of a batch. Nothing was written.
    #[error(
        "cannot replace an item by a member of a batch: the one that waits would not be a member; leave one out"
    )]
    ReplacesInBatch,
    /// An item has a priority, and its queue is no priority queue. Nothing was written.
    #[error("priority {priority} is for priority queues, this queue has none; leave it at 0")]
    NoPriorities {
        /// The item's priority.
        priority: i64,
    },
    /// An item has a key, and its queue has no keys. Nothing was written.
    #[error(
        "cannot push an item with a key to a queue of kind {kind}: it has no keys; leave the key out, or set kind = \"keyed\" for the queue"
    )]
    NoKeys {
        /// The kind that the queue was opened with.
        kind: Kind,
    },
    /// An item's key is too long. Nothing was written.
    #[error("key of an item has {len} bytes, at most {limit} are possible; shorten it")]
    ItemKeyTooLong {
        /// The key's length in bytes.
        len: usize,
        /// The longest possible key in bytes.
        limit: usize,
    },
    /// Items of a recipe's queue have random bytes in their keys, and the pusher has none. Nothing was written.
    #[error(
        "pusher to a recipe's queue has no random bytes; give it some with `seeded`, and use `push_items`"
    )]
    NotSeeded,
    /// More pushes in one transaction than there are user versions. The one refused was not written.
    #[error("more than {limit} pushes in one transaction, use several (see `batches`)")]
    TooManyItems {
        /// The most pushes a transaction can hold.
        limit: usize,
    },
    /// All items together exceed FoundationDB's transaction limit. Nothing was written.
    #[error("{items} payloads of {bytes} bytes exceed the size of one transaction, {}", too_large(*items))]
    TransactionTooLarge {
        /// How many payloads there were.
        items: usize,
        /// Their length in bytes, together.
        bytes: usize,
    },
    /// The database refused a read in the caller's transaction; nothing was written to that.
    #[error("cannot push in a transaction")]
    Queue(#[from] QueueError),
    /// The database refused, or retries ran out.
    #[error("cannot push to the queue")]
    Retry(#[from] RetryError),
}

/// The fix if this many items exceed the size of a transaction.
fn too_large(items: usize) -> &'static str {
    match items {
        1 => "and an item needs one alone; store the payload elsewhere and push where it is",
        _ => "use several (see `batches`)",
    }
}

impl PushError {
    /// The database's error, if one in the caller's own transaction was the cause: what `on_error` wants.
    pub fn database(&self) -> Option<FdbError> {
        match self {
            Self::Queue(error) => error.database(),
            _ => None,
        }
    }

    /// The pause of the frozen queue, if the push was refused for that.
    pub fn frozen(&self) -> Option<&Pause> {
        match self {
            Self::Queue(error) => error.frozen(),
            Self::Retry(error) => error.error.frozen(),
            _ => None,
        }
    }

    /// The error, if other items were pushed with the idempotency key before. None of these items is in
    /// the queue, and no retry helps.
    pub fn idempotency_key_reused(&self) -> Option<&QueueError> {
        let error = match self {
            Self::Queue(error) => error,
            Self::Retry(error) => &error.error,
            _ => return None,
        };
        matches!(error, QueueError::IdempotencyKeyReused { .. }).then_some(error)
    }

    /// The error, if the batch is not there, or is committed. None of these items is in the queue, and no retry helps.
    pub fn batch_refused(&self) -> Option<&QueueError> {
        let error = match self {
            Self::Queue(error) => error,
            Self::Retry(error) => &error.error,
            _ => return None,
        };
        matches!(error, QueueError::NoBatch { .. } | QueueError::BatchCommitted { .. }).then_some(error)
    }

    /// Whether the payloads may be in the queue all the same.
    pub fn is_maybe_committed(&self) -> bool {
        matches!(self, Self::Retry(error) if error.is_maybe_committed())
    }
}

/// Items cannot be moved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// Both are the same queue, perhaps of different kinds.
    #[error("queue {name:?} is where the items are already; name another to move them to")]
    SameQueue {
        /// The name.
        name: String,
    },
}

/// A dead letter cannot be retried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeadLetterError {
    /// Another item that is not ended has its unique key.
    #[error(
        "dead letter {id} has a unique key that item {by} has now; retry it when that one is finished, or purge one of them"
    )]
    UniqueTaken {
        /// The dead letter.
        id: ItemId,
        /// The other item.
        by: ItemId,
    },
    /// The database refused, or a record cannot be read.
    #[error("cannot retry a dead letter")]
    Queue(#[from] QueueError),
}

/// A lease could not be extended, or its items not be acknowledged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// The lease has expired, and a sweeper has returned its items. Nothing was written.
    #[error(
        "lease lost: it expired, and its items will be redelivered; lengthen `lease`, or handle fewer items at a time"
    )]
    Lost,
    /// An index names no item of the lease. Nothing was written.
    #[error("lease has {items} items and none of index {index}; use the indexes of `Lease::open`")]
    NoItem {
        /// The index.
        index: usize,
        /// How many items the lease has.
        items: usize,
    },
    /// Items were cancelled, so their outcomes cannot be written in the caller's transaction. Nothing was written.
    #[error(
        "cannot acknowledge {} of the items: they were cancelled; do not commit the transaction", items.len()
    )]
    Cancelled {
        /// Their indexes in the lease.
        items: Vec<usize>,
    },
    /// The outcomes do not fit into one transaction. Nothing was written; the lease is still held.
    #[error(
        "cannot acknowledge {items} items: they do not fit into one transaction; acknowledge fewer at a time, or lower `k`"
    )]
    TooLarge {
        /// How many outcomes there were.
        items: usize,
    },
    /// The database refused a read in the caller's transaction; nothing was written to that.
    #[error("cannot acknowledge items in a transaction")]
    Queue(#[from] QueueError),
    /// The database refused, or retries ran out. The lease may still be held.
    #[error("cannot write to a lease")]
    Retry(#[from] RetryError),
}

impl LeaseError {
    /// Whether the lease is certainly gone.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost)
    }

    /// Whether the change may have been made all the same. Repeating it with the same [`Lease`](crate::Lease) finds that out.
    pub fn is_maybe_committed(&self) -> bool {
        matches!(self, Self::Retry(error) if error.is_maybe_committed())
    }

    /// The error of a change of this many items that failed.
    pub(crate) fn refused(error: RetryError, items: usize) -> LeaseError {
        if error.is_too_large() { Self::TooLarge { items } } else { Self::Retry(error) }
    }
}

/// A fetch or a take failed. The session keeps the items that it may have got: its next fetch or take
/// returns them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The items that were found do not fit into a transaction. Nothing was fetched.
    #[error("cannot fetch up to {k} items: they do not fit into one transaction; lower `k`")]
    TooLarge {
        /// The most items that were asked for.
        k: usize,
        /// The database's refusal.
        #[source]
        error: RetryError,
    },
    /// The database refused, or retries ran out.
    #[error("cannot fetch from the queue")]
    Retry(#[from] RetryError),
}

impl FetchError {
    /// The database's error code, if the database's error ended it.
    pub fn code(&self) -> Option<i32> {
        self.retry().code()
    }

    /// Whether items may have left the queue all the same.
    pub fn is_maybe_committed(&self) -> bool {
        self.retry().is_maybe_committed()
    }

    /// The attempts of the fetch.
    pub fn attempts(&self) -> Attempts {
        self.retry().attempts
    }

    fn retry(&self) -> &RetryError {
        match self {
            Self::TooLarge { error, .. } | Self::Retry(error) => error,
        }
    }

    /// The error of a fetch of up to this many items that failed.
    pub(crate) fn refused(error: RetryError, k: usize) -> FetchError {
        if error.is_too_large() { Self::TooLarge { k, error } } else { Self::Retry(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::retry_error::Attempts;

    fn given_up(code: i32) -> RetryError {
        RetryError { error: FdbError::from_code(code).into(), attempts: Attempts::default() }
    }

    #[test]
    fn size_errors_name_the_option_to_lower() {
        assert_eq!(
            FetchError::refused(given_up(2101), 10_000).to_string(),
            "cannot fetch up to 10000 items: they do not fit into one transaction; lower `k`"
        );
        assert!(matches!(LeaseError::refused(given_up(2103), 5), LeaseError::TooLarge { items: 5 }));
        assert!(matches!(FetchError::refused(given_up(1031), 1), FetchError::Retry(_)));
        let alone = PushError::TransactionTooLarge { items: 1, bytes: 9_000_000 };
        assert!(!alone.to_string().contains("use several"), "{alone}");
    }
}
