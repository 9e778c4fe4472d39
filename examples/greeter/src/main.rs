//! kvqueue, with one handler more.

use std::process::ExitCode;

use greeter::Greet;

fn main() -> ExitCode {
    kvqueue::cli::main_as("greeter", env!("CARGO_PKG_VERSION"), |daemon| {
        daemon.handler("greet", Greet::from_config)
    })
    .into()
}
