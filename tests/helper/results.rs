//! Programs for the tests of `tests/it/results.rs`.

use kvqueue::{Context, Handler, Item, Outcome, Settings, SettingsError};

use crate::support::{argument, daemon_with, run_to_the_end};

/// Gives the payload back. For one that begins with `x` the result is too long, for one that begins with `-` there is none.
struct Echo;

#[kvqueue::async_trait]
impl Handler for Echo {
    async fn handle(&self, item: &Item, _: &Context) -> Outcome {
        match item.payload.split_first() {
            Some((b'x', _)) => Outcome::done_with(vec![b'x'; 90_001]),
            Some((b'-', _)) => Outcome::Done,
            _ => Outcome::done_with(item.payload.clone()),
        }
    }
}

/// Reports how far it is until it is cancelled.
struct Slow;

#[kvqueue::async_trait]
impl Handler for Slow {
    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        context.report_progress(item, None, "begun");
        context.report_progress(item, Some(50), "half way");
        context.cancelled.cancelled().await;
        Outcome::Release
    }
}

/// The same until it is stopped, with a handler whose items never end.
pub(crate) fn slow() {
    let config = std::fs::read_to_string(argument(0).unwrap()).unwrap();
    run_to_the_end(daemon_with(&config).handler("slow", |_: &Settings| Ok::<_, SettingsError>(Slow)));
}

/// A daemon with the configuration in a file that is named, until its queues are empty.
pub(crate) fn daemon() {
    let config = std::fs::read_to_string(argument(0).unwrap()).unwrap();
    run_to_the_end(
        daemon_with(&config).handler("echo", |_: &Settings| Ok::<_, SettingsError>(Echo)).until_empty(true),
    );
}
