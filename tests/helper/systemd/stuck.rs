//! Programs for the tests of `tests/it/systemd/stuck.rs`.

use std::time::Duration;

use kvqueue::{Event, Found};

use crate::support::{daemon_with, run_to_the_end};

/// Not the daemon's own, of which the tests could not wait for the end.
const PATIENCE: Duration = Duration::from_secs(1);

const CONFIG: &str = "log.format = 'json'\nhttp.listen = '127.0.0.1:0'\nhttp.require-token = false\n[queues.q]\nhandler = 'log'\nlease = '1s'\npoll-interval = '1s'\nconsumers = [ { k = 1 } ]";

/// A daemon whose consumer never hears of events that are `lost`.
fn run_wedged(lost: impl Fn(Event) -> bool + Send + Sync + 'static) {
    let daemon = daemon_with(CONFIG);
    run_to_the_end(daemon.patience(PATIENCE).withhold(move |_, event| lost(event)));
}

pub(crate) fn take_lost() {
    run_wedged(|event| matches!(event, Event::Fetched(Found::Batches(_))));
}

pub(crate) fn end_of_dispatch_lost() {
    run_wedged(|event| matches!(event, Event::Dispatched { .. }));
}

pub(crate) fn wakening_lost() {
    run_wedged(|event| event == Event::Woken);
}

/// The thread of the actors is blocked at the first push.
pub(crate) fn thread_blocked() {
    run_wedged(|event| {
        if event != Event::Woken {
            return false;
        }
        eprintln!("blocked");
        loop {
            std::thread::park();
        }
    });
}
