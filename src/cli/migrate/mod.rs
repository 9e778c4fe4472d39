//! `kvqueue migrate`: queues from one database to another, as they are.
//!
//! `docs/MIGRATE.md` says how the phases make a move that a kill at any moment cannot turn into a loss.

mod begin;
mod ends;
mod error;
mod finish;
mod moving;
mod outcome;
mod report;
mod rows;

use std::{
    collections::BTreeSet, convert::Infallible, ffi::OsString, os::unix::ffi::OsStrExt, time::Duration,
};

use kvqueue_queue::{Queue, migration::Phase};
use tokio::runtime;

use super::{UsageError, globals::Globals};
use crate::{
    audit::{Action, AuditStore},
    base::exit::Exit,
    config::{Config, KindName, QueueConfig, absolute_database, duration},
};
use begin::Start;
use ends::Ends;
pub(super) use error::MigrateError;
use moving::Moving;
use report::Report;

/// Move queues to another database
///
/// From an embedded directory to a cluster, from a cluster to a directory, or between two of a kind. Everything of a queue is copied as it is stored, so
/// items keep their ids, their places, attempts and failures; delayed items, dead letters, unique keys and idempotency keys go along. Both
/// ends are then compared row by row and by checksum.
///
/// Stop the producers first. The queue is paused at the source, and stays so; at the target it is paused until all is there. A run that
/// ends half-way, however it ends, loses nothing: the same command goes on where it was. What is left at the source in the end is not
/// needed any more: `kvqueue delete --frozen` it when you have seen that all is well.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where from: embedded:DIRECTORY or a cluster file [default: the configured database]
    #[arg(long, value_name = "URL", value_parser = url)]
    from: Option<String>,
    /// Where to: embedded:DIRECTORY, which is made if it is not there, or a cluster file
    #[arg(long, value_name = "URL", value_parser = url)]
    to: String,
    /// A queue to move; repeat it for more [default: all]
    #[arg(long = "queue", value_name = "QUEUE", add = super::completions::queue())]
    queues: Vec<OsString>,
    /// The kind of these queues, if the configuration does not have it
    #[arg(long, value_enum, requires = "queues")]
    kind: Option<KindName>,
    /// The prefix of the keys, at both ends [default: the configured one]
    #[arg(long)]
    prefix: Option<String>,
    /// How long to wait for batches that are running at the source
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    wait: Duration,
    /// Let a cluster's versions jump ahead of the source's, if they are behind
    #[arg(long)]
    advance_versions: bool,
    /// Compare both ends and change nothing; exits with 1 if they differ
    #[arg(long, conflicts_with_all = ["advance_versions", "again"])]
    verify_only: bool,
    /// Move also what was moved away before, if the target does not have it
    #[arg(long)]
    again: bool,
}

/// Reads the name of a database, and makes its path absolute: both ends keep it.
fn url(text: &str) -> Result<String, Infallible> {
    Ok(absolute_database(text))
}

