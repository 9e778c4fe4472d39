//! `kvqueue bench` without a cell: some of all, and a table.
//!
//! Each cell is a process of its own, with a database or queues of its own, so none is measured in the memory of another.
//!
//! | file | role |
//! |---|---|
//! | `cells` | which cells |
//! | `table` | what a person reads |

mod cells;
mod table;

use std::{path::Path, process::Stdio, time::Duration};

use anyhow::Context;
use indicatif::ProgressBar;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::{
    process::{Child, Command},
    runtime,
};

use self::{cells::CELLS, table::Row};
use super::{BenchError, flush, machine, options::Common, progress, report::rounded};
use crate::{
    cli::{globals::Globals, output},
    config::Config,
    exit::Exit,
    lifecycle::Signals,
};

/// How long a cell measures, if nobody says.
const SECONDS: Duration = Duration::from_millis(1_500);

/// How long the disk is tried.
const FLUSHING: Duration = Duration::from_millis(500);

/// What came of a cell's process.
enum Ended {
    /// It printed this; something was lost, or came twice, if `clean` is false.
    Measured { report: Value, clean: bool },
    /// It has said why on stderr.
    Failed(Exit),
}

pub(super) fn run(globals: &Globals, common: &Common, config: &Config) -> anyhow::Result<Exit> {
    let signals = Signals::watch()?;
    let place = place(globals, common, config)?;
    if globals.json {
        output::line(true, b"", &place)?;
    }
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(all(globals, common, &signals, &place))
}

/// What it is measured on: for programs a cell like the others.
fn place(globals: &Globals, common: &Common, config: &Config) -> anyhow::Result<Value> {
    let named = globals.database().map(|_| config.database.as_str());
    let embedded = named.map(fdb_embedded::embedded_directory);
    // Of a named directory that is not there yet nothing is known.
    let engine = if matches!(embedded, Some(None)) { "cluster" } else { "embedded" };
    let directory = match embedded {
        None => Some(common.above()),
        Some(directory) => directory.filter(|directory| directory.is_dir()),
    };
    let flushes = directory.as_deref().map(|directory| {
        flush::flushes_per_second(directory, FLUSHING)
            .with_context(|| format!("cannot write in {}; name another with --dir", directory.display()))
    });
    Ok(json!({
        "cell": "flush",
        "engine": engine,
        "database": named,
        "directory": directory.as_deref().map(Path::display).map(|path| path.to_string()),
        "file_system": directory.as_deref().and_then(machine::file_system),
        "per_second": flushes.transpose()?.map(|rate| rounded(rate, 1)),
        "machine": machine::line(),
        "version": env!("CARGO_PKG_VERSION"),
    }))
}

async fn all(globals: &Globals, common: &Common, signals: &Signals, place: &Value) -> anyhow::Result<Exit> {
    let progress = progress(globals);
    let (mut rows, mut exit) = (Vec::new(), Exit::Done);
    for (n, cell) in CELLS.iter().enumerate() {
        say(&progress, format!("{} of {}: {}", n + 1, CELLS.len(), cell.name));
        match measure(globals, common, signals, cell.arguments).await? {
            Ended::Failed(exit) => {
                progress.finish_and_clear();
                return Ok(exit);
            }
            Ended::Measured { report, clean } => {
                if globals.json {
                    output::line(true, b"", &report)?;
                }
                if !clean {
                    exit = Exit::Failed;
                }
                rows.push(Row { name: cell.name, report });
            }
        }
    }
    progress.finish_and_clear();
    if !globals.json {
        output::line(false, table::text(place, &rows).as_bytes(), &Value::Null)?;
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
    signals: &Signals,
    arguments: &[&str],
) -> anyhow::Result<Ended> {
    let child =
        command(globals, common, arguments)?.spawn().context("cannot start this program once more")?;
    let pid = pid(&child);
    let mut output = std::pin::pin!(child.wait_with_output());
    let output = tokio::select! {
        output = &mut output => output?,
        signal = signals.received() => {
            signal?;
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
    command.arg("bench").args(arguments).arg("--json");
    command.args(["--seconds", &seconds, "--limit", &limit, "--payload", &common.payload.to_string()]);
    match globals.database() {
        Some(database) => command.args(["--database", database]),
        None => command.arg("--dir").arg(common.above()),
    };
    if let Some(config) = globals.config() {
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
