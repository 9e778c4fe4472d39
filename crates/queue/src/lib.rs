//! The queue layer: a durable queue as functions over a FoundationDB transaction.
//!
//! A [`Queue`] is a name in a key space. Its methods put reads and writes into your own transaction, so that a
//! push or a pop can be one step with your other writes. A [`Session`] is the identity of one producer or
//! consumer at a queue. Its methods run whole transactions, and find out the outcome of a commit if it is
//! unknown.
//!
//! ```no_run
//! use std::{num::NonZeroUsize, sync::Arc};
//!
//! use foundationdb::Database;
//! use kvqueue_queue::{NewItem, Producer, PushOptions, Queue, Session};
//!
//! # async fn example(db: Arc<Database>) -> Result<(), Box<dyn std::error::Error>> {
//! let queue = Queue::new(b"", b"emails")?;
//!
//! // One producer for all tasks of the process: items that they push at the same time share a transaction.
//! let (producer, driver) = Producer::new(Session::new(queue.clone()), Arc::clone(&db));
//! tokio::spawn(driver.run());
//! producer.push(NewItem::new("welcome, ann")).await?;
//!
//! // In your own transaction: the order and the email about it are stored together, or neither is. If
//! // the outcome of a commit is unknown, `run` repeats the transaction. The idempotency key makes sure
//! // that the email is pushed once all the same; make one for each call of `run`, outside of it.
//! let options = &PushOptions::default().with_idempotency_key("order 17");
//! db.run(|tr, _maybe_committed| {
//!     let queue = queue.clone();
//!     async move {
//!         tr.set(b"order/17", b"two pounds of tea");
//!         queue.pusher(&tr).push_items(&[NewItem::new("order 17 has come in")], options).await?;
//!         Ok(())
//!     }
//! })
//! .await?;
//!
//! // Or as a consumer: take what there is, and wait where there is nothing.
//! let mut session = Session::new(queue);
//! loop {
//!     let taken = session.take(&db, NonZeroUsize::MIN).await?;
//!     for item in taken.items {
//!         println!("{}: {:?}", item.id, item.payload);
//!     }
//!     if let Some(watch) = taken.watch {
//!         watch.await?;
//!     }
//! }
//! # }
//! ```
//!
//! Promises, each with a test that could break it:
//!
//! * Keys and values are those of the Erlang KvQueue, byte for byte (`docs/KEYSPACE.md`), so programs written from
//!   it work on the same queue. What is ours lies next to them.
//! * Items leave in the order their pushes committed; within one transaction, in the order they were pushed.
//! * A push conflicts only with its own retries, with a pause of the queue, and with pushes of the same unique
//!   key or idempotency key. So any number of producers push in parallel.
//! * At most one item with a given unique key is ready, scheduled or running. A push with an idempotency key
//!   happens once, from whatever process, as long as the queue keeps the key.
//! * [`Session::push`] stores each payload exactly once, and [`Session::take`] returns each item at most once,
//!   also if the outcome of a commit is unknown. If a take is interrupted after it has removed items, the
//!   session's next take returns them.
//! * The transaction that armed a [`Watch`] has committed, so the watch notices every push after it.
//! * At no version do more items of a keyed queue's scope run than its limit, unless the limit was lowered while they ran. A scope with free slots has no key that
//!   waits for one.
//! * Each nominal time of a [schedule](schedule::Schedule) fires once at most, however many processes sweep its queue, and whatever becomes of them.
//! * An item that has expired before its first attempt is never fetched once a sweeper has ended it, and it ends once.
//! * A [batch](item_batch) calls back once, when it is committed and all its members have ended, or at its deadline.
//! * `npush - npop` is the number of items in a FIFO queue at every committed version, and in a recipe's as long as its items come and
//!   go by this layer alone. `npush + nlater - ndue - nback` is the number of items that were ever pushed.
//!
//! The crate starts no background task. Operations read no clock and no random source: time limits are
//! FoundationDB's own ([`RetryPolicy`]), and times and the clock of a [`VersionHistory`] come from the
//! caller. Only [`SessionId::new`] makes random bytes; with given ids a run can be repeated.
//!
//! Where things are: `keys/` is the contract on disk, one record type per file; `ops/` holds one transaction body per
//! file; `operation.rs` runs what must commit exactly once, and [`retry`] what may be repeated. The feature `migration` adds
//! access to the rows of queues as they are stored.

mod approach;
mod batch;
mod binding;
mod canceller;
mod clocks;
mod counts;
mod dead;
mod delayed;
mod error;
mod history;
mod holds;
mod id;
mod item;
pub mod item_batch;
mod item_change;
mod item_wait;
mod keys;
mod kind;
mod lease;
mod limits;
mod marked;
mod meta;
#[cfg(feature = "migration")]
pub mod migration;
mod mover;
mod new_item;
mod operation;
mod ops;
mod partitions;
mod producer;
mod progress;
mod pushed;
mod queue;
mod rate;
pub mod recipes;
mod recorder;
mod recount;
pub mod retry;
mod rng;
mod rules;
pub mod schedule;
pub mod session;
mod sightings;
mod single;
mod stored;
mod suspects;
mod sweeper;
#[cfg(test)]
mod testing;
mod time;
mod turn;
mod version_history;
mod view;
mod waiting;
mod watch;

