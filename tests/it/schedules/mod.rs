//! Schedules of the configuration, with the real program: they are stored, changed and removed, and fire.

mod configured;
mod firing;
mod storm;

use std::{fs, path::PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Background, Database, helper, kvqueue};

/// A daemon with a configuration file of this name and text, which may not be ready yet: what schedules do may be logged before that. `-v`
/// makes it log what a schedule pushes.
fn daemon(db: &Database, file: &str, text: &str) -> Background {
    let config = configure(db, file, text);
    Background::start(kvqueue(db, &["run", "-v", "--config", config.to_str().unwrap()]))
}

fn configure(db: &Database, file: &str, text: &str) -> PathBuf {
    let config = db.file(file);
    fs::write(&config, text).unwrap();
    config
}

/// Queue `q`, whose items stay, and its schedules.
fn queue(schedules: &[(&str, &str)]) -> String {
    let tables = schedules.iter().map(|(name, lines)| format!("[queues.q.schedules.{name}]\n{lines}\n"));
    format!("[queues.q]\nhandler = 'pull'\n{}", tables.collect::<String>())
}

/// Ends a daemon in order, and returns its log.
fn stop(daemon: Background) -> String {
    daemon.signal(Signal::TERM);
    let ran = daemon.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.stderr
}

/// The schedules of `q`, by name, with their histories.
fn schedules(db: &Database) -> serde_json::Map<String, Value> {
    let shown = Background::start(helper(db, "schedules::show")).end().ok();
    serde_json::from_str(&shown).unwrap()
}

/// The names of the schedules of `q`.
fn names(db: &Database) -> Vec<String> {
    schedules(db).keys().cloned().collect()
}

/// Stores a schedule that belongs to no configuration, by a clock that is so many hours ahead.
fn put_at_run_time(db: &Database, name: &str, hours_ahead: u64) {
    let mut command = helper(db, "schedules::put");
    command.args([name, &hours_ahead.to_string()]);
    Background::start(command).end().ok();
}
