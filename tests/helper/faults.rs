//! Programs for the tests of `tests/it/faults.rs`.

use std::sync::Once;

use fdb_embedded::{Fault, Faults};

use kvqueue::Event;

use crate::support::{argument, daemon_with, database, run_to_the_end};

/// Conflicts in a row that take some seconds, by the back-off between them, and less than a take's ten.
const CONFLICTS: usize = 14;

/// Works the queue off in a storm: a third of its commits goes wrong.
pub(crate) fn daemon() {
    let config =
        "[queues.q]\nhandler = 'stdout'\nconsumers = [ { k = 1, count = 2 }, { k = 10, count = 2 } ]";
    let daemon = daemon_with(config);
    let (url, _) = database();
    let seed = argument(0).unwrap().parse().unwrap();
    let storm = Once::new();
    let daemon = daemon.until_empty(true).observe(move |_, event| {
        if event == Event::Started {
            storm.call_once(|| {
                let faults = Faults::seeded(seed).conflict(0.05).too_old(0.05);
                faults.unknown_committed(0.1).unknown_not_committed(0.1).install(&url).unwrap();
            });
        }
    });
    run_to_the_end(daemon);
}

/// Its disk fails at its first commit.
pub(crate) fn disk_failure() {
    let daemon = daemon_with("[queues.q]\nhandler = 'stdout'");
    let (url, _) = database();
    run_to_the_end(daemon.until_empty(true).observe(move |_, event| {
        if event == Event::Started {
            Faults::script([Fault::DiskFailure]).install(&url).unwrap();
        }
    }));
}

/// Its first take loses against others for longer than its lease lasts.
pub(crate) fn takes_that_meet_conflicts() {
    let config = "[queues.q]\nhandler = 'log'\nlease = '1s'\nconsumers = [ { k = 1 } ]";
    let daemon = daemon_with(config);
    let (url, _) = database();
    run_to_the_end(daemon.until_empty(true).observe(move |_, event| {
        if event == Event::Started {
            Faults::script([Fault::Conflict; CONFLICTS]).install(&url).unwrap();
        }
    }));
}
