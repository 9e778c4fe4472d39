//! `mode = "worker"`: processes that stay, and take one item after the other.
//!
//! A call takes an idle process, or starts one if there is none. So there are as many processes as
//! consumers have items at the same time. Each process has a task that owns it ([`process`]); the
//! sender of its requests is what a call holds while it uses the process.

mod errors;
mod limits;
mod lines;
mod process;
mod protocol;
#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use kvqueue_queue::Item;
use tokio::{
    sync::{mpsc, oneshot},
    time::sleep_until,
};
use tracing::Span;

use self::process::{Ended, ItemRequest, Process};
use super::settings::ExecSettings;
use crate::{
    base::backoff,
    handlers::{Context, Outcome},
};

/// The processes of one queue.
#[derive(Debug)]
pub(super) struct Pool {
    settings: Arc<ExecSettings>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Processes without an item; the last one was used last. A process ends when its sender is
    /// dropped.
    idle: Vec<mpsc::Sender<ItemRequest>>,
    /// How many processes in a row have broken at their first item.
    broken: u32,
    /// The time before which no process is started.
    pause: Option<Instant>,
}

impl Pool {
    pub(super) fn new(settings: Arc<ExecSettings>) -> Self {
        Self { settings, state: Mutex::default() }
    }

    /// Has an item handled by one of the processes.
    pub(super) async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        let (line, id) = (protocol::item(item, context), item.id.to_string());
        loop {
            let (process, is_new) = match self.idle() {
                Some(process) => (process, false),
                None => match self.start(context).await {
                    Ok(process) => (process, true),
                    Err(outcome) => return outcome,
                },
            };
            let (ended, end) = oneshot::channel();
            let request = ItemRequest {
                line: line.clone(),
                id: id.clone(),
                limit: context.limit,
                cancelled: context.cancelled.clone(),
                span: Span::current(),
                progress: context.reporter(item),
                ended,
            };
            // A task that has ended drops its requests.
            let ended = match process.try_send(request) {
                Ok(()) => end.await.unwrap_or(Ended::NotBegun),
                Err(_) => Ended::NotBegun,
            };
            match ended {
                Ended::Outcome { outcome, goes_on } => {
                    self.give_back(goes_on.then_some(process));
                    return outcome;
                }
                Ended::Broken { outcome, is_first } => {
                    if is_first {
                        self.record_failure();
                    }
                    return outcome;
                }
                Ended::NotBegun if is_new => {
                    let program = &self.settings.command[0];
                    return Outcome::unavailable(format_args!(
                        "{program} ended after it was ready and before it read an item"
                    ));
                }
                // It died while it was idle; the item goes to another one.
                Ended::NotBegun => {}
            }
        }
    }

    /// The idle process that was used last.
    fn idle(&self) -> Option<mpsc::Sender<ItemRequest>> {
        let mut state = self.lock();
        state.idle.retain(|process| !process.is_closed());
        state.idle.pop()
    }

    /// A process has ended an item, and may go on.
    fn give_back(&self, process: Option<mpsc::Sender<ItemRequest>>) {
        let mut state = self.lock();
        state.broken = 0;
        state.pause = None;
        state.idle.extend(process);
    }

    /// A process broke at its first item, which may be the program's fault. So the next ones start
    /// after a pause that grows.
    fn record_failure(&self) {
        let mut state = self.lock();
        state.broken = state.broken.saturating_add(1);
        state.pause = Some(Instant::now() + backoff::pause(state.broken));
    }

    /// Starts a process and waits until it is ready.
    async fn start(&self, context: &Context) -> Result<mpsc::Sender<ItemRequest>, Outcome> {
        let pause = self.lock().pause;
        let started = async {
            if let Some(pause) = pause {
                sleep_until(pause.into()).await;
            }
            let runtime = context.runtime.as_deref();
            let meters = runtime.map(|runtime| runtime.meters().clone()).unwrap_or_default();
            let processes = runtime.map(|runtime| runtime.processes().clone()).unwrap_or_default();
            let process = Process::start(&self.settings, &context.queue, meters)?;
            let (sender, requests) = mpsc::channel(1);
            let (ready, is_ready) = oneshot::channel();
            processes.tasks.spawn(process.run(ready, requests, processes.end.clone()));
            match is_ready.await {
                Ok(Ok(())) => Ok(sender),
                Ok(Err(reason)) => Err(Outcome::Unavailable(reason)),
                Err(_) => Err(Outcome::unavailable("the daemon ends")),
            }
        };
        let process = tokio::select! {
            started = started => started?,
            () = context.cancelled.cancelled() => return Err(Outcome::Release),
        };
        context.works();
        Ok(process)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the lock")
    }
}
