//! Programs for the tests of `tests/it/systemd/well.rs`.

use std::time::Duration;

use kvqueue::{Context, Handler, Item, Outcome, Settings, SettingsError};

use crate::support::{daemon_with, run_to_the_end};

/// Longer than a take tries, and shorter than two.
const PATIENCE_WITH_TAKES: Duration = Duration::from_secs(15);

/// Each waits for the ones before it.
const CONSUMERS: usize = 4;

/// Never done; ends when it is cancelled.
struct Endless;

#[kvqueue::async_trait]
impl Handler for Endless {
    async fn handle(&self, _: &Item, context: &Context) -> Outcome {
        eprintln!("begun");
        context.cancelled.cancelled().await;
        Outcome::retry("cancelled")
    }
}

pub(crate) fn impatient() {
    let queue = "handler = 'endless'\nlease = '1s'\npoll-interval = '1s'\nconsumers = [ { k = 1 } ]";
    let config = format!("shutdown-timeout = '100ms'\n[queues.q]\n{queue}");
    let daemon = daemon_with(&config);
    let daemon = daemon.handler("endless", |_: &Settings| Ok::<_, SettingsError>(Endless));
    run_to_the_end(daemon.patience(Duration::from_millis(500)));
}

pub(crate) fn takes_one_after_the_other() {
    let queue = format!("delivery = 'exactly-once'\nconsumers = [ {{ k = 1, count = {CONSUMERS} }} ]");
    let config =
        format!("shutdown-timeout = '1s'\n[queues.q]\nhandler = 'log'\npoll-interval = '1s'\n{queue}");
    let daemon = daemon_with(&config);
    run_to_the_end(daemon.patience(PATIENCE_WITH_TAKES));
}
