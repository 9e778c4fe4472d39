//! A daemon with a handler of one's own, plugged in at build time.
//!
//! ```sh
//! cargo run --example own_handler -- examples/own_handler.toml
//! ```
//! works off the queue "greetings" of `embedded:./kvqueue-data`, which `kvqueue push greetings ann bob` fills while it does not
//! run.

use std::path::PathBuf;

use kvqueue::{Context, Daemon, Handler, Item, Outcome, Settings, SettingsError};

/// What the configuration says in `[queues.NAME.handler-config]`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Greet {
    greeting: String,
}

impl Greet {
    fn from_config(settings: &Settings) -> Result<Self, SettingsError> {
        settings.parse()
    }
}

#[kvqueue::async_trait]
impl Handler for Greet {
    async fn handle(&self, item: &Item, _context: &Context) -> Outcome {
        match std::str::from_utf8(&item.payload) {
            Ok(name) => println!("{}, {name}!", self.greeting),
            Err(error) => return Outcome::retry(format_args!("the name is not UTF-8: {error}")),
        }
        Outcome::Done
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args_os().nth(1).map(PathBuf::from);
    let config = kvqueue::config::load(file.as_deref())?;
    kvqueue::telemetry::init(&config.log)?;
    Ok(Daemon::new(config).handler("greet", Greet::from_config).run()?)
}
