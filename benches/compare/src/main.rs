//! Measures kvqueue next to what a user would pick instead: beanstalkd, Redis, PostgreSQL and graphile-worker, in one run, on
//! one disk, at the same durability. `docs/PERFORMANCE.md` says how, and what came of it.

mod args;
mod cell;
mod cells;
mod error;
mod goals;
mod machine;
mod outcome;
mod peers;
mod plan;
mod process;
mod raw_sync;
mod report;
mod run;
mod start;
mod stop;
mod summary;
mod tally;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use tempfile::TempDir;

use args::{Args, Inner, RunArgs};
use machine::Machine;
use peers::Address;
use process::Processes;
use report::Report;
use run::Cells;

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    match args.inner {
        Some(Inner::IdleWorker { kind, port, workers }) => {
            cells::idle::wait(Address { kind, port }, workers)?;
            Ok(ExitCode::SUCCESS)
        }
        None => compare(&args.run),
    }
}

fn compare(args: &RunArgs) -> Result<ExitCode> {
    let begin = Instant::now();
    let scratch = scratch(args.scratch.as_deref())?;
    let processes = Processes::default();
    let closing = stop::Closing(processes.clone());
    stop::on_signals(&processes, scratch.path())?;
    let result = measure(args, scratch.path(), &processes, begin);
    if processes.is_closing() {
        return stop::wait_for_the_end();
    }
    // Before the directory goes: any program that is left writes into it.
    drop(closing);
    scratch.close().context("cannot remove the scratch directory")?;
    result
}

fn measure(args: &RunArgs, scratch: &Path, processes: &Processes, begin: Instant) -> Result<ExitCode> {
    let mut systems = start::start(args, scratch, processes)?;
    // Building is not measuring.
    let end = Instant::now() + Duration::from_secs_f64(args.minutes * 60.0);
    let cells = Cells::of(args);
    let (summary, left_out) = run::run(&cells, &mut systems.all, scratch, processes, end)?;
    let machine = Machine::here(scratch);
    let report = Report { machine, cells: &cells, systems: &systems, summary: &summary, left_out };
    print!("{}", report.markdown());
    if let Some(out) = &args.out {
        let json = serde_json::to_string_pretty(&report.json()).context("cannot write JSON")?;
        fs::write(out, json + "\n").with_context(|| format!("cannot write {}", out.display()))?;
    }
    eprintln!("took {:.0}s", begin.elapsed().as_secs_f64());
    let failed = summary.runs().iter().any(|run| run.result.is_err());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A directory of the run's own, which other users may pass: PostgreSQL may have to run as one.
fn scratch(parent: Option<&Path>) -> Result<TempDir> {
    let default = start::build_directory();
    let parent = parent.unwrap_or(&default);
    let make = || {
        fs::create_dir_all(parent)?;
        let scratch = tempfile::Builder::new().prefix("compare-").tempdir_in(parent.canonicalize()?)?;
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o711))?;
        Ok::<_, std::io::Error>(scratch)
    };
    make().with_context(|| format!("cannot make a directory in {}", parent.display()))
}
