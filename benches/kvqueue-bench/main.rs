//! `kvqueue bench`: how fast kvqueue is on this machine and this database.
//!
//! A program of its own, which uses kvqueue as any Rust program does: sessions push, and an embedded
//! daemon with a handler that takes notes processes the items. Each cell (a kind of measurement) is a
//! file. [`suite`] runs some of all cells and prints a table.

mod baseline;
mod burn;
mod child;
mod consumers;
mod contention;
mod finished;
mod flood;
mod flush;
mod globals;
mod ground;
mod idle;
mod keys;
mod latency;
mod machine;
mod options;
mod pacer;
mod pickup;
mod producers;
mod pull;
mod push;
mod report;
mod signals;
mod suite;
mod sustained;
mod tally;
mod usage;
mod walk;

use std::{io::ErrorKind, process::ExitCode, sync::Arc, time::Duration};

use clap::Parser;
use indicatif::ProgressBar;
use kvqueue::{Config, ConfigError, DaemonError, Exit, database::OpenError, telemetry};
use tokio::{runtime, time::sleep};

use self::{
    consumers::Place, globals::Globals, ground::Ground, keys::Keys, options::Common, producers::Target,
    report::Report, signals::Signals, tally::Tally,
};

/// How long tasks of a cell that was interrupted may take to end.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// Measure how fast pushes and handlers' items are, on this machine and database
#[derive(Debug, Parser)]
#[command(
    name = "kvqueue bench",
    bin_name = "kvqueue bench",
    long_about = "Measure how fast pushes and handlers' items are, on this machine and database.\n\n\
    Without CELL it takes about half a minute and prints a table. Without --database it runs on a throw-away directory, which should be \
    on the disk that matters (--dir); with one, on queues of its own there, which it deletes at the end, also when it is interrupted. \
    An acknowledged push and a finished item have been flushed to disk. Every cell counts what was lost and what came twice; exit \
    code 1 says that something was, or that a cell did not end.",
    subcommand_value_name = "CELL",
    subcommand_help_heading = "Cells"
)]
struct Args {
    #[command(subcommand)]
    cell: Option<Cell>,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    globals: Globals,
}

#[derive(Debug, clap::Subcommand)]
enum Cell {
    Push(push::Args),
    Burn(burn::Args),
    Sustained(sustained::Args),
    Flood(flood::Args),
    Pickup(pickup::Args),
    Pull(pull::Args),
    Idle(idle::Args),
}

/// Why a cell has no figures.
#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error("interrupted; its database or its queues are removed")]
    Interrupted,
    #[error("it did not end within {} s; ask for less, or raise --limit", .0.as_secs_f64())]
    TooLong(Duration),
}

/// A command line that clap cannot know to be wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UsageError(String);

fn main() -> ExitCode {
    let exit = match Args::try_parse() {
        Ok(args) => args.run().unwrap_or_else(|error| report(&error)),
        Err(error) => {
            // Without a stderr to print to, the code has to do.
            let _ = error.print();
            if error.use_stderr() { Exit::Usage } else { Exit::Done }
        }
    };
    telemetry::finish();
    exit.into()
}

/// Prints an error and returns the exit code that it stands for.
fn report(error: &anyhow::Error) -> Exit {
    // Nobody reads our output any more.
    if error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) {
        return Exit::Done;
    }
    telemetry::finish();
    eprintln!("kvqueue: {error:#}");
    if error.is::<ConfigError>() {
        Exit::Config
    } else if error.is::<OpenError>() {
        Exit::Unavailable
    } else if error.is::<UsageError>() {
        Exit::Usage
    } else {
        error.downcast_ref::<DaemonError>().map_or(Exit::Failed, DaemonError::exit)
    }
}

/// What a cell runs with.
struct Bench {
    ground: Ground,
    common: Common,
    progress: ProgressBar,
}

impl Args {
    fn run(&self) -> anyhow::Result<Exit> {
        let globals = &self.globals;
        let config = globals.load()?;
        telemetry::init(&config.log)?;
        if cfg!(debug_assertions) {
            eprintln!(
                "kvqueue: this program is not optimised; measure one that `cargo build --release` makes"
            );
        }
        match &self.cell {
            None => suite::run(globals, &self.common, &config),
            Some(cell) => {
                cell.check(&self.common)?;
                self.measure(cell, globals, &config)
            }
        }
    }

    fn measure(&self, cell: &Cell, globals: &Globals, config: &Config) -> anyhow::Result<Exit> {
        let runtime =
            runtime::Builder::new_multi_thread().thread_name("kvqueue-bench").enable_all().build()?;
        // Before there is anything that an interruption could leave behind.
        let mut signals = runtime.block_on(async { Signals::watch() })?;
        let bench = Bench {
            ground: Ground::new(globals, &self.common, config)?,
            common: self.common.clone(),
            progress: progress(globals),
        };
        let report = runtime.block_on(async {
            tokio::select! {
                report = cell.measure(&bench) => report,
                () = signals.received() => Err(BenchError::Interrupted.into()),
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
            Self::Flood(args) => args.check(common)?,
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
            Self::Pull(args) => args.measure(bench).await,
            Self::Idle(args) => args.measure(bench).await,
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
