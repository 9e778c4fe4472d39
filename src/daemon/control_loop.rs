//! The control loop: carries out commands from HTTP and signals, one after the other. While consumers finish under an earlier configuration,
//! it goes on with the next command.

use std::{collections::BTreeSet, convert::Infallible, future::pending, sync::Arc};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout, timeout_at},
};

use super::{reload::Loader, report::report, running::RunningQueues};
use crate::{
    base::deadlines::{FINISHED, PREPARED, TURN},
    control::{Command, CommandError, Left, QueuedCommand, Reloaded, Reply},
    handlers::Registry,
    lifecycle::SignalCommands,
    status::{DaemonStatus, Phase},
    telemetry,
};

/// Carries out commands.
pub(super) struct ControlLoop {
    queues: RunningQueues,
    loader: Option<Loader>,
    registry: Arc<Registry>,
    /// The last reload, until its result is sent.
    pending: Option<PendingReload>,
}

/// A reload that has taken effect. Consumers may still be finishing under the earlier configuration.
struct PendingReload {
    reply: Reply<Result<Reloaded, CommandError>>,
    changed: Vec<String>,
    left: Vec<Left>,
    finishing: watch::Receiver<BTreeSet<String>>,
    until: Instant,
}

impl ControlLoop {
    pub(super) fn new(queues: RunningQueues, loader: Option<Loader>, registry: Registry) -> Self {
        Self { queues, loader, registry: Arc::new(registry), pending: None }
    }

    /// Runs until the daemon drains. Later commands fail with "stopping".
    pub(super) async fn run(
        mut self,
        mut commands: mpsc::Receiver<QueuedCommand>,
        mut signals: SignalCommands,
    ) -> Infallible {
        let shutdown = self.queues.shared.shutdown.clone();
        shutdown.draining.run_until_cancelled(self.carry_out(&mut commands, &mut signals)).await;
        drop(commands);
        self.pending = None;
        // Sweepers and pause followers go on until the drain ends.
        pending().await
    }

    async fn carry_out(
        &mut self,
        commands: &mut mpsc::Receiver<QueuedCommand>,
        signals: &mut SignalCommands,
    ) -> Infallible {
        loop {
            let order = tokio::select! {
                Some(QueuedCommand { command, at }) = commands.recv() => {
                    if at.elapsed() > TURN {
                        command.refuse("the daemon was busy with other commands; nothing has changed, try again");
                        continue;
                    }
                    command
                }
                command = signals.next() => command,
                () = converged(self.pending.as_mut()) => {
                    self.finish_reload();
                    continue;
                }
            };
            match order {
                Command::Reload(reply) => self.reload(reply).await,
                Command::PauseLocally { queue, paused, reply } => {
                    // The caller may have stopped waiting.
                    let _ = reply.send(self.queues.pause_locally(&queue, paused));
                }
                Command::Report => report(self.status()),
            }
        }
    }

    fn status(&self) -> &DaemonStatus {
        &self.queues.shared.status
    }

    async fn reload(&mut self, reply: Reply<Result<Reloaded, CommandError>>) {
        // The sender of the previous command need not wait for this one.
        self.finish_reload();
        self.status().phase(Phase::Reloading);
        match self.load().await {
            Ok((changed, left)) => {
                let (keys, listed) = (changed.len(), telemetry::listed(&changed));
                tracing::info!(
                    event = "configuration_reloaded",
                    changed = listed,
                    keys,
                    "configuration reloaded"
                );
                if !left.is_empty() {
                    let listed: Vec<_> =
                        left.iter().map(|it| format!("{} ({})", it.queue, it.items)).collect();
                    tracing::warn!(
                        event = "removed_queues_not_empty",
                        queues = telemetry::listed(&listed),
                        "these removed queues still have items; this daemon no longer processes them"
                    );
                }
                let finishing = self.queues.shared.still_finishing();
                let until = Instant::now() + FINISHED;
                self.pending = Some(PendingReload { reply, changed, left, finishing, until });
            }
            Err(refused) => {
                self.status().refused(refused.0.clone());
                self.status().phase(Phase::Ready);
                tracing::warn!(
                    event = "configuration_refused",
                    reason = refused.0,
                    "configuration refused; nothing has changed"
                );
                let _ = reply.send(Err(refused));
            }
        }
    }

    /// Loads and checks the configuration, and lets it take effect. Returns the keys that changed, and the removed queues that have items.
    async fn load(&mut self) -> Result<(Vec<String>, Vec<Left>), CommandError> {
        let loader = self.loader.clone().ok_or_else(no_loader)?;
        let (config, handlers, registry) =
            (self.queues.config(), self.queues.handlers(), self.registry.clone());
        let (path, old) = (loader.path(), config.clone());
        let prepared = move || loader.prepare(&config, &registry, handlers);
        // Not on a thread that the daemon's end would wait for: a file may be a pipe that never ends.
        let prepared = timeout(PREPARED, self.queues.shared.pool.spawn_blocking(prepared)).await;
        let refused = |why: &str| CommandError(why.to_owned());
        let prepared =
            prepared.map_err(|_| refused("reading it, and making its handlers, takes too long"))?;
        let prepared =
            prepared.map_err(|_| refused("a handler panics when it is made; the log says how"))??;
        let changed = self.queues.changes(&prepared);
        self.queues.reload(prepared, path).await.map_err(|_| refused("the supervisor died"))?;
        self.status().metrics.reloads_applied.inc();
        Ok((changed, self.queues.left(&old).await))
    }

    /// Sends the result of the last reload.
    fn finish_reload(&mut self) {
        let Some(PendingReload { reply, changed, left, finishing, .. }) = self.pending.take() else { return };
        let finishing: Vec<_> = finishing.borrow().iter().cloned().collect();
        if !finishing.is_empty() {
            let queues = telemetry::listed(&finishing);
            tracing::info!(
                event = "consumers_finishing",
                queues,
                "consumers of these queues are still finishing batches under earlier settings"
            );
        }
        let _ = reply.send(Ok(Reloaded { changed, finishing, left }));
        self.status().phase(Phase::Ready);
    }
}

/// Waits until exactly the wanted consumers run, up to a limit.
async fn converged(pending_reload: Option<&mut PendingReload>) {
    let Some(PendingReload { finishing, until, .. }) = pending_reload else { return pending().await };
    // The caller counts again in any case.
    let _ = timeout_at(*until, finishing.wait_for(BTreeSet::is_empty)).await;
}

fn no_loader() -> CommandError {
    CommandError("this daemon was not started from a file, so there is nothing to reload".to_owned())
}

#[cfg(test)]
mod tests;
