//! Write a handler: a Rust value that processes the items of a queue.
//!
//! # The program
//!
//! A handler has one method, which gets an item and returns an [`Outcome`](crate::Outcome). A `main` of a few
//! lines registers it under a name that the configuration can use:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use kvqueue::{Context, Handler, Item, Outcome, Settings, SettingsError};
//!
//! /// The table [queues.NAME.handler-config] of the configuration.
//! #[derive(serde::Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Email {
//!     from: String,
//! }
//!
//! impl Email {
//!     fn from_config(settings: &Settings) -> Result<Self, SettingsError> {
//!         settings.parse()
//!     }
//! }
//!
//! #[kvqueue::async_trait]
//! impl Handler for Email {
//!     async fn handle(&self, item: &Item, _: &Context) -> Outcome {
//!         let Ok(to) = std::str::from_utf8(&item.payload) else {
//!             return Outcome::dead("the address is not UTF-8");
//!         };
//!         println!("{} writes to {to}", self.from);
//!         Outcome::Done
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     kvqueue::cli::main_with(|daemon| daemon.handler("email", Email::from_config)).into()
//! }
//! ```
//!
//! The program is `kvqueue` with all its commands: `run` processes a queue whose configuration has
//! `handler = "email"`, and `config check` and `doctor` know its settings. `examples/greeter` is such a
//! crate, to copy. Its README has the `Cargo.toml` of a repository of your own.
//!
//! # The outcome
//!
//! | outcome | the item |
//! |---|---|
//! | [`Done`](crate::Outcome::Done) | is finished |
//! | [`Retry`](crate::Outcome::Retry), [`RetryAfter`](crate::Outcome::RetryAfter) | is tried again after a pause; after its last attempt it is a dead letter |
//! | [`Dead`](crate::Outcome::Dead) | is a dead letter at once: no retry can help |
//! | [`Release`](crate::Outcome::Release) | goes back to its place; no attempt is spent |
//! | [`Unavailable`](crate::Outcome::Unavailable) | goes back, and the queue slows down until the handler works again |
//! | [`UnavailableAfter`](crate::Outcome::UnavailableAfter) | the same, and the item waits for that time, so that others are tried |
//! | [`Throttle`](crate::Outcome::Throttle) | goes back; no attempt is spent, and no item of its key, its tenant or its queue starts for that time |
//!
//! A panic and the end of `handler-timeout` are failed attempts, as `Retry` is.
//!
//! # What a handler has to bear
//!
//! - **An item may be redelivered.** With at-least-once delivery, the default, an item is handled again if the
//!   daemon dies, or loses its lease, before the outcome is stored. So make the work repeatable, for example
//!   with the item's id as a key.
//! - **Exactly-once writes** are possible into the database of the queue: with
//!   `delivery = "exactly-once"`, what a handler writes into
//!   [`Context::transaction`](crate::Context::transaction) commits together with the end of the item.
//! - **Cancellation.** If [`Context::cancelled`](crate::Context::cancelled) fires, the outcome no longer
//!   counts. A second later the call is dropped.
//! - **Blocking.** Handlers share a pool of threads. Work that blocks for long belongs in
//!   `tokio::task::spawn_blocking`.
//!
//! # Payloads that are JSON
//!
//! A [`JsonHandler`](crate::JsonHandler) gets payloads as values of a type. A payload that does not parse
//! becomes a dead letter with serde's error as its reason:
//!
//! ```
//! use kvqueue::{Context, Daemon, Item, Json, JsonHandler, Outcome, SettingsError};
//!
//! #[derive(serde::Deserialize)]
//! struct Order {
//!     article: String,
//!     pieces: u32,
//! }
//!
//! struct Ship;
//!
//! #[kvqueue::async_trait]
//! impl JsonHandler for Ship {
//!     type Payload = Order;
//!
//!     async fn handle(&self, order: Order, _: &Item, _: &Context) -> Outcome {
//!         println!("{} pieces of {}", order.pieces, order.article);
//!         Outcome::Done
//!     }
//! }
//!
//! let daemon = Daemon::default().handler("ship", |_| Ok::<_, SettingsError>(Json(Ship)));
//! ```
//!
//! # Several items in one call
//!
//! A [`BatchHandler`](crate::BatchHandler) gets all items of a fetch at once and returns an outcome for
//! each; [`JsonBatchHandler`](crate::JsonBatchHandler) parses them. Register it with
//! [`Daemon::batch_handler`](crate::Daemon::batch_handler).
//!
//! Next: [`test_your_handler`](super::test_your_handler).
