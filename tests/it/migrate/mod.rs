//! `kvqueue migrate`: nothing is lost and nothing doubled, whenever it is killed.

mod clusters;
mod killed;
mod live;
mod others;
mod refusals;

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use crate::support::{Database, Ran, kvqueue, run};

/// The migration of all queues of one database to another, with these options.
fn migration(from: &Database, to: &Database, options: &[&str]) -> Command {
    let mut command = kvqueue(from, &["migrate", "--from", &from.url, "--to", &to.url, "--wait", "0s"]);
    command.args(options).stdin(Stdio::null());
    command
}

fn migrate(from: &Database, to: &Database, options: &[&str]) -> Ran {
    migration(from, to, options).output().unwrap().into()
}

/// Starts a migration and kills it when it has said for the `count`th time that it is in `phase`; `Some` if it ends before that.
fn killed_in(mut command: Command, phase: &str, count: usize, pause: std::time::Duration) -> Option<Ran> {
    let mut child = command.arg("-v").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut said = String::new();
    let mut left = count;
    for line in lines.by_ref() {
        left -= usize::from(line.contains(phase));
        said = said + &line + "\n";
        if left == 0 {
            std::thread::sleep(pause);
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
    }
    let mut ran = Ran::from(child.wait_with_output().unwrap());
    ran.stderr = said;
    Some(ran)
}

/// The numbers that `kvqueue len` tells. They are the same at both ends; the source's pause is not.
fn counts(db: &Database, queue: &str) -> serde_json::Value {
    let mut told: serde_json::Value = serde_json::from_str(&run(db, &["len", queue, "--json"]).ok()).unwrap();
    told.as_object_mut().unwrap().remove("paused");
    told
}

/// The checksum in what a migration has said.
fn checksum(said: &str) -> &str {
    let (_, checksum) = said.split_once("checksum ").unwrap_or_else(|| panic!("no checksum: {said}"));
    checksum.split(',').next().unwrap()
}
