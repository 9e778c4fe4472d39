//! The daemon: kvqueue's, with one handler more.

use std::{env, error::Error, path::PathBuf};

use greeter::Greet;
use kvqueue::Daemon;

fn main() -> Result<(), Box<dyn Error>> {
    let file = env::args_os().nth(1).map(PathBuf::from);
    let config = kvqueue::config::load(file.as_deref())?;
    kvqueue::telemetry::init(&config.log)?;
    Ok(Daemon::new(config).handler("greet", Greet::from_config).run()?)
}
