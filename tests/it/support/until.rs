//! Waiting for something to become so.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::PATIENCE;

/// Waits until it is so. Only a failure waits to the end: on a busy machine a drained disk takes a while.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + 3 * PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
