//! Test your handler: in a unit test, without a daemon and without a queue.
//!
//! # One call
//!
//! A [`Kit`](crate::testing::Kit) calls a handler as the daemon does: in a task of its own, with a time limit,
//! and with panics contained. Text and bytes are items for it; a [`Sample`](crate::testing::Sample) is an item
//! with more than a payload.
//!
//! ```
//! use std::time::Duration;
//!
//! use kvqueue::{
//!     Context, Handler, Item, Outcome,
//!     testing::{Kit, Sample},
//! };
//!
//! struct Call;
//!
//! #[kvqueue::async_trait]
//! impl Handler for Call {
//!     async fn handle(&self, item: &Item, context: &Context) -> Outcome {
//!         match item.attribute("line") {
//!             Some("busy") if item.attempt < 3 => Outcome::retry("busy"),
//!             Some("busy") => Outcome::dead("busy three times"),
//!             Some("silent") => {
//!                 context.cancelled.cancelled().await;
//!                 Outcome::Release
//!             }
//!             _ => Outcome::Done,
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let kit = Kit::new(Call);
//! assert_eq!(kit.handle("ann").await, Outcome::Done);
//!
//! let busy = Sample::new("bob").attribute("line", "busy");
//! assert_eq!(kit.handle(busy.clone()).await, Outcome::retry("busy"));
//! assert_eq!(kit.handle(busy.attempt(3)).await, Outcome::dead("busy three times"));
//!
//! let silent = Sample::new("eve").attribute("line", "silent");
//! let limited = kit.handler_timeout(Duration::from_millis(50));
//! assert!(matches!(limited.handle(silent).await, Outcome::Retry(reason) if reason.contains("handler-timeout")));
//! # }
//! ```
//!
//! # Batches
//!
//! [`Kit::batch`](crate::testing::Kit::batch) is for a [`BatchHandler`](crate::BatchHandler), and
//! [`Kit::handle_all`](crate::testing::Kit::handle_all) gives it several items in one call.
//!
//! # Exactly-once writes
//!
//! With a [`TestDatabase`](crate::testing::TestDatabase) the handler gets transactions, which are committed if
//! it returns `Done`. [`Kit::conflicts`](crate::testing::Kit::conflicts) lets some of them fail, so that the
//! handler runs again, as it does in production:
//!
//! ```
//! use kvqueue::{
//!     Context, Handler, Item, Outcome,
//!     testing::{Kit, TestDatabase},
//! };
//!
//! /// Counts items.
//! struct Count;
//!
//! #[kvqueue::async_trait]
//! impl Handler for Count {
//!     async fn handle(&self, _: &Item, context: &Context) -> Outcome {
//!         let Some(transaction) = context.transaction() else {
//!             return Outcome::dead("the queue needs delivery = \"exactly-once\"");
//!         };
//!         match transaction.get(b"count", false).await {
//!             Ok(count) => {
//!                 let count = count.map_or(0, |count| count[0]);
//!                 transaction.set(b"count", &[count + 1]);
//!                 Outcome::Done
//!             }
//!             Err(error) => Outcome::retry(error),
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let database = TestDatabase::new()?;
//! let kit = Kit::new(Count).exactly_once(&database).conflicts(2);
//! assert_eq!(kit.handle_all(["a", "b"]).await, [Outcome::Done, Outcome::Done]);
//! assert_eq!(database.get(b"count").await?, Some(vec![2]));
//! # Ok(())
//! # }
//! ```
//!
//! # The whole daemon
//!
//! A test can also run the daemon itself on a temporary directory:
//! [`embed_the_daemon`](super::embed_the_daemon) shows how. `examples/greeter/tests/daemon.rs` starts the
//! program, pushes to it and stops it.
