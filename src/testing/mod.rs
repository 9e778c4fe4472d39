//! Trying a handler out in a unit test: without a daemon, without a queue and, unless its writes
//! are to be looked at, without a database.
//!
//! A [`Kit`] holds the handler and calls it as the daemon would: on a multi-threaded runtime, in a
//! task of its own, with a time limit, behind a boundary that panics do not cross. A [`Sample`] is
//! an item to call it with.
//!
//! ```
//! use kvqueue::{Context, Handler, Item, Outcome, testing::{Kit, Sample}};
//!
//! /// Gives up after three attempts.
//! struct Picky;
//!
//! #[kvqueue::async_trait]
//! impl Handler for Picky {
//!     async fn handle(&self, item: &Item, _: &Context) -> Outcome {
//!         match (item.attribute("colour"), item.attempt) {
//!             (Some("green"), _) => Outcome::Done,
//!             (_, ..3) => Outcome::retry("not green"),
//!             _ => Outcome::dead("never green"),
//!         }
//!     }
//! }
//!
//! # futures::executor::block_on(async {
//! let kit = Kit::new(Picky);
//! assert_eq!(kit.handle("a leaf").await, Outcome::retry("not green"));
//! assert_eq!(kit.handle(Sample::new("a leaf").attempt(3)).await, Outcome::dead("never green"));
//! assert_eq!(kit.handle(Sample::new("a leaf").attribute("colour", "green")).await, Outcome::Done);
//! # });
//! ```
//!
//! With exactly-once delivery a handler writes into
//! [`Context::transaction`](crate::Context::transaction). For that there is a [`TestDatabase`],
//! which shows what was committed:
//!
//! ```
//! # use kvqueue::{Context, Handler, Item, Outcome, testing::{Kit, TestDatabase}};
//! /// Keeps the newest payload.
//! struct Newest;
//!
//! #[kvqueue::async_trait]
//! impl Handler for Newest {
//!     async fn handle(&self, item: &Item, context: &Context) -> Outcome {
//!         let Some(transaction) = context.transaction() else {
//!             return Outcome::dead("the queue needs delivery = \"exactly-once\"");
//!         };
//!         transaction.set(b"newest", &item.payload);
//!         Outcome::Done
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # futures::executor::block_on(async {
//! let database = TestDatabase::new()?;
//! let kit = Kit::new(Newest).exactly_once(&database);
//! assert_eq!(kit.handle("news").await, Outcome::Done);
//! assert_eq!(database.get(b"newest").await?.as_deref(), Some(&b"news"[..]));
//! # Ok(())
//! # })
//! # }
//! ```

mod database;
mod kit;
mod sample;
#[cfg(test)]
mod tests;

pub use database::{TestDatabase, TestDatabaseError};
pub use kit::Kit;
pub use sample::Sample;
