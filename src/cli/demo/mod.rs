//! `kvqueue demo`: the KvQueue tutorial, live, through the daemon's own supervisor, consumers and queue layer.

mod ledger;
mod report;
mod tutorial;

use anyhow::Context;

use super::globals::Globals;
use crate::{
    actors::{self, ConsumerContext},
    daemon,
    database::Store,
    exit::Exit,
    status::DaemonStatus,
    telemetry,
};
use ledger::Ledger;

/// Show a queue at work: a throw-away database, three consumers, 1000 concurrent pushes
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

impl Args {
    #[expect(clippy::unused_self, reason = "every command is run alike")]
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let mut log = globals.load()?.log;
        log.level = level(globals).to_owned();
        telemetry::init_command(&log)?;
        let directory = tempfile::tempdir().context("cannot make a temporary directory for the database")?;
        let url = format!("embedded:{}", directory.path().display());
        let store = Store::open(&url)?;
        let pool = daemon::handler_pool().context("cannot start the handlers' threads")?;
        let ledger = Ledger::new();
        let shared = ConsumerContext::new(pool.handle().clone(), None, DaemonStatus::new(&url));
        let report = actors::run(tutorial::run(&store, &shared, &ledger))?;
        pool.shutdown_background();
        report.print(globals.json)?;
        Ok(if report.is_clean() { Exit::Done } else { Exit::Failed })
    }
}

/// The table at the end is the point of it; `-v` shows the consumers at work.
fn level(globals: &Globals) -> &'static str {
    match (globals.quiet, globals.verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "warn,kvqueue=debug",
        (false, _) => "debug",
    }
}
