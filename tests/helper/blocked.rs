//! Programs for the tests of `tests/it/blocked.rs`.

use std::time::Duration;

use kvqueue::{Context, Handler, Item, Outcome, Settings, SettingsError};

use crate::support::{argument, daemon_with, run_to_the_end};

/// Never returns.
struct Block;

#[kvqueue::async_trait]
impl Handler for Block {
    async fn handle(&self, _: &Item, _: &Context) -> Outcome {
        eprintln!("blocked");
        loop {
            std::thread::park();
        }
    }
}

/// With this number of consumers.
pub(crate) fn daemon() {
    let consumers = argument(0).unwrap();
    let queue = format!("[queues.q]\nhandler = 'block'\nconsumers = [ {{ k = 1, count = {consumers} }} ]");
    let daemon = daemon_with(&format!("shutdown-timeout = '100ms'\n{queue}"));
    run_to_the_end(daemon.handler("block", |_: &Settings| Ok::<_, SettingsError>(Block)));
}

/// Blocks its thread for three seconds at the item `slow`, for ever at `stuck`, and says when it begins and ends.
struct Slow;

#[kvqueue::async_trait]
impl Handler for Slow {
    async fn handle(&self, item: &Item, _: &Context) -> Outcome {
        let name = String::from_utf8_lossy(&item.payload).into_owned();
        eprintln!("begin {name} {}", item.attempt);
        match &*name {
            "slow" if item.attempt == 1 => std::thread::sleep(Duration::from_secs(3)),
            "stuck" => loop {
                std::thread::park();
            },
            _ => {}
        }
        eprintln!("end {name} {}", item.attempt);
        if item.attempt == 1 && *name == *"slow" { Outcome::retry("too slow") } else { Outcome::Done }
    }
}

pub(crate) fn overdue() {
    let queue = "[queues.q]\nhandler = 'slow'\nlease = '1s'\nhandler-timeout = '100ms'\nconsumers = [ { k = 1 } ]\n\
                 retry = { base = '10ms' }";
    let daemon = daemon_with(&format!("shutdown-timeout = '500ms'\nlog.format = 'json'\n{queue}"));
    run_to_the_end(daemon.handler("slow", |_: &Settings| Ok::<_, SettingsError>(Slow)));
}
