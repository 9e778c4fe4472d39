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
//!     for item in taken.got {
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
//! Points in time are [`SystemTime`](std::time::SystemTime)s and spans [`Duration`](std::time::Duration)s. The database has times in whole milliseconds;
//! [`millis`] tells how they are rounded. A [`Calendar`](schedule::Calendar) counts them.
//!
//! The crate starts no background task. Operations read no clock and no random source: time limits are
//! FoundationDB's own ([`RetryPolicy`]), and times and the clock of a [`VersionHistory`] come from the
//! caller. Only [`SessionId::new`] makes random bytes; with given ids a run can be repeated.
//!
//! Where things are, from the top; each uses only what is below it. `client/` is what programs use. `ops/` has the bodies of transactions, one
//! operation per file. `run/` runs a transaction until it has committed: [`retry`] what may be repeated, `exactly_once` what may not. `keys/` is
//! the contract on disk, one record type per file. `model/` has the values. The feature `migration` adds access to the rows of queues as they are stored.

mod client;
mod keys;
mod model;
mod ops;
mod run;
#[cfg(test)]
mod testing;

#[cfg(feature = "migration")]
pub use client::migration;
pub use client::{recipes, session};
pub use model::{item_batch, schedule};
pub use run::retry;

pub use client::approach::{Approach, Spread, Staged};
pub use client::canceller::Canceller;
pub use client::lease::{Acknowledgement, CommitStatus, Lease, acknowledge_together};
pub use client::mover::{MoveCounts, Mover};
pub use client::producer::{Driver, ProduceError, Producer};
pub use client::queue::{Queue, all_queues};
pub use client::recount::{RowCounter, text_queues};
pub use client::session::{FetchOptions, Fetched, Pushed, Session, Share};
pub use client::suspects::Quarantine;
pub use client::sweep_tokens::{SweptTokens, TokenPlace, sweep_tokens};
pub use client::sweeper::{Clock, SweepCounts, SweepRules, Sweeper, Swept};
pub use model::batch::{BatchLimits, Batches, batches, batches_by};
pub use model::cancel::{CancelCounts, CancelFilter};
pub use model::clocks::{Believed, ClocksDiffer};
pub use model::counts::{Counts, Unfinished};
pub use model::dead::{AllDead, DeadLetter};
pub use model::error::{
    DeadLetterError, FetchError, LeaseError, MoveError, NameError, PushError, QueueError,
};
pub use model::history::{
    EndedItem, Ending, HistoryCursor, HistoryFilter, HistoryIndex, HistoryIndexError, HistoryPage,
    MAX_HISTORY, MAX_INDEXED, MAX_INDEXED_NAME, MAX_RESULT, MAX_WORKER, ParseEndingError,
    ParseHistoryCursorError,
};
pub use model::holds::{HeldBy, HeldKey};
pub use model::id::{ItemId, ParseIdError};
pub use model::item::Item;
pub use model::item_change::ItemChange;
pub use model::kind::{End, Kind, Packing};
pub use model::lease_id::{LeaseId, ParseLeaseIdError};
pub use model::limits::{LimitError, Limits, Pattern, Scope};
pub use model::meta::{Failure, MAX_FAILURES, MAX_REASON, Meta};
pub use model::new_item::{IfTaken, NewItem, PushOptions};
pub use model::outcome::ItemOutcome;
pub use model::partitions::{MAX_PARTITIONS, Partitions, PartitionsError};
pub use model::pause::Pause;
pub use model::progress::{MAX_PROGRESS_MESSAGE, Progress};
pub use model::pushed::{PendingPush, PushEffect, PushedItem};
pub use model::rate::Rate;
pub use model::recorder::{Recorder, Recording};
pub use model::recount::{Counted, IndexFaults, Recount};
pub use model::retry_error::{Attempts, RetryError};
pub use model::rules::{OnExpiry, RetryRules};
pub use model::scheduled::{Requeued, ScheduledItem};
pub use model::session_id::SessionId;
pub use model::sizes::{
    MAX_ATTRIBUTES, MAX_ITEM_KEY, MAX_KEY, MAX_NAME, MAX_PAYLOAD, MAX_PREFIX, MAX_PUSHES, MAX_TAKE_BYTES,
    MAX_TEXT, MAX_VALUE, PAYLOAD_CEILING,
};
pub use model::stamp::{ParseStampError, Stamp};
pub use model::stored::{State, StoredItem};
pub use model::time::{from_millis, millis};
pub use model::view::{
    Cursor, ItemPage, ItemState, ItemView, LeaseView, ParseCursorError, ParseItemStateError,
};
pub use model::waiting::{AtLeast, Waiting, WaitsOn};
pub use ops::pop::Popped;
pub use ops::push::Pusher;
pub use ops::queues::{QueuePage, queues, queues_page, queues_page_named};
pub use ops::relocate::Movable;
pub use ops::wait::{ItemPlace, ItemWatch};
pub use run::retry::RetryPolicy;
pub use run::version_history::VersionHistory;
pub use run::watch::Watch;
