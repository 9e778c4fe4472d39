//! Programs for the tests of `tests/it/http/hostile.rs`.

use std::time::Duration;

use kvqueue::{Context, Handler, Item, Outcome, Settings, SettingsError};

use crate::support::{daemon_with, run_to_the_end};

/// Takes so long for an item that the daemon's usual rate is far from what the machine can do: attackers on the same machine need
/// some of it, too.
struct Nap;

#[kvqueue::async_trait]
impl Handler for Nap {
    async fn handle(&self, _: &Item, _: &Context) -> Outcome {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Outcome::Done
    }
}

pub(crate) fn daemon() {
    let config = "http.listen = '127.0.0.1:0'\nhttp.require-token = false\nlog.format = 'json'\n[queues.q]\nhandler = 'nap'\nconsumers = [ { k = 10, count = 5 } ]";
    let daemon = daemon_with(config);
    run_to_the_end(daemon.handler("nap", |_: &Settings| Ok::<_, SettingsError>(Nap)));
}
