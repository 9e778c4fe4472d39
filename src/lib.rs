//! kvqueue: a durable queue on FoundationDB, and the daemon that works it off.
//!
//! The queue itself is the crate `kvqueue-queue`; the database in a local directory is `fdb-embedded`. Here is what
//! runs on top of them.
//!
//! | module | role |
//! |---|---|
//! | [`daemon`] | wires everything: a configuration becomes running consumers |
//! | [`handlers`] | what is done with items, and how to add to it |
//! | [`config`] | the settings, their layers and checks |
//! | `consumer` | a consumer's decisions, takes and dispatches |
//! | `actors` | supervisor and consumers as actors |
//! | [`lifecycle`] | signals, drain, reasons to end |
//! | [`database`] | opening the database |
//! | `absent` | queues that there are not |
//! | `pause` | queues that are paused for all daemons |
//! | `sweep` | delayed items, leases that ran out, what nobody needs any more |
//! | [`testing`] | calling a handler in a unit test |
//! | `status`, `metrics` | what the daemon reports of itself, and what it counts |
//! | `stats` | how many items the queues have, read from the database |
//! | `control` | orders to a running daemon |
//! | `deadlines` | how long each waits for the next |
//! | `http` | who asks and tells it from outside |
//! | [`telemetry`], `systemd` | what the outside is told |
//! | `causes` | errors in a line |
//! | `json` | items and dead letters as JSON |
//! | [`cli`] | the commands |
//! | [`exit`] | exit codes |
//!
//! # A daemon with a handler of one's own
//!
//! `examples/greeter` is a crate that does this and more.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use kvqueue::{Context, Handler, Item, Outcome, Settings, SettingsError};
//!
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
//!         println!("{} writes {} bytes", self.from, item.payload.len());
//!         Outcome::Done
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     kvqueue::cli::main_with(|daemon| daemon.handler("email", Email::from_config)).into()
//! }
//! ```
//!
//! That is the whole program `kvqueue`, whose `run` and `config check` know one handler more. To run a daemon within a program of another
//! kind, [`Daemon`].

mod absent;
mod actors;
mod causes;
pub mod cli;
pub mod config;
mod consumer;
mod control;
pub mod daemon;
pub mod database;
mod deadlines;
pub mod exit;
pub mod handlers;
mod http;
mod json;
pub mod lifecycle;
mod metrics;
mod pause;
mod stats;
mod status;
mod sweep;
mod systemd;
pub mod telemetry;
pub mod testing;

pub use async_trait::async_trait;
pub use config::{Config, ConfigError};
#[cfg(feature = "testing")]
pub use consumer::state::{Event, Found};
pub use daemon::{Daemon, DaemonError};
pub use exit::Exit;
pub use foundationdb;
pub use handlers::{
    BatchHandler, Context, Handler, Json, JsonBatchHandler, JsonHandler, Outcome, Settings, SettingsError,
};
pub use kvqueue_queue::{self as queue, Failure, Item, ItemId, Meta, Stamp};
