//! Push in your own transaction: an item and your own writes are stored together, or neither is.
//!
//! This needs your data and the queue in one database: on a FoundationDB cluster, or in one embedded
//! directory. The layer is the crate `kvqueue-queue`, which is [`kvqueue::queue`](crate::queue).
//!
//! ```
//! use kvqueue::{
//!     queue::{NewItem, PushOptions, Queue},
//!     testing::TestDatabase,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let db = TestDatabase::new()?;
//! let queue = Queue::new(b"", b"emails")?;
//! // One key for each call of `run`, made outside of it.
//! let options = &PushOptions::default().with_idempotency_key("order 17");
//! db.run(|transaction, _maybe_committed| {
//!     let queue = queue.clone();
//!     async move {
//!         transaction.set(b"order/17", b"two pounds of tea");
//!         let items = [NewItem::new("order 17 has come in")];
//!         queue.pusher(&transaction).push_items(&items, options).await?;
//!         Ok(())
//!     }
//! })
//! .await?;
//!
//! let transaction = db.create_trx()?;
//! assert_eq!(queue.counts(&transaction).await?.ready, 1);
//! assert!(transaction.get(b"order/17", false).await?.is_some());
//! # Ok(())
//! # }
//! ```
//!
//! # An unknown outcome
//!
//! A commit can end with error 1021, `commit_unknown_result`: the connection broke, and the transaction may
//! have committed or not. `Database::run` then runs your closure again, with `maybe_committed` set. If the
//! first attempt had committed, everything in the closure happens a second time:
//!
//! - `set` of the same value does no harm: it is idempotent.
//! - An addition, or a push without a key, takes place twice.
//!
//! So give a push one of these:
//!
//! | | what it does | when to use it |
//! |---|---|---|
//! | [`with_idempotency_key`](crate::queue::PushOptions::with_idempotency_key) | a push with a key that was used before adds nothing. The queue keeps keys for a day by default | nearly always |
//! | [`NewItem::unique`](crate::queue::NewItem::unique) | an item is not added while one with the same unique key is ready, scheduled or running | if that is what you want anyway |
//! | a read of your own | look in the transaction whether your record is there already, and skip the push then | if your record is written once and never deleted |
//!
//! The key must be the same in each attempt of one call, and another one for the next call. So make it outside
//! of the closure: from your own data, as above, or at random.
//!
//! Errors of the layer convert to `FdbBindingError`, so `?` in the closure lets `Database::run` retry
//! conflicts.
//!
//! # Without a transaction of your own
//!
//! [`Session::push`](crate::queue::Session::push) and `push_items` run a transaction for you, and find out
//! what an unknown outcome was: each payload is stored exactly once without a key. A key still helps if the
//! process can die before it has the answer. Many tasks that push single items share transactions through one
//! [`Producer`](crate::queue::Producer).
//!
//! # What a transaction of your own costs
//!
//! A commit costs about as much with one item as with a hundred. So if nothing else is stored with an item, push it
//! through a `Producer`: 1,000 tasks of a process push about 88,000 items a second to a cluster that way, and
//! about 24,000 in a transaction each.
//!
//! On a cluster all transactions of a process pass through one thread of FoundationDB's client library. A thousand
//! at a time delay each fetch and each extension of a lease of the same process several times as much as 256 do.
//! Sessions therefore limit their pushes to 256 at a time. Transactions of your own have no limit: if many
//! tasks commit them at the same time in a process that also handles items, limit them in your program, for
//! example by a semaphore with 256 permits.
//!
//! # Limits
//!
//! - One pusher per queue and transaction: a second one is refused with
//!   [`QueueError::SecondPusher`](crate::queue::QueueError::SecondPusher). Keep the
//!   [`Pusher`](crate::queue::Pusher) and push several times.
//! - FoundationDB's limits hold: 10 MB per transaction, 5 seconds from its first read.
//! - The transaction must not write keys of the queue by itself.
