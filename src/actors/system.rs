//! The actors' thread: the one that calls [`run`].

use std::future::Future;

/// Runs `main` and the actors it starts on this thread until `main` is done. Actors that are left are dropped.
pub(crate) fn run<T>(main: impl Future<Output = T>) -> T {
    actix::System::new().block_on(main)
}
