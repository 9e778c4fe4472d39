//! Handlers: what is done with an item.
//!
//! A handler is a value behind [`Handler`], made once per queue from its `handler-config` table. The daemon calls
//! it for one item at a time per consumer, on a pool of threads of its own, and never trusts it: every item has its
//! own task, an optional time limit, and a boundary that panics do not cross.
//!
//! | file | role |
//! |---|---|
//! | `contract` | [`Handler`], [`Context`], [`Outcome`] |
//! | `call` | one call: time limit, cancellation, panic boundary |
//! | `registry` | names to constructors |
//! | `settings` | a handler's own table, typed |
//! | `log`, `stdout`, `exec` | the handlers in the tree |
//!
//! A handler of one's own: implement [`Handler`], write a constructor from [`Settings`], and register it with
//! `Daemon::handler`. One for this tree: a file here, and a line in [`Registry::builtin`].

mod call;
mod contract;
mod exec;
mod log;
mod registry;
mod settings;
mod stdout;

pub(crate) use call::{Cut, Ended, LAST_MOMENT, call};
pub(crate) use contract::StopRequest;
pub use contract::{BatchHandler, Context, Handler, Outcome};
pub use exec::Exec;
pub use log::Log;
pub(crate) use registry::Handling;
pub use registry::Registry;
pub use settings::{Settings, SettingsError};
pub use stdout::Stdout;
