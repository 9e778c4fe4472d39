//! `exec`: runs a command per item, with the payload on its standard input, or hands items to
//! processes that stay (`worker`).

mod group;
mod line_log;
mod lookup;
mod names;
mod output;
mod progress;
#[cfg(target_os = "linux")]
pub(crate) mod reaper;
#[cfg(target_os = "linux")]
mod search;
mod settings;
mod start;
#[cfg(test)]
mod tests;
mod variables;
mod worker;

use std::{
    io,
    process::Stdio,
    sync::{Arc, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use kvqueue_queue::Item;
use rustix::process::Signal;
use tokio::{process::Child, task::JoinHandle, time::timeout};

use self::{
    group::Group,
    line_log::LineLog,
    names::{EXIT_TIMEOUT, STDERR, STDOUT},
    output::{Kept, OutputReader, Reports, Said},
    progress::ProgressLines,
    settings::{ExecSettings, Mode, ProgressFrom, ResultFrom},
    start::{Reaped, command, feed, not_started, reaped},
    worker::Pool,
};
use super::{Context, Handler, Outcome, Settings, SettingsError};

/// How long a cancelled command has between TERM and KILL: shorter than the call that cancels it
/// waits.
const TERM_DELAY: Duration = Duration::from_millis(500);

const _: () = assert!(TERM_DELAY.as_millis() < super::ABORT_DELAY.as_millis());

/// Runs a command per item, or hands items to processes that stay.
///
/// `docs/config/handlers.md` documents a command's environment and its exit codes, `docs/workers/processes.md` the
/// lines that a process reads and writes. While a command for one item runs, the last line that it has written is the progress of the item. Afterwards
/// nothing is kept but the last line and the beginning of what a failing one wrote to stderr, with `result = "stdout"` the standard output of one that is done, and with
/// `log-output` its lines in the log. When the item is cancelled, the command and its child processes get TERM, and KILL half a second later.
#[derive(Clone, Debug)]
pub struct Exec {
    settings: Arc<ExecSettings>,
    /// With `mode = "worker"`.
    pool: Option<Arc<Pool>>,
}

impl Exec {
    /// Needs `command`, the program and its arguments.
    pub fn from_config(settings: &Settings) -> Result<Self, SettingsError> {
        let settings = Arc::new(ExecSettings::read(settings)?);
        let pool = (settings.mode == Mode::Worker).then(|| Arc::new(Pool::new(settings.clone())));
        Ok(Self { settings, pool })
    }

    fn spawn(&self, item: &Item, context: &Context, run: Option<&Reaped>) -> io::Result<Child> {
        let mut command = command(&self.settings, run);
        variables::set(&mut command, &context.queue, item, context.enqueued_at(item));
        command.stdout(Stdio::piped()).spawn()
    }

    /// Reads what the command of an item writes, in tasks of their own: what the command left running may hold the pipes open after it has ended.
    fn read(&self, child: &mut Child, item: &Item, context: &Context) -> Output {
        let (errors, output) = (child.stderr.take(), child.stdout.take());
        let (errors, output) =
            errors.zip(output).expect("stderr and stdout were asked for, and are read once");
        let said = Said::new(self.settings.stderr_limit);
        let reader = self.reader(STDERR, child, item, context, Some(said.clone()));
        let reading_errors = tokio::spawn(reader.read(errors));
        let result = (self.settings.result == ResultFrom::Stdout).then(Kept::default);
        let reader = self.reader(STDOUT, child, item, context, None);
        let reader = match &result {
            Some(kept) => reader.keeping(kept.clone()),
            None => reader,
        };
        let reading_output = tokio::spawn(reader.read(output));
        Output { said, result, reading_errors, reading_output }
    }

    /// The reader of a stream whose lines are followed.
    fn reader(
        &self,
        stream: &'static str,
        child: &Child,
        item: &Item,
        context: &Context,
        said: Option<Said>,
    ) -> OutputReader {
        let reporter = context.reporter(item);
        let reports = match (self.settings.progress, stream) {
            (ProgressFrom::LastLine, _) => Reports::LastLine(reporter),
            (ProgressFrom::Stderr, STDERR) => Reports::Lines(ProgressLines::new(reporter)),
            (ProgressFrom::Stderr | ProgressFrom::None, _) => Reports::Nothing,
        };
        let log = self.settings.log_output.then(|| {
            let mut log = LineLog::new(stream, context.queue.clone(), child.id(), self.settings.stderr_limit);
            log.begin(tracing::Span::current());
            log
        });
        OutputReader::new(reports, log, said)
    }

    async fn run(&self, item: &Item, context: &Context) -> Result<Outcome, String> {
        let program = &self.settings.command[0];
        // Until the command has ended, or was killed.
        let run = reaped();
        let mut child = match self.spawn(item, context, run.as_ref()) {
            Ok(child) => child,
            Err(error) => return Ok(not_started(program, &error)),
        };
        context.works();
        let mut group = Group::of(&child, run.as_ref().map(|(_, name)| name.as_str()));
        let input = child.stdin.take().expect("stdin was asked for");
        // At the same time: a command may write before it has read everything.
        tokio::spawn(feed(input, item.payload.clone()));
        let output = self.read(&mut child, item, context);
        let status = tokio::select! {
            // A command that has ended by itself was not killed.
            biased;
            status = child.wait() => status.map_err(|error| format!("cannot wait for {program}: {error}"))?,
            () = context.cancelled.cancelled() => {
                // It ends by itself, or with its group.
                let ended = async {
                    group.signal(Signal::TERM).await;
                    child.wait().await
                };
                let _ = timeout(TERM_DELAY, ended).await;
                group.kill().await;
                return Ok(Outcome::retry("the command was killed: the item was cancelled"));
            }
        };
        group.ended();
        let (said, result) = output.end(status.success(), self.settings.log_output).await;
        Ok(match (self.settings.outcome(status, &said), result) {
            (Outcome::Done, Some(result)) => Outcome::done_with(result),
            (outcome, _) => outcome,
        })
    }
}

/// What a command writes, which is being read.
struct Output {
    /// To its standard error.
    said: Said,
    /// To its standard output, if that is the result.
    result: Option<Kept>,
    reading_errors: JoinHandle<()>,
    reading_output: JoinHandle<()>,
}

impl Output {
    /// What a command has said and its result, after its end. `all`: waits for what is not kept, too.
    async fn end(self, is_success: bool, all: bool) -> (String, Option<Vec<u8>>) {
        let read = async {
            if all || !is_success {
                let _ = self.reading_errors.await;
            }
            if all || (is_success && self.result.is_some()) {
                let _ = self.reading_output.await;
            }
        };
        // A process that the command left running may hold the pipes open.
        let _ = timeout(EXIT_TIMEOUT, read).await;
        let taken = |kept: Kept| std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner));
        (self.said.text(), self.result.map(taken))
    }
}

#[async_trait]
impl Handler for Exec {
    fn warning(&self) -> Option<String> {
        lookup::problem(&self.settings.command[0])
    }

    fn limits_itself(&self) -> bool {
        self.pool.is_some()
    }

    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        if let Some(pool) = &self.pool {
            return pool.handle(item, context).await;
        }
        self.run(item, context).await.unwrap_or_else(Outcome::Retry)
    }
}

/// How long a call with these settings may wait for a process to start, before `handler-timeout`
/// begins. Zero if the settings are wrong, which [`Exec::from_config`] reports.
pub(crate) fn start_timeout(settings: &Settings) -> Duration {
    let settings = ExecSettings::read(settings).ok().filter(|settings| settings.mode == Mode::Worker);
    settings.map_or(Duration::ZERO, |settings| settings.start_timeout())
}
