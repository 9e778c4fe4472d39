//! `exec`: runs a command per item, with the payload on its standard input.

mod group;
mod lookup;
#[cfg(target_os = "linux")]
pub(crate) mod reaper;
mod settings;
#[cfg(test)]
mod tests;
mod variables;

use std::{io, process::Stdio, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use kvqueue_queue::{Item, millis};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, Command},
    time::timeout,
};

use self::{group::Group, settings::ExecSettings};
use super::{Context, Handler, Outcome, Settings, SettingsError};

/// How long the error output of a command that has ended is waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long a cancelled command has between TERM and KILL: shorter than the call that cancels it waits.
const TERM_DELAY: Duration = Duration::from_millis(500);

const _: () = assert!(TERM_DELAY.as_millis() < super::ABORT_DELAY.as_millis());

/// Names the run that a process belongs to.
const RUN: &str = "KVQUEUE_RUN";

/// Runs a command per item.
///
/// `docs/CONFIG.md` documents the command's environment and its exit codes. Its output is not kept, except
/// the beginning of what a failing command wrote to stderr. When the item is cancelled, the command and its
/// child processes get TERM, and KILL half a second later.
#[derive(Clone, Debug)]
pub struct Exec {
    settings: ExecSettings,
}

impl Exec {
    /// Needs `command`, the program and its arguments.
    pub fn from_config(settings: &Settings) -> Result<Self, SettingsError> {
        ExecSettings::read(settings).map(|settings| Self { settings })
    }

    fn spawn(&self, item: &Item, context: &Context, run: Option<&str>) -> io::Result<Child> {
        let mut command = Command::new(&self.settings.command[0]);
        variables::set(&mut command, &context.queue, item, context.enqueued_at(item).map(millis));
        match run {
            Some(run) => command.env(RUN, run),
            None => command.env_remove(RUN),
        };
        command
            .args(&self.settings.command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            // A Ctrl-C at the terminal is for the daemon, which lets the commands in hand finish.
            .process_group(0)
            .spawn()
    }

    async fn run(&self, item: &Item, context: &Context) -> Result<Outcome, String> {
        let program = &self.settings.command[0];
        // Until the command has ended, or was killed.
        let run = reaped();
        let mut child = match self.spawn(item, context, run.as_ref().map(|(_, name)| &**name)) {
            Ok(child) => child,
            Err(error) => return Ok(not_started(program, &error)),
        };
        context.works();
        let group = Group::of(&child);
        let input = child.stdin.take().expect("stdin was asked for");
        let errors = child.stderr.take().expect("stderr was asked for");
        // At the same time: a command may write before it has read everything. Tasks of their own, because what
        // the command left running may hold the pipes open after it has ended.
        tokio::spawn(feed(input, item.payload.clone()));
        let said = tokio::spawn(beginning(errors, self.settings.stderr_limit));
        let status = tokio::select! {
            status = child.wait() => status.map_err(|error| format!("cannot wait for {program}: {error}"))?,
            () = context.cancelled.cancelled() => {
                group.terminate();
                // It ends by itself, or with its group.
                let _ = timeout(TERM_DELAY, child.wait()).await;
                return Ok(Outcome::retry("the command was killed: the item was cancelled"));
            }
        };
        group.ended();
        let said = match status.success() {
            true => String::new(),
            false => timeout(LAST_WORDS, said).await.ok().and_then(Result::ok).unwrap_or_default(),
        };
        Ok(self.settings.outcome(status, &said))
    }
}

#[async_trait]
impl Handler for Exec {
    fn warning(&self) -> Option<String> {
        lookup::problem(&self.settings.command[0])
    }

    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        self.run(item, context).await.unwrap_or_else(Outcome::Retry)
    }
}

/// A run that ends with the daemon, and its name.
#[cfg(target_os = "linux")]
fn reaped() -> Option<(reaper::Run, String)> {
    let run = reaper::run()?;
    let name = run.name();
    Some((run, name))
}

#[cfg(not(target_os = "linux"))]
fn reaped() -> Option<((), String)> {
    None
}

/// That a command cannot be started is seldom its item's fault: a program is missing, or the machine has no room for a process.
/// An item's variables can only be too long for a command's environment.
fn not_started(program: &str, error: &io::Error) -> Outcome {
    let reason = format!("cannot start {program}: {error}");
    match error.kind() {
        io::ErrorKind::ArgumentListTooLong | io::ErrorKind::InvalidInput => Outcome::Retry(reason),
        // The error alone may be misleading: for a missing interpreter it is "no such file".
        _ => Outcome::Unavailable(lookup::problem(program).unwrap_or(reason)),
    }
}

/// Writes the payload and closes the pipe. A command may end without reading it all, so nothing
/// is made of an error.
async fn feed(mut input: ChildStdin, payload: Bytes) {
    let _ = input.write_all(&payload).await;
}

/// Reads everything, so that the command never blocks on a full pipe, and keeps the first `limit` bytes.
async fn beginning(mut from: impl AsyncRead + Unpin, limit: u64) -> String {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut kept = Vec::new();
    let mut buffer = [0; 4096];
    // A read error ends what can be said about a failure; the exit code has decided already.
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let room = limit.saturating_sub(kept.len()).min(read);
        kept.extend_from_slice(&buffer[..room]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}
