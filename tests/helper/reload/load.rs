//! Programs for the tests of `tests/it/reload/load.rs`.

use std::fs;

use kvqueue::{Context, Handler, Item, Outcome, Settings, SettingsError};

use crate::support::{argument, daemon_with, reloadable, run_to_the_end};

/// Prints each item and its attempt.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Print {
    mark: u64,
}

impl Print {
    fn from_config(settings: &Settings) -> Result<Self, SettingsError> {
        settings.parse()
    }
}

#[kvqueue::async_trait]
impl Handler for Print {
    async fn handle(&self, item: &Item, _: &Context) -> Outcome {
        println!("item {} {} {}", String::from_utf8_lossy(&item.payload), item.attempt, self.mark);
        tokio::task::yield_now().await;
        Outcome::Done
    }
}

pub(crate) fn print() {
    let path = argument(0).unwrap();
    let daemon = daemon_with(&fs::read_to_string(&path).unwrap());
    run_to_the_end(reloadable(daemon, path).handler("print", Print::from_config));
}
