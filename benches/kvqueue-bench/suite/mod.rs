//! `kvqueue bench` without a cell: some of all, and a table.
//!
//! Each cell is a process of its own, with a database or queues of its own, so none is measured in the memory of another.

mod cells;
mod table;

use std::{path::PathBuf, process::Stdio, time::Duration};

use anyhow::Context;
use indicatif::ProgressBar;
use kvqueue::{Config, Exit};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::{
    process::{Child, Command},
    runtime,
};

use self::{cells::CELLS, table::Row};
use super::{
    BenchError, flush,
    globals::Globals,
    machine,
    options::Common,
    progress,
    report::{print, rounded},
    signals::Signals,
};

/// How long a cell measures, if nobody says.
const SECONDS: Duration = Duration::from_millis(1_500);

/// How long the disk is tried before each cell, and after the last: how fast it is changes from second to second.
const FLUSHING: Duration = Duration::from_millis(150);

/// What came of a cell's process.
enum Ended {
    /// It printed this; something was lost, or came twice, if `clean` is false.
    Measured { report: Value, clean: bool },
    /// It has said why on stderr.
    Failed(Exit),
}

/// Where it is measured.
struct Place {
    engine: &'static str,
    /// The database that was named.
    database: Option<String>,
    /// Where the embedded engine's files are, or will be. Of a named directory that is not there yet nothing is known.
    directory: Option<PathBuf>,
}

pub(super) fn run(globals: &Globals, common: &Common, config: &Config) -> anyhow::Result<Exit> {
    let place = Place::new(globals, common, config);
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { all(globals, common, &mut Signals::watch()?, &place).await })
}

impl Place {
    fn new(globals: &Globals, common: &Common, config: &Config) -> Self {
        let database = globals.database.as_ref().map(|_| config.database.clone());
        let (engine, directory) = match database.as_deref().map(fdb_embedded::embedded_directory) {
            None => ("embedded", Some(common.above())),
            Some(None) => ("cluster", None),
            Some(Some(directory)) => ("embedded", Some(directory).filter(|directory| directory.is_dir())),
        };
        Self { engine, database, directory }
    }

    /// How often the disk flushes just now; `None` for a cluster.
    fn flushes(&self) -> anyhow::Result<Option<f64>> {
        let Some(directory) = &self.directory else { return Ok(None) };
        let rate = flush::flushes_per_second(directory, FLUSHING);
        rate.map(Some)
            .with_context(|| format!("cannot write in {}; name another with --dir", directory.display()))
    }

    /// As the first line of JSON.
    fn json(&self) -> Value {
        json!({
            "cell": "place",
            "engine": self.engine,
            "database": self.database,
            "directory": self.directory.as_deref().map(|path| path.display().to_string()),
            "file_system": self.directory.as_deref().and_then(machine::file_system),
            "machine": machine::line(),
            "version": env!("CARGO_PKG_VERSION"),
        })
    }
}

async fn all(
    globals: &Globals,
    common: &Common,
    signals: &mut Signals,
    place: &Place,
) -> anyhow::Result<Exit> {
    let (progress, about) = (progress(globals), place.json());
    let (mut rows, mut exit) = (Vec::new(), Exit::Done);
    let mut before = place.flushes()?;
    if globals.json {
        print(true, "", &about)?;
    }
    for (n, cell) in CELLS.iter().enumerate() {
        say(&progress, format!("{} of {}: {}", n + 1, CELLS.len(), cell.name));
        let (mut report, clean) = match measure(globals, common, signals, cell.arguments).await? {
            Ended::Failed(exit) => {
                progress.finish_and_clear();
                return Ok(exit);
            }
            Ended::Measured { report, clean } => (report, clean),
        };
        let after = place.flushes()?;
        let flushes = before.zip(after).map(|(before, after)| rounded(f64::midpoint(before, after), 1));
        before = after;
        report["flushes_per_second"] = json!(flushes);
        if globals.json {
            print(true, "", &report)?;
        }
        if !clean {
            exit = Exit::Failed;
        }
        rows.push(Row { name: cell.name, report });
    }
    progress.finish_and_clear();
    if !globals.json {
        print(false, &table::text(&about, &rows), &Value::Null)?;
    }
    Ok(exit)
}

fn say(progress: &ProgressBar, what: String) {
    progress.set_message(what);
    progress.tick();
}

/// Runs a cell to its end; an interruption reaches it, and its end is waited for.
async fn measure(
    globals: &Globals,
    common: &Common,
    signals: &mut Signals,
    arguments: &[&str],
) -> anyhow::Result<Ended> {
    let child =
        command(globals, common, arguments)?.spawn().context("cannot start this program once more")?;
    let pid = pid(&child);
    let mut output = std::pin::pin!(child.wait_with_output());
    let output = tokio::select! {
        output = &mut output => output?,
        () = signals.received() => {
            if let Some(pid) = pid {
                // It may have ended just now.
                let _ = kill_process(pid, Signal::INT);
            }
            output.await?;
            return Err(BenchError::Interrupted.into());
        }
    };
    let exit = exit_of(output.status.code());
    match serde_json::from_slice(&output.stdout) {
        Ok(report) => Ok(Ended::Measured { report, clean: exit == Exit::Done }),
        Err(_) => Ok(Ended::Failed(exit)),
    }
}

fn pid(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()?).ok()?)
}

/// The cell's command. It is no member of this process's group: a ctrl-C would reach it twice, and the second ends it at once.
fn command(globals: &Globals, common: &Common, arguments: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("this program's file is not known")?);
    let seconds = common.seconds.unwrap_or(SECONDS).as_secs_f64().to_string();
    let limit = common.limit.as_secs_f64().to_string();
    command.args(arguments).arg("--json");
    command.args(["--seconds", &seconds, "--limit", &limit, "--payload", &common.payload.to_string()]);
    match &globals.database {
        Some(database) => command.args(["--database", database]),
        None => command.arg("--dir").arg(common.above()),
    };
    if let Some(config) = &globals.config {
        command.arg("--config").arg(config);
    }
    if globals.quiet {
        command.arg("-q");
    }
    command.args((0..globals.verbose).map(|_| "-v"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0).kill_on_drop(true);
    Ok(command)
}

/// What a cell's exit code means.
fn exit_of(code: Option<i32>) -> Exit {
    let known = [Exit::Done, Exit::Usage, Exit::Unavailable, Exit::Internal, Exit::Config];
    known.into_iter().find(|exit| Some(*exit as i32) == code).unwrap_or(Exit::Failed)
}
