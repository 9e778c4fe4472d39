//! The daemon over HTTP.

mod api;
mod audit;
mod changes;
pub(crate) mod document;
mod guards;
mod hostile;
mod lists;
mod manual;
mod memory;
mod orders;
mod pull;
mod shares;
mod sign_in;
mod tls;
mod tokens;
mod waiting;
mod workers;

use crate::support::{Database, Served, run, serve};

/// A queue that is processed.
const LOG: &str = "[queues.q]\nhandler = 'log'\n";

/// A queue with a dead letter for each of these items.
pub(crate) fn with_dead(db: &Database, items: &[&str]) {
    let push = [&["push", "dead"], items].concat();
    run(db, &push).ok();
    let config = db.file("dead.toml");
    let text =
        "[queues.dead]\nhandler = 'exec'\nretry.max-attempts = 1\nhandler-config = { command = ['false'] }\n";
    std::fs::write(&config, text).unwrap();
    run(db, &["run", "--until-empty", "--config", config.to_str().unwrap()]).ok();
}

/// A daemon like any other.
fn served(db: &Database) -> Served {
    serve(db, LOG)
}