impl Args {
    pub(super) fn audited(&self) -> Option<Action> {
        (!self.verify_only).then_some(Action::QUEUE_MIGRATE)
    }

    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let config = globals.start()?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let from = self.from.as_ref().unwrap_or(&config.database);
        let ends = Ends::open(globals, from, &self.to, !self.verify_only)?;
        let report = Report::new(globals);
        let moved = runtime.block_on(self.move_all(globals, &config, &ends, &report));
        report.finish();
        moved
    }

    async fn move_all(
        &self,
        globals: &Globals,
        config: &Config,
        ends: &Ends,
        report: &Report,
    ) -> anyhow::Result<Exit> {
        let queues = self.queues(config, ends).await?;
        if queues.is_empty() {
            report.note(format_args!("there are no queues at the source"));
        }
        if !self.verify_only {
            self.store_record(globals, config, ends, &queues).await?;
        }
        let (mut exit, count) = (Exit::Done, queues.len());
        for queue in queues {
            if self.verify_only {
                let moving = Moving { ends, queue, run: [0; 16], report, frozen_by: 0 };
                let compared = rows::compare(&moving, None).await?;
                report.finish();
                if !outcome::compared(globals.json, &moving, &compared)? {
                    exit = Exit::Failed;
                }
            } else {
                self.move_one(globals, queue, ends, report).await?;
            }
        }
        if count > 0 && !self.verify_only {
            report.note(format_args!(
                "set `database` to {:?} for daemons and producers. At the source the queues stay frozen; delete them there, with `kvqueue delete --frozen`, when \
                 you have seen that all is well",
                self.to
            ));
        }
        Ok(exit)
    }

    /// Stores the record of the command at both ends, before anything changes.
    async fn store_record(
        &self,
        globals: &Globals,
        config: &Config,
        ends: &Ends,
        queues: &[Queue],
    ) -> Result<(), MigrateError> {
        let names: Vec<_> = queues.iter().map(|queue| moving::printable(queue.name())).collect();
        let record = globals.audited.record().with("from", ends.from.url.as_str());
        let record = record.with("to", ends.to.url.as_str()).with("queues", names.join(", "));
        let audit = AuditStore::new(self.prefix(config));
        for end in [&ends.from, &ends.to] {
            end.transact(async |tr| audit.prepare(tr).await).await?;
            let written = end.transact(async |tr| {
                audit.write(tr, &record);
                Ok(())
            });
            written.await?;
        }
        Ok(())
    }

    /// The prefix of the keys, at both ends.
    fn prefix<'a>(&'a self, config: &'a Config) -> &'a [u8] {
        self.prefix.as_deref().unwrap_or(&config.prefix).as_bytes()
    }

    async fn move_one(
        &self,
        globals: &Globals,
        queue: Queue,
        ends: &Ends,
        report: &Report,
    ) -> anyhow::Result<()> {
        let found = begin::look(ends, &queue).await?;
        let start = begin::decide(&found, self.again, moving::printable(queue.name()))?;
        if !matches!(start, Start::Done(_)) {
            ends::ensure_versions(ends, self.advance_versions, report).await?;
        }
        let (moving, mut record) = begin::claim(ends, queue, &found, (start, report)).await?;
        let mut compared = None;
        if record.phase != Phase::Arrived {
            if record.rows > 0 {
                report.note(format_args!("{}: going on behind {} rows", moving.name(), record.rows));
            }
            if record.phase != Phase::Equal {
                begin::wait_for_leases(&moving, self.wait).await?;
            }
            if record.phase == Phase::Copying {
                record = rows::copy(&moving, record).await?;
            }
            (record, compared) = finish::compare_until_equal(&moving, record).await?;
            finish::publish_target(&moving, &record, self.advance_versions).await?;
        }
        finish::mark_source_left(&moving).await?;
        report.finish();
        outcome::moved(globals.json, &moving, compared.as_ref())?;
        Ok(())
    }

    /// The queues that were named; or all that there are, and those of the configuration that foreign programs may have filled.
    async fn queues(&self, config: &Config, ends: &Ends) -> anyhow::Result<Vec<Queue>> {
        let prefix = self.prefix(config);
        let open = |name: &[u8]| {
            let configured = std::str::from_utf8(name).ok().and_then(|name| config.queues.get(name));
            let mut layout = configured.cloned().unwrap_or_else(|| QueueConfig::new(""));
            layout.kind = self.kind.unwrap_or(layout.kind);
            Queue::of_kind(prefix, name, layout.layout()).map_err(|error| UsageError(error.to_string()))
        };
        if !self.queues.is_empty() {
            return Ok(self.queues.iter().map(|name| open(name.as_bytes())).collect::<Result<_, _>>()?);
        }
        let mut names: BTreeSet<Vec<u8>> = ends.from.queues(prefix).await?.into_iter().collect();
        for name in config.queues.keys() {
            let queue = open(name.as_bytes())?;
            let is_there = ends.from.transact(async |tr| queue.exists(tr).await);
            if is_there.await? {
                names.insert(name.clone().into_bytes());
            }
        }
        Ok(names.iter().map(|name| open(name)).collect::<Result<_, _>>()?)
    }
}
