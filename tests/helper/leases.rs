//! Programs for the tests of `tests/it/leases.rs`.

use std::time::Duration;

use kvqueue::{Context, Handler, Item, Outcome, Settings, SettingsError};

use crate::support::{daemon_with, run_to_the_end};

/// Says that it is done when it hears that nobody wants to know.
struct Late;

#[kvqueue::async_trait]
impl Handler for Late {
    async fn handle(&self, _: &Item, context: &Context) -> Outcome {
        eprintln!("late begins");
        context.cancelled.cancelled().await;
        eprintln!("late is done");
        Outcome::Done
    }
}

pub(crate) fn late() {
    let daemon = daemon_with("[queues.q]\nhandler = 'late'\nlease = '1s'");
    run_to_the_end(daemon.handler("late", |_: &Settings| Ok::<_, SettingsError>(Late)));
}

/// Blocks its thread for longer than its lease.
struct Block;

#[kvqueue::async_trait]
impl Handler for Block {
    async fn handle(&self, item: &Item, _: &Context) -> Outcome {
        std::thread::sleep(Duration::from_millis(1_500));
        eprintln!("handled in attempt {}", item.attempt);
        Outcome::Done
    }
}

pub(crate) fn daemon() {
    let threads = std::thread::available_parallelism().unwrap().get();
    let queue =
        format!("handler = 'block'\nlease = '1s'\nconsumers = [ {{ k = 1, count = {} }} ]", 2 * threads);
    let daemon = daemon_with(&format!("[queues.q]\n{queue}"));
    let daemon = daemon.until_empty(true);
    run_to_the_end(daemon.handler("block", |_: &Settings| Ok::<_, SettingsError>(Block)));
}
