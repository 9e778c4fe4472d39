//! kvqueue: a durable queue on FoundationDB or in a local directory, and the daemon that processes it.
//!
//! | you want to | read |
//! |---|---|
//! | handle items with a function of your program | [`Worker`] |
//! | process items with Rust code | [`docs::write_a_handler`] |
//! | test that code | [`docs::test_your_handler`] |
//! | run the daemon inside your program | [`docs::embed_the_daemon`] |
//! | push an item together with your own writes | [`docs::push_in_your_transaction`] |
//!
//! This crate is the daemon and its commands. The queue itself is the crate `kvqueue-queue`, here as
//! [`queue`]; the database in a local directory is `fdb-embedded`.
//!
//! ```no_run
//! use kvqueue::{Context, Handler, Item, Outcome, SettingsError};
//!
//! struct Print;
//!
//! #[kvqueue::async_trait]
//! impl Handler for Print {
//!     async fn handle(&self, item: &Item, _: &Context) -> Outcome {
//!         println!("{}", String::from_utf8_lossy(&item.payload));
//!         Outcome::Done
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     kvqueue::cli::main_with(|daemon| daemon.handler("print", |_| Ok::<_, SettingsError>(Print))).into()
//! }
//! ```

#![cfg_attr(
    not(feature = "cli"),
    expect(dead_code, unused_imports, reason = "commands and HTTP use the rest")
)]

#[cfg(feature = "http")]
mod access;
mod actors;
mod audit;
mod base;
#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
mod consumer;
mod control;
pub mod daemon;
pub mod database;
pub mod docs;
pub mod handlers;
#[cfg(feature = "http")]
mod http;
#[cfg(not(feature = "http"))]
#[path = "http/absent.rs"]
mod http;
pub mod lifecycle;
mod meters;
mod metrics;
#[cfg(feature = "http")]
mod operations;
mod schedules;
mod stats;
mod status;
mod sweep;
mod systemd;
pub mod telemetry;
pub mod testing;
mod worker;

pub use async_trait::async_trait;
pub use base::exit;
pub use base::exit::Exit;
pub use config::{Config, ConfigError};
#[cfg(feature = "testing")]
pub use consumer::state::{Event, Found};
pub use daemon::{Daemon, DaemonError};
pub use foundationdb;
pub use handlers::{
    BatchHandler, Context, Handler, Json, JsonBatchHandler, JsonHandler, Outcome, Settings, SettingsError,
};
pub use kvqueue_queue::{self as queue, Failure, Item, ItemId, Meta, Scope, Stamp};
pub use worker::{IntoOutcome, Worker};
