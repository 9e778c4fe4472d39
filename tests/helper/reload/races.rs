//! Programs for the tests of `tests/it/reload/races.rs`.

use std::fs;

use kvqueue::Event;

use crate::support::{argument, daemon_with, reloadable, run_to_the_end};

/// A daemon whose first consumer panics when it has to leave.
pub(crate) fn panic_on_leaving() {
    let path = argument(0).unwrap();
    let daemon = daemon_with(&fs::read_to_string(&path).unwrap());
    run_to_the_end(reloadable(daemon, path).observe(|consumer, event| {
        assert!((consumer, event) != (1, Event::Drain), "panic on purpose");
    }));
}
