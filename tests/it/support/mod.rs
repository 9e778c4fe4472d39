//! What the tests share.

mod background;
mod command;
mod database;
mod helper;
mod random;
mod script;

pub(crate) use background::Background;
pub(crate) use command::{Ran, kvqueue, run, run_with_input};
pub(crate) use database::Database;
pub(crate) use helper::{daemon_of_helper, database_of_helper, helper, run_to_the_end};
pub(crate) use random::Random;
pub(crate) use script::{pipe, run_script};

/// Far longer than anything takes; only a failure waits so long.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
