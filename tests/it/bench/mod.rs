//! `kvqueue bench`: every cell gives figures, counts what was lost, is bounded, and leaves nothing behind.

mod cells;
mod ends;

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use crate::support::{Database, Ran, run};

/// A directory in which the bench makes its own.
struct Scratch {
    db: Database,
}

impl Scratch {
    fn new() -> Self {
        Self { db: Database::embedded() }
    }

    fn path(&self) -> &Path {
        self.db.directory.path()
    }

    /// `kvqueue bench` on a throw-away database in it.
    fn bench(&self, args: &[&str]) -> Command {
        self.bench_in(self.path(), args)
    }

    /// The same in another directory.
    fn bench_in(&self, directory: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvqueue"));
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("KVQUEUE_"))
        {
            command.env_remove(name);
        }
        command.arg("bench").args(args).arg("--dir").arg(directory);
        // Where it makes files that are no database.
        command.env("TMPDIR", self.path());
        command
    }

    #[track_caller]
    fn is_empty(&self) {
        let left: Vec<_> = fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

/// Runs a cell on a named database, and looks that it has left no queue.
#[track_caller]
fn on(db: &Database, args: &[&str]) -> Value {
    let ran = run(db, &[&["bench", "--json"], args].concat());
    let report = report(args, ran);
    assert_eq!(run(db, &["list"]).ok(), "", "{args:?} leaves queues behind");
    report
}

/// Runs a cell on a throw-away database, and looks that it has left no file.
#[track_caller]
fn throw_away(args: &[&str]) -> Value {
    let scratch = Scratch::new();
    let report = report(args, scratch.bench(args).arg("--json").output().unwrap().into());
    scratch.is_empty();
    report
}

/// The report of a cell that went well: one line, nothing lost, nothing twice.
#[track_caller]
fn report(args: &[&str], ran: Ran) -> Value {
    let out = ran.ok();
    assert_eq!(out.lines().count(), 1, "{args:?}: {out}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["cell"], args[0], "{report}");
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"), "{report}");
    for fault in ["lost", "repeated"] {
        assert_eq!(report[fault], 0, "{args:?}: {report}");
    }
    assert!(report.get("invented").is_none(), "{args:?}: {report}");
    assert!(report["seconds"].as_f64().unwrap() > 0.0, "{args:?}: {report}");
    report
}

/// The quantiles of a latency are there, and in order.
#[track_caller]
fn is_latency(latency: &Value) {
    let times = ["p50", "p99", "p99_9", "max"].map(|quantile| latency[quantile].as_f64().unwrap());
    assert!(times[0] > 0.0 && times.is_sorted(), "{latency}");
}

fn number(report: &Value, key: &str) -> f64 {
    report[key].as_f64().unwrap_or_else(|| panic!("no number {key} in {report}"))
}
