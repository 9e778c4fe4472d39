//! Code that the tests share.

mod background;
mod command;
mod commands;
mod database;
mod frozen;
mod helper;
mod http;
mod notify;
mod random;
mod script;
mod until;

pub(crate) use background::{Background, event_field};
pub(crate) use command::{Ran, clean, events, first_id, kvqueue, object, run, run_with_input};
pub(crate) use commands::commands;
pub(crate) use database::Database;
pub(crate) use frozen::freeze;
pub(crate) use helper::{hears_hup, helper};
pub(crate) use http::{Address, Reply, Request, Served, listening, serve, serve_with};
pub(crate) use notify::{NotifySocket, pings};
pub(crate) use random::Random;
pub(crate) use script::{fake_program, pipe, run_script};
pub(crate) use until::{wait_for, wait_until};

/// Far longer than anything takes; only a failure waits so long.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
