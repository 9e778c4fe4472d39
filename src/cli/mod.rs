//! The commands. stdout is data, stderr everything else; [`Exit`] says what the codes mean.
//!
//! | file | command |
//! |---|---|
//! | `run` | the daemon |
//! | `push`, `pop`, `peek`, `len`, `list`, `delete` | one operation on a queue |
//! | `dead` | dead letters: look, retry, purge |
//! | `config` | check and show the configuration |
//! | `doctor` | check a database |
//! | `demo` | the tutorial, live |
//! | `bench` | how fast it is here |
//! | `globals`, `target`, `client`, `output` | what they share |

mod bench;
mod client;
mod config;
mod dead;
mod delete;
mod demo;
mod doctor;
mod globals;
mod len;
mod list;
mod output;
mod peek;
mod pop;
mod push;
mod run;
mod target;

use std::{io::ErrorKind, panic::AssertUnwindSafe};

use clap::{Parser, Subcommand};

use crate::{
    config::ConfigError,
    daemon::{Daemon, DaemonError},
    database::OpenError,
    exit::Exit,
};
use globals::Globals;

const EXIT_CODES: &str = "\
Exit codes:
  0   done
  1   failed while running
  2   wrong command line
  65  some of the input was refused (an item over the size limit); the rest was pushed
  69  the database cannot be used
  70  a fault in kvqueue itself
  78  wrong configuration
  128 + n  a second signal n stopped it at once";

/// A durable queue on FoundationDB, or in a local directory, and the daemon that works it off.
#[derive(Debug, Parser)]
#[command(name = "kvqueue", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Push(push::Args),
    Pop(pop::Args),
    Peek(peek::Args),
    Len(len::Args),
    List(list::Args),
    Delete(delete::Args),
    #[command(subcommand)]
    Dead(dead::Command),
    #[command(subcommand)]
    Config(config::Command),
    Doctor(doctor::Args),
    Demo(demo::Args),
    Bench(bench::Args),
}

/// A command line that clap cannot know to be wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UsageError(String);

/// Parses this process's command line, runs the command, reports an error and returns the exit code.
pub fn main() -> Exit {
    main_with(|daemon| daemon)
}

/// As [`main`], for a program with handlers of its own: `register` adds them to the daemon that is to run, or whose configuration is to
/// be checked.
///
/// ```no_run
/// use kvqueue::{Context, Handler, Item, Outcome, SettingsError};
/// # struct Email;
/// # #[kvqueue::async_trait]
/// # impl Handler for Email {
/// #     async fn handle(&self, _: &Item, _: &Context) -> Outcome {
/// #         Outcome::Done
/// #     }
/// # }
///
/// fn main() -> std::process::ExitCode {
///     kvqueue::cli::main_with(|daemon| daemon.handler("email", |_| Ok::<_, SettingsError>(Email))).into()
/// }
/// ```
pub fn main_with(register: impl FnOnce(Daemon) -> Daemon) -> Exit {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Without a stderr to print to, the code has to do.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Done };
        }
    };
    match std::panic::catch_unwind(AssertUnwindSafe(|| cli.run(register))) {
        Ok(Ok(exit)) => exit,
        Ok(Err(error)) => report(&error),
        // The panic has been printed, or logged.
        Err(_) => Exit::Internal,
    }
}

impl Cli {
    fn run(self, register: impl FnOnce(Daemon) -> Daemon) -> anyhow::Result<Exit> {
        let globals = &self.globals;
        match self.command {
            Command::Run(args) => args.run(globals, register),
            Command::Push(args) => args.run(globals),
            Command::Pop(args) => args.run(globals),
            Command::Peek(args) => args.run(globals),
            Command::Len(args) => args.run(globals),
            Command::List(args) => args.run(globals),
            Command::Delete(args) => args.run(globals),
            Command::Dead(command) => command.run(globals),
            Command::Config(command) => command.run(globals, register),
            Command::Doctor(args) => args.run(globals),
            Command::Demo(args) => args.run(globals),
            Command::Bench(args) => args.run(globals),
        }
    }
}

fn report(error: &anyhow::Error) -> Exit {
    // Whoever reads our output has enough of it: nothing to complain about.
    if error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) {
        return Exit::Failed;
    }
    output::note(format_args!("kvqueue: {error:#}"));
    exit_of(error)
}

fn exit_of(error: &anyhow::Error) -> Exit {
    if error.is::<ConfigError>() {
        Exit::Config
    } else if error.is::<OpenError>() {
        Exit::Unavailable
    } else if error.is::<UsageError>() {
        Exit::Usage
    } else {
        error.downcast_ref::<DaemonError>().map_or(Exit::Failed, DaemonError::exit)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
