//! `kvqueue bench`: how fast it is here, on this machine and this database.
//!
//! It measures the real thing: sessions push, and a daemon with a handler that takes notes works off.
//!
//! | file | role |
//! |---|---|
//! | `push`, `burn`, `sustained`, `flood`, `pickup`, `idle`, `scale`, `start` | a cell each: what is measured |
//! | `suite` | some of all, and a table |
//! | `options` | what cells share, and its bounds |
//! | `ground` | the database a cell runs on, and that nothing is left of it |
//! | `tally` | what was lost, and what came twice |
//! | `latency`, `report` | figures for people and for programs |
//! | `producers`, `consumers`, `walk` | who fills a queue, who works it off, and what is left in it |
//! | `baseline`, `keys` | the Erlang program's consumers |
//! | `pacer`, `finished` | pushes at fixed times; when items are durably finished |
//! | `helper` | the other processes of `burn --processes` |
//! | `child`, `usage` | `kvqueue run` as a process of its own; what a process uses |
//! | `flush`, `machine` | what the disk can do; what this is measured on |

mod baseline;
mod burn;
mod child;
mod consumers;
mod finished;
mod flood;
mod flush;
mod ground;
mod helper;
mod idle;
mod keys;
mod latency;
mod machine;
mod options;
mod pacer;
mod pickup;
mod producers;
mod push;
mod report;
mod scale;
mod start;
mod suite;
mod sustained;
mod tally;
mod usage;
mod walk;

use std::{sync::Arc, time::Duration};

use indicatif::ProgressBar;
use tokio::{runtime, time::sleep};

use self::{
    consumers::Place, ground::Ground, keys::Keys, options::Common, producers::Target, report::Report,
    tally::Tally,
};
use super::globals::Globals;
use crate::{config::Config, exit::Exit, lifecycle::Signals, telemetry};

/// How long tasks of a cell that was interrupted may take to end.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// Measure how fast pushes and handlers' items are, on this machine and database
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Measure how fast pushes and handlers' items are, on this machine and database.\n\n\
    Without CELL it takes about half a minute and prints a table. Without --database it runs on a throw-away directory, which should be \
    on the disk that matters (--dir); with one, on queues of its own there, which it deletes at the end, also when it is interrupted. \
    An acknowledged push and a finished item have been flushed to disk. Every cell counts what was lost and what came twice; exit \
    code 1 says that something was, or that a cell did not end.",
    subcommand_value_name = "CELL",
    subcommand_help_heading = "Cells"
)]
pub(super) struct Args {
    #[command(subcommand)]
    cell: Option<Cell>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Subcommand)]
enum Cell {
    Push(push::Args),
    Burn(burn::Args),
    Sustained(sustained::Args),
    Flood(flood::Args),
    Pickup(pickup::Args),
    Idle(idle::Args),
    Scale(scale::Args),
    Start(start::Args),
    #[command(hide = true)]
    Helper(helper::Args),
}

/// Why a cell has no figures.
#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error("interrupted; its database or its queues are removed")]
    Interrupted,
    #[error("it did not end within {} s; ask for less, or raise --limit", .0.as_secs_f64())]
    TooLong(Duration),
}

/// What a cell runs with.
struct Bench {
    ground: Ground,
    common: Common,
    progress: ProgressBar,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let mut config = globals.load()?;
        config.validate()?;
        if globals.verbose == 0 {
            // What a daemon logs about itself is not wanted here; and the span of an item costs a microsecond or two.
            let level = if globals.quiet { "error" } else { "warn" };
            config.log.level = format!("{level},{}=off", telemetry::span::TARGET);
        }
        telemetry::init_command(&config.log)?;
        match &self.cell {
            None => suite::run(globals, &self.common, &config),
            Some(Cell::Helper(helper)) => helper.run(),
            Some(cell) => {
                cell.check(&self.common)?;
                self.measure(cell, globals, &config)
            }
        }
    }

    fn measure(&self, cell: &Cell, globals: &Globals, config: &Config) -> anyhow::Result<Exit> {
        // Before there is anything that an interruption could leave behind.
        let signals = Signals::watch()?;
        let bench = Bench {
            ground: Ground::new(globals, &self.common, config)?,
            common: self.common.clone(),
            progress: progress(globals),
        };
        let runtime =
            runtime::Builder::new_multi_thread().thread_name("kvqueue-bench").enable_all().build()?;
        let report = runtime.block_on(async {
            tokio::select! {
                report = cell.measure(&bench) => report,
                signal = signals.received() => Err(signal.map_or_else(Into::into, |()| BenchError::Interrupted.into())),
                () = sleep(self.common.limit) => Err(BenchError::TooLong(self.common.limit).into()),
            }
        });
        runtime.shutdown_timeout(AFTERWARDS);
        bench.progress.finish_and_clear();
        let cleaned = bench.ground.clean_up();
        let report = report?;
        report.print(globals.json)?;
        cleaned?;
        Ok(if report.is_clean() { Exit::Done } else { Exit::Failed })
    }
}

impl Cell {
    fn check(&self, common: &Common) -> anyhow::Result<()> {
        common.check()?;
        match self {
            Self::Push(args) => args.check(common)?,
            Self::Burn(args) => args.check()?,
            Self::Flood(args) => args.check(common)?,
            Self::Scale(args) => args.check()?,
            Self::Sustained(args) => args.check(common)?,
            _ => {}
        }
        Ok(())
    }

    async fn measure(&self, bench: &Bench) -> anyhow::Result<Report> {
        match self {
            Self::Push(args) => args.measure(bench).await,
            Self::Burn(args) => args.measure(bench).await,
            Self::Sustained(args) => args.measure(bench).await,
            Self::Flood(args) => args.measure(bench).await,
            Self::Pickup(args) => args.measure(bench).await,
            Self::Idle(args) => args.measure(bench).await,
            Self::Scale(args) => args.measure(bench).await,
            Self::Start(args) => args.measure(bench).await,
            Self::Helper(_) => anyhow::bail!("a helper measures nothing"),
        }
    }
}

impl Bench {
    fn report(&self, cell: &str) -> Report {
        Report::new(cell, &self.ground, &self.common)
    }

    /// What is going on, for a person who waits.
    fn say(&self, what: impl Into<String>) {
        self.progress.set_message(what.into());
        self.progress.tick();
    }

    /// A queue of the cell's, on an open database, and who counts its items.
    fn target(&self, suffix: &str, tally: Tally) -> anyhow::Result<Target> {
        let (db, queue) = (self.ground.db()?, self.ground.queue(suffix)?);
        Ok(Target { db, queue, tally: Arc::new(tally), payload: self.common.payload() })
    }

    fn place(&self, target: &Target) -> Place {
        Place {
            db: target.db.clone(),
            url: self.ground.url().to_owned(),
            prefix: self.ground.prefix().to_owned(),
            queue: target.queue.clone(),
        }
    }

    /// Looks through what is left in a queue, and returns how many items there are.
    async fn walk(&self, target: &Target) -> anyhow::Result<u64> {
        self.say("counting what is left");
        let keys = Keys::new(self.ground.prefix(), &target.queue);
        walk::walk(&target.db, &keys, target.payload, &target.tally).await
    }
}

/// A line on stderr, if that is a terminal.
fn progress(globals: &Globals) -> ProgressBar {
    if globals.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() }
}
