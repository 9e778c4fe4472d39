//! Configuration: what it holds, where it comes from, what makes it wrong.
//!
//! Later layers win: [`Config::default`], then the TOML file, then `KVQUEUE_...` environment
//! variables, then the command line's flags (laid over by `cli`).
//!
//! What there is to know about a key besides its type and its default is in rows next to their fields (`row.rs`), from which tests write
//! `config/kvqueue.toml`, which shows every key, and the reference in `docs/CONFIG.md`.

mod consumers;
mod delivery;
mod environment;
mod error;
mod faults;
mod formats;
mod http;
mod layout;
mod load;
mod log_level;
mod model;
mod partitions;
mod paths;
mod queue;
mod repair;
mod row;
mod schedule;
mod settings;
mod validation;

pub use consumers::ConsumerGroup;
pub use delivery::{Delivery, FetchStrategy, Retry};
pub use environment::ignored_variables;
#[cfg(test)]
pub(crate) use environment::is_reserved;
pub use error::ConfigError;
pub(crate) use error::nearest;
pub(crate) use faults::{Fault, Place};
pub use formats::{MinFreeSpace, duration, size};
pub(crate) use formats::{number, rate, whole};
pub(crate) use http::{DEFAULT_ADDRESS, is_loopback, reachable};
#[cfg(feature = "http")]
pub(crate) use http::{DEFAULT_BODY, MAX_BODY};
pub use http::{Http, Listen};
pub use layout::{KindName, TakeEnd, Values};
pub use load::load;
pub(crate) use load::load_leniently;
pub(crate) use log_level::log_levels;
pub(crate) use model::is_daemon;
pub use model::{Config, Log, LogFormat};
pub use paths::absolute_database;
pub(crate) use queue::{KeptHistory, MAX_LEASE, MIN_LEASE, quoted};
pub use queue::{OnExpiryName, QueueConfig};
pub(crate) use row::Reload;
pub use schedule::{DefinitionError, JsonText, MissedName, OverlapName, ScheduleDefinition};
pub(crate) use settings::setting;

/// The handler that leaves items to workers of other programs.
pub(crate) const PULL: &str = "pull";
