//! One process, and the task that owns it: from its start, through its items, to its end.

use std::{
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes};
use futures::FutureExt;
use rustix::process::Signal;
use tokio::{
    io::AsyncWriteExt,
    process::{Child, ChildStdin, ChildStdout},
    sync::{mpsc, oneshot},
    time::{sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::Span;

use super::{
    errors::{AT_ONCE, Errors},
    limits::{EndReason, Limits, Step},
    lines::{Line, Lines},
    protocol::{self, Heartbeat, MAX_LINE, VERSION, WorkerMessage},
};
use crate::{
    handlers::{
        Outcome, ProgressReporter,
        exec::{
            group::Group,
            names::EXIT_TIMEOUT,
            settings::ExecSettings,
            start::{Reaped, command, not_started, reaped},
            variables,
        },
        processes::{EXIT_DELAY, EXIT_TERM_DELAY},
    },
    meters::QueueMeters,
};

/// An item for a process, and how its call gets the outcome.
pub(super) struct ItemRequest {
    pub(super) line: Bytes,
    pub(super) id: String,
    pub(super) limit: Option<Duration>,
    pub(super) cancelled: CancellationToken,
    pub(super) span: Span,
    pub(super) progress: ProgressReporter,
    pub(super) ended: oneshot::Sender<Ended>,
}

/// How an item's time with a process ended.
pub(super) enum Ended {
    /// The process gave an outcome; whether it takes another item.
    Outcome { outcome: Outcome, goes_on: bool },
    /// The process is gone; whether it was its first item.
    Broken { outcome: Outcome, is_first: bool },
    /// The process had ended before it got anything of the item.
    NotBegun,
}

/// Why a process broke.
enum Fault {
    /// It ended, or closed its standard output.
    Died,
    /// It ended before the first byte of the item was written.
    NotBegun,
    /// It wrote a line that is not of the protocol.
    Line(String),
    /// It did not end the item in time.
    Hung(EndReason),
    /// The call was dropped.
    Abandoned,
}

pub(super) struct Process {
    program: String,
    queue: Arc<str>,
    settings: Arc<ExecSettings>,
    meters: Arc<QueueMeters>,
    child: Child,
    input: ChildStdin,
    output: Lines<ChildStdout>,
    errors: Errors,
    // Dropped in this order: the group is killed, then the reaper forgets it.
    group: Group,
    reaped: Option<Reaped>,
}

impl Process {
    /// Starts the program.
    pub(super) fn start(
        settings: &Arc<ExecSettings>,
        queue: &Arc<str>,
        meters: Arc<QueueMeters>,
    ) -> Result<Self, Outcome> {
        let program = settings.command[0].clone();
        let reaped = reaped();
        let mut command = command(settings, reaped.as_ref());
        variables::set_queue(&mut command, queue);
        let spawned = command.stdout(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|error| not_started(&program, &error))?;
        let group = Group::of(&child, reaped.as_ref().map(|(_, name)| name.as_str()));
        let input = child.stdin.take().expect("stdin was asked for");
        let output = Lines::new(child.stdout.take().expect("stdout was asked for"), MAX_LINE);
        let errors = child.stderr.take().expect("stderr was asked for");
        let errors = Errors::new(errors, queue.clone(), child.id(), settings.stderr_limit);
        let (queue, settings) = (queue.clone(), settings.clone());
        Ok(Self { program, queue, settings, meters, child, input, output, errors, group, reaped })
    }

    /// Owns the process until it has ended. `ready` gets the result of the start.
    pub(super) async fn run(
        mut self,
        mut ready: oneshot::Sender<Result<(), String>>,
        mut requests: mpsc::Receiver<ItemRequest>,
        end: CancellationToken,
    ) {
        let meters = self.meters.clone();
        let _running = meters.processes.running.hold(1);
        let started = tokio::select! {
            started = self.is_ready() => started,
            () = end.cancelled() => return self.end().await,
            // The call was cancelled, and no other call knows of this process.
            () = ready.closed() => return self.end().await,
        };
        if let Err(reason) = started {
            // Killed before the next one starts.
            drop(self);
            // A call that has gone does not need to know.
            let _ = ready.send(Err(reason));
            return;
        }
        let _ = ready.send(Ok(()));
        tracing::debug!(event = "worker_ready", queue = %self.queue, pid = self.child.id(), "a worker process is ready");
        let (idle_timeout, mut items) = (self.settings.idle_timeout(), 0);
        loop {
            let request = tokio::select! {
                biased;
                fault = self.fault() => return self.broke(fault, None).await,
                () = end.cancelled() => break,
                request = requests.recv() => match request {
                    Some(request) => request,
                    None => break,
                },
                () = sleep(idle_timeout) => break,
            };
            let Some(goes_on) = self.item(request, &mut items).await else { return };
            if !goes_on {
                break;
            }
        }
        // A request that was sent meanwhile is dropped, and goes to another process.
        drop(requests);
        self.end().await;
    }

    /// Sends the first line and waits for the process to be ready. The error is the reason why it
    /// is not.
    async fn is_ready(&mut self) -> Result<(), String> {
        let program = self.program.clone();
        let limit = self.settings.start_timeout();
        let hello = protocol::hello(&self.queue);
        let answered = async {
            // If the write fails, the program has ended; reading its output reports that.
            let _ = self.input.write_all(&hello).await;
            loop {
                tokio::select! {
                    line = self.output.next() => return match line.map(|line| read(&line)) {
                        None => Err(Fault::Died),
                        Some(Ok(WorkerMessage::Ready(VERSION))) => Ok(()),
                        Some(Ok(WorkerMessage::Ready(version))) => Err(Fault::Line(format!(
                            "it speaks version {version} of the protocol, kvqueue speaks version {VERSION}; write {{\"kvqueue\": {VERSION}}}"
                        ))),
                        Some(Ok(_)) => Err(Fault::Line("it has to write {\"kvqueue\": 1} first".to_owned())),
                        Some(Err(problem)) => Err(Fault::Line(not_of_the_protocol(&problem))),
                    },
                    () = self.errors.next() => {}
                    // A process that it left running may hold its output open.
                    () = exited(&mut self.child) => return Err(Fault::Died),
                }
            }
        };
        let fault = match timeout(limit, answered).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(fault)) => fault,
            Err(_) => {
                let limit = limit.as_millis();
                return Err(format!(
                    "{program} was not ready within {limit} ms (start-timeout): with mode = \"worker\" it has to write the line {{\"kvqueue\": 1}}"
                ));
            }
        };
        Err(match fault {
            Fault::Line(problem) => format!("{program} is not a worker: {problem}"),
            _ => {
                let status = self.exit_status().await;
                format!("{program} ended before it was ready: {status}{}", self.errors.logged())
            }
        })
    }

    /// Waits for something that an idle process should not do.
    async fn fault(&mut self) -> Fault {
        loop {
            tokio::select! {
                line = self.output.next() => match line.map(|line| read(&line)) {
                    None => return Fault::Died,
                    // A late heartbeat of the previous item.
                    Some(Ok(WorkerMessage::Heartbeat(_))) => {}
                    Some(Ok(_)) => return Fault::Line("it wrote an outcome, and has no item".to_owned()),
                    Some(Err(problem)) => return Fault::Line(not_of_the_protocol(&problem)),
                },
                () = self.errors.next() => {}
                _ = self.child.wait() => return Fault::Died,
            }
        }
    }

    /// Has an item handled. Returns whether the process goes on; `None` if it broke.
    async fn item(&mut self, mut request: ItemRequest, items: &mut u64) -> Option<bool> {
        self.errors.begin(request.span.clone());
        let (outcome, fault) = match self.attempt(&mut request).await {
            Ok(outcome) => (Some(outcome), None),
            Err(fault) => (None, Some(fault)),
        };
        // Log the error lines that have arrived, while they still belong to the item.
        for _ in 0..AT_ONCE {
            if !self.errors.is_open() || self.errors.next().now_or_never().is_none() {
                break;
            }
        }
        if let Some(fault) = fault {
            self.broke(fault, Some((request, *items == 0))).await;
            return None;
        }
        self.errors.begin(Span::none());
        *items += 1;
        let goes_on = !self.needs_replacement(*items);
        let ended = Ended::Outcome { outcome: outcome?, goes_on };
        // If the call was dropped, its sender was dropped with it, and this task ends.
        let _ = request.ended.send(ended);
        Some(goes_on)
    }

    /// Hands the item over and waits for its outcome.
    async fn attempt(&mut self, request: &mut ItemRequest) -> Result<Outcome, Fault> {
        let now = Instant::now();
        let mut limits = Limits::new(request.limit, self.settings.heartbeat_timeout, now);
        let mut to_write = request.line.clone();
        let (mut is_cancel_sent, mut exited) = (false, None);
        loop {
            // A process that has not read its item does not read this either.
            if limits.why().is_some() && !is_cancel_sent && !to_write.has_remaining() {
                to_write = protocol::cancel(&request.id);
                is_cancel_sent = true;
            }
            tokio::select! {
                written = self.input.write_buf(&mut to_write), if to_write.has_remaining() => {
                    if written.is_err() {
                        if is_cancel_sent {
                            // It does not read any more. TERM and KILL reach it all the same.
                            to_write.clear();
                            continue;
                        }
                        let is_begun = to_write.len() < request.line.len();
                        return Err(if is_begun { ended(&limits, Fault::Died) } else { Fault::NotBegun });
                    }
                }
                line = self.output.next() => {
                    let Some(line) = line else { return Err(ended(&limits, Fault::Died)) };
                    match read(&line).map_err(|problem| Fault::Line(not_of_the_protocol(&problem)))? {
                        WorkerMessage::Heartbeat(Heartbeat { id, percent, message }) if id == request.id => {
                            limits.heartbeat(Instant::now());
                            if percent.is_some() || message.is_some() {
                                request.progress.report(percent, &message.unwrap_or_default());
                            }
                        }
                        WorkerMessage::Heartbeat(_) => {}
                        WorkerMessage::Outcome(line) if line.id == request.id => {
                            if to_write.has_remaining() && !is_cancel_sent {
                                return Err(Fault::Line("it wrote an outcome before it had read the item".to_owned()));
                            }
                            let outcome = line.outcome().map_err(|problem| Fault::Line(not_of_the_protocol(&problem)))?;
                            return Ok(counted(outcome, limits.why()));
                        }
                        WorkerMessage::Outcome(_) => return Err(Fault::Line("it wrote the outcome of an item that it does not have".to_owned())),
                        WorkerMessage::Ready(_) => return Err(Fault::Line("it wrote the first line again".to_owned())),
                    }
                }
                () = self.errors.next() => {}
                _ = self.child.wait(), if exited.is_none() => exited = Some(Instant::now() + EXIT_TIMEOUT),
                // Its outcome may be on the way, unless a process that it left running has the
                // pipe.
                () = until(exited) => return Err(ended(&limits, Fault::Died)),
                () = request.cancelled.cancelled(), if limits.why().is_none() => {
                    limits.cancel(Instant::now());
                }
                () = until(limits.next()) => match limits.due(Instant::now()) {
                    Some(Step::Terminate) => self.group.signal(Signal::TERM).await,
                    Some(Step::Kill) => return Err(ended(&limits, Fault::Abandoned)),
                    None => {}
                },
                () = request.ended.closed() => return Err(Fault::Abandoned),
            }
        }
    }

    /// Whether the process is to be replaced after this many items.
    fn needs_replacement(&self, items: u64) -> bool {
        let processes = &self.meters.processes;
        if self.settings.max_items.is_some_and(|most| items >= most.get()) {
            processes.max_items.inc();
            return true;
        }
        let Some(most) = self.settings.max_memory else { return false };
        let memory = self.memory().unwrap_or(0);
        if memory > most {
            processes.max_memory.inc();
            tracing::info!(
                event = "worker_too_large",
                queue = %self.queue,
                pid = self.child.id(),
                memory,
                "a worker process has more memory than max-memory; it is replaced"
            );
        }
        memory > most
    }

    /// Its resident memory in bytes.
    fn memory(&self) -> Option<u64> {
        let pid = i32::try_from(self.child.id()?).ok()?;
        let pages = procfs::process::Process::new(pid).ok()?.statm().ok()?.resident;
        Some(pages.saturating_mul(procfs::page_size()))
    }

    /// The process broke: kills what is left of it, and then reports that to the item that it had.
    async fn broke(&mut self, fault: Fault, item: Option<(ItemRequest, bool)>) {
        let meters = self.meters.clone();
        let processes = &meters.processes;
        let (counter, reason) = match &fault {
            Fault::Died | Fault::NotBegun => {
                let while_it = if item.is_some() { " while it had the item" } else { "" };
                let status = self.exit_status().await;
                (
                    &processes.died,
                    format!("{} ended{while_it}: {status}{}", self.program, self.errors.logged()),
                )
            }
            Fault::Line(problem) => (&processes.protocol, format!("{}: {problem}", self.program)),
            Fault::Hung(_) => (&processes.hung, format!("{} did not end its item", self.program)),
            Fault::Abandoned => (&processes.hung, format!("{} was dropped by its call", self.program)),
        };
        counter.inc();
        let pid = self.child.id();
        self.group.kill().await;
        // Another process gets the item only when this one is gone.
        let _ = timeout(EXIT_TIMEOUT, self.child.wait()).await;
        tracing::warn!(
            event = "worker_broke",
            queue = %self.queue,
            pid,
            reason,
            "a worker process broke; it is replaced"
        );
        let Some((request, is_first)) = item else { return };
        let ended = match fault {
            Fault::NotBegun => Ended::NotBegun,
            Fault::Hung(why) => {
                Ended::Broken { outcome: why.outcome(), is_first: is_first && why != EndReason::Cancelled }
            }
            _ => Ended::Broken { outcome: Outcome::Retry(reason), is_first },
        };
        // Fails if the call was dropped.
        let _ = request.ended.send(ended);
    }

    /// Waits a moment for the status of a process that seems to have ended, and logs the rest of
    /// its error output.
    async fn exit_status(&mut self) -> String {
        let Self { child, errors, .. } = self;
        let _ = timeout(EXIT_TIMEOUT, async { tokio::join!(errors.drain(), child.wait()) }).await;
        match child.try_wait() {
            Ok(Some(status)) => status.to_string(),
            _ => "it closed its standard output".to_owned(),
        }
    }

    /// Ends a process that has no item: closes its input, and waits until it has ended.
    async fn end(self) {
        let Self { input, mut output, mut errors, mut child, mut group, queue, reaped, .. } = self;
        drop(input);
        let rest = async {
            let output = async { while output.next().await.is_some() {} };
            tokio::join!(output, errors.drain());
            std::future::pending::<()>().await;
        };
        let pid = child.id();
        let ended = async {
            if timeout(EXIT_DELAY, child.wait()).await.is_err() {
                group.signal(Signal::TERM).await;
                if timeout(EXIT_TERM_DELAY, child.wait()).await.is_err() {
                    tracing::warn!(
                        event = "worker_killed",
                        %queue,
                        pid,
                        "a worker process did not end at the end of its input, nor at TERM; it is killed"
                    );
                }
            }
        };
        tokio::select! {
            () = ended => {}
            () = rest => {}
        }
        group.kill().await;
        // Only now: the reaper would not know of the run any more.
        drop(reaped);
    }
}

/// The fault of a process that is gone: it may have been asked to end its item before.
fn ended(limits: &Limits, otherwise: Fault) -> Fault {
    limits.why().map_or(otherwise, Fault::Hung)
}

/// The outcome that counts: of an item that had to end, only the outcomes that cannot be a
/// consequence of that.
fn counted(outcome: Outcome, why: Option<EndReason>) -> Outcome {
    match (why, outcome) {
        (Some(why), outcome) if !outcome.is_done() && !matches!(outcome, Outcome::Dead(_)) => why.outcome(),
        (_, outcome) => outcome,
    }
}

/// Waits for a time, if there is one.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

/// Reads a line. The error is a lower-case fragment for a log or a reason.
fn read(Line { bytes, is_cut }: &Line) -> Result<WorkerMessage, String> {
    if *is_cut { protocol::parse_cut(bytes) } else { protocol::parse(bytes) }
}

/// Waits until the process has ended, and a while for the rest of its output.
async fn exited(child: &mut Child) {
    let _ = child.wait().await;
    sleep(EXIT_TIMEOUT).await;
}

fn not_of_the_protocol(problem: &str) -> String {
    format!("it wrote a line that is not of the protocol: {problem}")
}
