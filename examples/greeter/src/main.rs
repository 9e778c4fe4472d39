//! kvqueue, with two handlers more.

use std::process::ExitCode;

use greeter::{Greet, Invite};
use kvqueue::{Json, SettingsError};

fn main() -> ExitCode {
    kvqueue::cli::main_as("greeter", env!("CARGO_PKG_VERSION"), |daemon| {
        daemon.handler("greet", Greet::from_config).handler("invite", |settings| {
            settings.expect_none()?;
            Ok::<_, SettingsError>(Json(Invite))
        })
    })
    .into()
}
