//! Configuration: what it holds, where it comes from, what makes it wrong.
//!
//! Later layers win: [`Config::default`], then the TOML file, then `KVQUEUE_...` environment
//! variables, then the command line's flags (laid over by `cli`).
//!
//! | file | holds |
//! |---|---|
//! | `model` | the keys and their defaults |
//! | `load` | file and environment merged into a [`Config`] |
//! | `environment` | how a variable's name maps to a key |
//! | `validate` | what a type cannot say: ranges and contradictions |
//! | `duration`, `number` | `"30s"`, `10` |
//! | `error` | [`ConfigError`]: key, value, fix |
//!
//! `config/kvqueue.toml` shows every key; a test holds it equal to the defaults.

mod duration;
mod environment;
mod error;
mod load;
mod model;
mod number;
mod validate;

pub use error::ConfigError;
pub use load::load;
pub use model::{Config, ConsumerGroup, Log, LogFormat, QueueConfig};
