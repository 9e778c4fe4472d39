//! The exit code of a command that fails.

use std::io::ErrorKind;

use super::{
    api_client::AskError,
    backup,
    base::{DataError, UsageError},
    migrate::MigrateError,
    output,
};
use crate::{
    base::exit::Exit,
    config::ConfigError,
    daemon::DaemonError,
    database::{NoAnswer, OpenError},
    operations::{Class, Refusal},
};

/// Prints an error. Returns the exit code.
pub(super) fn report(error: &anyhow::Error) -> Exit {
    // The reader of the output has closed the pipe, which is no error. Commands that change something do not return this error:
    // they return an anyhow error that says what was done.
    if error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) {
        return Exit::Done;
    }
    output::note(format_args!("kvqueue: {error:#}"));
    exit_of(error)
}

/// The exit code for an error.
pub(super) fn exit_of(error: &anyhow::Error) -> Exit {
    if error.is::<ConfigError>() {
        Exit::Config
    } else if error.is::<OpenError>() || error.is::<NoAnswer>() {
        Exit::Unavailable
    } else if error.is::<UsageError>() {
        Exit::Usage
    } else if let Some(refusal) = error.downcast_ref::<Refusal>() {
        match refusal.class {
            Class::Bad => Exit::Usage,
            Class::TooLarge => Exit::Data,
            Class::NotFound | Class::Conflict => Exit::Failed,
        }
    } else if error.is::<DataError>() {
        Exit::Data
    } else if let Some(error) = error.downcast_ref::<AskError>() {
        error.exit()
    } else if let Some(error) = error.downcast_ref() {
        backup::exit(error)
    } else if let Some(error) = error.downcast_ref::<MigrateError>() {
        error.exit()
    } else {
        error.downcast_ref::<DaemonError>().map_or(Exit::Failed, DaemonError::exit)
    }
}
