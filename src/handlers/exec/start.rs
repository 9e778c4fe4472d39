//! The start of a command.

use std::{io, process::Stdio};

use bytes::Bytes;
use tokio::{
    io::AsyncWriteExt,
    process::{ChildStdin, Command},
};

#[cfg(target_os = "linux")]
use super::reaper;
use super::{lookup, names::RUN, settings::ExecSettings, variables};
use crate::handlers::Outcome;

/// The command, in a group of its own: a Ctrl-C at the terminal is for the daemon, which lets the
/// running commands finish.
pub(super) fn command(settings: &ExecSettings, run: Option<&Reaped>) -> Command {
    let mut command = Command::new(&settings.command[0]);
    variables::remove_own(&mut command);
    match run {
        Some((_, name)) => command.env(RUN, name),
        None => command.env_remove(RUN),
    };
    command.args(&settings.command[1..]).stdin(Stdio::piped()).stderr(Stdio::piped());
    command.kill_on_drop(true).process_group(0);
    command
}

/// A run that ends with the daemon, and its name.
#[cfg(target_os = "linux")]
pub(super) type Reaped = (reaper::Run, String);

#[cfg(not(target_os = "linux"))]
pub(super) type Reaped = ((), String);

/// A run that is about to begin; none where there is no reaper.
#[cfg(target_os = "linux")]
pub(super) fn reaped() -> Option<Reaped> {
    let run = reaper::run()?;
    let name = run.name();
    Some((run, name))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn reaped() -> Option<Reaped> {
    None
}

/// That a command cannot be started is seldom its item's fault: a program is missing, or the
/// machine has no room for a process. An item's variables can only be too long for a command's
/// environment.
pub(super) fn not_started(program: &str, error: &io::Error) -> Outcome {
    let reason = format!("cannot start {program}: {error}");
    match error.kind() {
        io::ErrorKind::ArgumentListTooLong | io::ErrorKind::InvalidInput => Outcome::Retry(reason),
        // The error alone may be misleading: for a missing interpreter it is "no such file".
        _ => Outcome::Unavailable(lookup::problem(program).unwrap_or(reason)),
    }
}

/// Writes the payload and closes the pipe. A command may end without reading it all, so nothing
/// is made of an error.
pub(super) async fn feed(mut input: ChildStdin, payload: Bytes) {
    let _ = input.write_all(&payload).await;
}