pub use approach::{Approach, Spread, Staged};
pub use batch::{BatchLimits, Batches, batches, batches_by};
pub use canceller::{CancelCounts, CancelFilter, Canceller};
pub use clocks::{Believed, ClocksDiffer};
pub use counts::{Counts, Unfinished};
pub use dead::{AllDead, DeadLetter, DeadLetterEffect};
pub use delayed::{Requeued, ScheduledItem};
pub use error::{DeadLetterError, FetchError, LeaseError, MoveError, NameError, PushError, QueueError};
pub use history::{
    EndedItem, Ending, HistoryCursor, HistoryFilter, HistoryIndex, HistoryIndexError, HistoryPage,
    MAX_HISTORY, MAX_INDEXED, MAX_INDEXED_NAME, MAX_RESULT, MAX_WORKER, ParseEndingError,
    ParseHistoryCursorError,
};
pub use holds::{HeldBy, HeldKey};
pub use id::{ItemId, ParseIdError};
pub use item::{Item, ParseStampError, Stamp};
pub use item_change::ItemChange;
pub use item_wait::{ItemPlace, ItemWatch};
pub use keys::leases::{LeaseId, ParseLeaseIdError};
pub use keys::pause::Pause;
pub use kind::{End, Kind, Packing};
pub use lease::{Acknowledgement, CommitStatus, ItemOutcome, Lease, acknowledge_together};
pub use limits::{LimitError, Limits, Pattern, Scope};
pub use meta::{Failure, MAX_FAILURES, MAX_REASON, Meta, Millis};
pub use mover::{MoveCounts, Mover};
pub use new_item::{IfTaken, NewItem, PushOptions};
pub use ops::pop::Popped;
pub use ops::push::Pusher;
pub use ops::queues::{QueuePage, queues, queues_page, queues_page_named};
pub use ops::relocate::Movable;
pub use ops::sweep_tokens::{SweptTokens, TokenPlace, sweep_tokens};
pub use partitions::{MAX_PARTITIONS, Partitions, PartitionsError};
pub use producer::{Driver, ProduceError, Producer};
pub use progress::{MAX_PROGRESS_MESSAGE, Progress};
pub use pushed::{PendingPush, PushEffect, PushedItem};
pub use queue::{Queue, all_queues};
pub use rate::Rate;
pub use recorder::{Recorder, Recording};
pub use recount::{Counted, IndexFaults, Recount, RowCounter, text_queues};
pub use retry::{Attempts, RetryError, RetryPolicy};
pub use rules::{OnExpiry, RetryRules};
pub use session::{FetchOptions, Fetched, FetchedFor, Pushed, Session, SessionId, Share, Taken};
pub use single::ItemEffect;
pub use stored::{State, StoredItem};
pub use suspects::Quarantine;
pub use sweeper::{Clock, SweepCounts, SweepRules, Sweeper, Swept};
pub use time::{from_millis, millis};
pub use version_history::VersionHistory;
pub use view::{Cursor, ItemPage, ItemState, ItemView, LeaseView, ParseCursorError, ParseItemStateError};
pub use waiting::{AtLeast, Waiting, WaitsOn};
pub use watch::Watch;

/// The longest value in bytes: FoundationDB's limit. Longer payloads are stored in several.
pub const MAX_VALUE: usize = 100_000;

/// The longest payload in bytes, unless [`PushOptions::max_payload`] says otherwise.
pub const MAX_PAYLOAD: usize = 8 << 20;

/// The longest payload in bytes that can be allowed: it has to fit into one transaction of FoundationDB's, of 10,000,000 bytes, with
/// the keys of its parts.
pub const PAYLOAD_CEILING: usize = 9_000_000;

/// The most bytes of an item's attributes: names and values, and 8 for each.
pub const MAX_ATTRIBUTES: usize = 16 << 10;

/// The longest content type and the longest trace parent in bytes.
pub const MAX_TEXT: usize = 1 << 10;

/// The longest unique key and the longest idempotency key in bytes.
pub const MAX_KEY: usize = 1 << 10;

/// The most bytes that one take gathers, since FoundationDB asks for transactions of at most 1 MB: payloads, side records, and what the database counts for removing them. A single item may
/// have more. A fetch of a keyed queue takes up to 3.5 MB more for the places of the keys that it serves.
pub const MAX_TAKE_BYTES: usize = 1_000_000;

/// The longest key of an item, and the longest pattern of a rule, in bytes.
pub const MAX_ITEM_KEY: usize = 256;

/// The longest queue name in bytes.
pub const MAX_NAME: usize = 255;

/// The longest prefix in bytes. It leaves room below FoundationDB's limit of 10,000 bytes for a name whose
/// every byte needs escaping.
pub const MAX_PREFIX: usize = 4_096;

/// The most pushes to one queue in one transaction: user versions have 16 bits.
pub const MAX_PUSHES: usize = 1 << 16;
