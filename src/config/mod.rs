//! Configuration: what it holds, where it comes from, what makes it wrong.
//!
//! Later layers win: [`Config::default`], then the TOML file, then `KVQUEUE_...` environment
//! variables, then the command line's flags (laid over by `cli`).
//!
//! `config/kvqueue.toml` shows every key; a test holds it equal to the defaults.

mod builder;
mod delivery;
pub mod duration;
mod environment;
mod error;
mod faults;
mod http;
mod layout;
mod load;
mod min_free_space;
mod model;
mod number;
mod paths;
mod queue;
pub mod size;
mod validate;

pub use delivery::{Delivery, FetchStrategy, Retry};
pub use environment::ignored_variables;
#[cfg(test)]
pub(crate) use environment::is_reserved;
pub use error::ConfigError;
pub(crate) use error::nearest;
pub(crate) use faults::{Fault, Place};
pub(crate) use http::{DEFAULT_ADDRESS, reachable};
pub use http::{Http, Listen};
pub use layout::{KindName, TakeEnd, Values};
pub use load::load;
pub(crate) use load::load_leniently;
pub use min_free_space::MinFreeSpace;
pub use model::{Config, Log, LogFormat};
pub use paths::absolute_database;
pub use queue::{ConsumerGroup, QueueConfig};
pub(crate) use validate::is_loopback;
