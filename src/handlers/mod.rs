//! Handlers: code that processes items.
//!
//! A handler is a value behind [`Handler`], or [`BatchHandler`], made once per queue from its
//! `handler-config` table. The daemon calls it on a pool of threads of its own, and never trusts
//! it: every call has its own task, an optional time limit, and a boundary that panics do not
//! cross.
//!
//! # A handler in this tree
//!
//! `log.rs` is the shortest, and shows the whole pattern:
//!
//! 1. a file here, with a type and a constructor `from_config` that reads [`Settings`], or refuses
//!    them;
//! 2. `impl Handler`, or `impl BatchHandler`, for it;
//! 3. its unit tests, with the kit of [`testing`](crate::testing);
//! 4. `mod` and `pub use` below, and a line in [`Registry::builtin`], which is the list;
//! 5. its settings in `config/kvqueue.toml` and `docs/config/handlers.md`.
//!
//! # A handler in a crate of one's own
//!
//! The same without 4 and 5, registered under its name in a `main` of ten lines: see
//! [`Daemon::handler`](crate::Daemon::handler), and `examples/greeter`, which also shows the kit,
//! retries, dead letters, and writes that happen exactly once.

mod any;
mod call;
mod contract;
pub(crate) mod exec;
#[cfg(feature = "webhook")]
pub(crate) mod http;
mod json;
mod log;
mod outcome_line;
mod processes;
mod progress;
mod pull;
mod registry;
mod settings;
mod stdout;
mod throttle;
pub(crate) mod times;

pub(crate) use any::AnyHandler;
pub(crate) use call::{ABORT_DELAY, CallResult, Interruption, LeakedThread, call, time_up_reason};
pub use contract::{BatchHandler, Context, Handler, Outcome};
pub(crate) use contract::{QueueOfCall, StopRequest};
pub use exec::Exec;
pub use json::{Json, JsonBatchHandler, JsonHandler};
pub use log::Log;
#[cfg(feature = "http")]
pub(crate) use outcome_line::whole;
pub(crate) use outcome_line::{OutcomeLine, percent};
pub(crate) use processes::Processes;
pub(crate) use progress::{ProgressNews, ProgressReporter};
pub use registry::Registry;
pub(crate) use settings::check_lists;
pub use settings::{Settings, SettingsError};
pub use stdout::Stdout;
pub(crate) use throttle::{LONGEST_THROTTLE, ScopeName, log_throttle};
