//! `exec`: runs a command per item, with the payload on its standard input.

use std::{io, process::Stdio, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use kvqueue_queue::Item;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, Command},
    time::timeout,
};

use super::{Context, Handler, Outcome, Settings, SettingsError};

/// How long the error output of a command that has ended is waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Runs a command per item.
///
/// The command finds the queue's name in `KVQUEUE_QUEUE` and the item's stamp in `KVQUEUE_ITEM`. Exit code 0 means
/// done. Its output is not kept, except the beginning of what a failing command wrote to stderr. When the item is
/// cancelled the command is killed, with what it started.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Exec {
    command: Vec<String>,
    #[serde(default = "default_stderr_limit")]
    stderr_limit: usize,
}

fn default_stderr_limit() -> usize {
    4096
}

impl Exec {
    /// Needs `command`, the program and its arguments.
    pub fn from_config(settings: &Settings) -> Result<Self, SettingsError> {
        const FIX: &str = "write command = [\"program\", \"argument\"] in handler-config";
        let exec: Self =
            settings.parse().map_err(|SettingsError(problem)| SettingsError(format!("{problem}; {FIX}")))?;
        match exec.command.first() {
            Some(program) if !program.is_empty() => Ok(exec),
            _ => Err(SettingsError(format!("command = {:?}: it names no program; {FIX}", exec.command))),
        }
    }

    fn spawn(&self, item: &Item, context: &Context) -> io::Result<Child> {
        Command::new(&self.command[0])
            .args(&self.command[1..])
            .env("KVQUEUE_QUEUE", &*context.queue)
            .env("KVQUEUE_ITEM", item.id.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            // A Ctrl-C at the terminal is for the daemon, which lets the commands in hand finish.
            .process_group(0)
            .spawn()
    }

    async fn run(&self, item: &Item, context: &Context) -> Result<(), String> {
        let program = &self.command[0];
        let mut child =
            self.spawn(item, context).map_err(|error| format!("cannot start {program}: {error}"))?;
        let group = Group::of(&child);
        let input = child.stdin.take().expect("stdin was asked for");
        let errors = child.stderr.take().expect("stderr was asked for");
        // Beside each other: a command may write before it has read everything. Tasks of their own, because what
        // the command left running may hold the pipes open after it has ended.
        tokio::spawn(feed(input, item.payload.clone()));
        let said = tokio::spawn(beginning(errors, self.stderr_limit));
        let status = child.wait().await.map_err(|error| format!("cannot wait for {program}: {error}"))?;
        group.ended();
        if status.success() {
            return Ok(());
        }
        let said = timeout(LAST_WORDS, said).await.ok().and_then(Result::ok).unwrap_or_default();
        Err(format!("{program} failed with {status}: {}", said.trim_end()))
    }
}

#[async_trait]
impl Handler for Exec {
    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        tokio::select! {
            result = self.run(item, context) => match result {
                Ok(()) => Outcome::Done,
                Err(reason) => Outcome::Retry(reason),
            },
            () = context.cancelled.cancelled() => Outcome::retry("the command was killed: the item was cancelled"),
        }
    }
}

/// The process group of a command that has not ended. Dropped, it kills the command and all it started.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)))
    }

    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may have ended this instant; then there is nothing left to kill.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Writes the payload and closes the pipe. A command that ends without reading it all is in its right, so nothing
/// is made of an error.
async fn feed(mut input: ChildStdin, payload: Bytes) {
    let _ = input.write_all(&payload).await;
}

/// Reads everything, so that the command never blocks on a full pipe, and keeps the first `limit` bytes.
async fn beginning(mut from: impl AsyncRead + Unpin, limit: usize) -> String {
    let mut kept = Vec::new();
    let mut buffer = [0; 4096];
    // A read error ends what can be said about a failure; the exit code has decided already.
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let room = limit.saturating_sub(kept.len()).min(read);
        kept.extend_from_slice(&buffer[..room]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}
