//! Waiting for something to become so.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::PATIENCE;

/// How long to rest after a look, in the time that the look took. A look is often a process, which takes a processor from what it
/// looks at.
const REST: u32 = 3;
const SHORTEST_REST: Duration = Duration::from_millis(20);
const LONGEST_REST: Duration = Duration::from_millis(150);

/// Waits until it is so. Only a failure waits to the end: on a busy machine a drained disk takes a while.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(|| if is_so() { Ok(()) } else { Err(what) });
}

/// The same. The error is what was seen instead.
#[track_caller]
pub(crate) fn wait_for<E: std::fmt::Display>(mut look: impl FnMut() -> Result<(), E>) {
    let deadline = Instant::now() + 3 * PATIENCE;
    loop {
        let began = Instant::now();
        let Err(seen) = look() else { return };
        assert!(Instant::now() < deadline, "never: {seen}");
        thread::sleep((began.elapsed() * REST).clamp(SHORTEST_REST, LONGEST_REST));
    }
}
