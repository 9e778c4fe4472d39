//! Orders and signals while the daemon runs: one after the other, but that a configuration whose consumers take their time holds nothing
//! up.

use std::{collections::BTreeSet, convert::Infallible, future::pending, sync::Arc};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout, timeout_at},
};

use super::{loader::Loader, report::report, running::RunningQueues};
use crate::{
    control::{Given, Left, Order, Refused, Reloaded, Reply},
    deadlines::{FINISHED, PREPARED, TURN},
    handlers::Registry,
    lifecycle::Told,
    status::{DaemonStatus, Phase},
    telemetry,
};

/// Sees to orders.
pub(super) struct Attendant {
    queues: RunningQueues,
    loader: Option<Loader>,
    registry: Arc<Registry>,
    /// A configuration that is in force; consumers may still be finishing under the one before.
    taken_up: Option<TakenUp>,
}

struct TakenUp {
    reply: Reply<Result<Reloaded, Refused>>,
    changed: Vec<String>,
    left: Vec<Left>,
    finishing: watch::Receiver<BTreeSet<String>>,
    until: Instant,
}

impl Attendant {
    pub(super) fn new(queues: RunningQueues, loader: Option<Loader>, registry: Registry) -> Self {
        Self { queues, loader, registry: Arc::new(registry), taken_up: None }
    }

    /// Runs until the daemon drains. Later commands fail with "stopping".
    pub(super) async fn attend(mut self, mut orders: mpsc::Receiver<Given>, mut told: Told) -> Infallible {
        let shutdown = self.queues.shared.shutdown.clone();
        shutdown.draining.run_until_cancelled(self.carry_out(&mut orders, &mut told)).await;
        drop(orders);
        self.taken_up = None;
        // Sweepers and pause followers go on meanwhile.
        pending().await
    }

    async fn carry_out(&mut self, orders: &mut mpsc::Receiver<Given>, told: &mut Told) -> Infallible {
        loop {
            let order = tokio::select! {
                Some(Given { order, at }) = orders.recv() => {
                    if at.elapsed() > TURN {
                        order.refuse("the daemon was busy with other orders; nothing has changed, try again");
                        continue;
                    }
                    order
                }
                order = told.next() => order,
                () = converged(self.taken_up.as_mut()) => {
                    self.close();
                    continue;
                }
            };
            match order {
                Order::Reload(reply) => self.reload(reply).await,
                Order::PauseHere { queue, paused, reply } => {
                    // The caller may have stopped waiting.
                    let _ = reply.send(self.queues.pause_locally(&queue, paused));
                }
                Order::Report => report(self.status()),
            }
        }
    }

    fn status(&self) -> &DaemonStatus {
        &self.queues.shared.status
    }

    async fn reload(&mut self, reply: Reply<Result<Reloaded, Refused>>) {
        // The sender of the previous command need not wait for this one.
        self.close();
        self.status().phase(Phase::Reloading);
        match self.take_up().await {
            Ok((changed, left)) => {
                let (keys, listed) = (changed.len(), telemetry::listed(&changed));
                tracing::info!(
                    event = "configuration_reloaded",
                    changed = listed,
                    keys,
                    "configuration reloaded"
                );
                if !left.is_empty() {
                    let told: Vec<_> = left.iter().map(|it| format!("{} ({})", it.queue, it.items)).collect();
                    tracing::warn!(
                        event = "removed_queues_not_empty",
                        queues = telemetry::listed(&told),
                        "these removed queues still have items; this daemon no longer processes them"
                    );
                }
                let finishing = self.queues.shared.still_finishing();
                let until = Instant::now() + FINISHED;
                self.taken_up = Some(TakenUp { reply, changed, left, finishing, until });
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

    /// Loads and checks, and has it take effect. Returns the keys that changed, and the removed queues that have items.
    async fn take_up(&mut self) -> Result<(Vec<String>, Vec<Left>), Refused> {
        let loader = self.loader.clone().ok_or_else(no_loader)?;
        let (config, handlers, registry) =
            (self.queues.config(), self.queues.handlers(), self.registry.clone());
        let (path, old) = (loader.path(), config.clone());
        let prepared = move || loader.prepare(&config, &registry, handlers);
        // Not on a thread that its end would wait for: what is read may be anything.
        let prepared = timeout(PREPARED, self.queues.shared.pool.spawn_blocking(prepared)).await;
        let refused = |why: &str| Refused(why.to_owned());
        let prepared =
            prepared.map_err(|_| refused("reading it, and making its handlers, takes too long"))?;
        let prepared =
            prepared.map_err(|_| refused("a handler panics when it is made; the log says how"))??;
        let changed = self.queues.changes(&prepared);
        self.queues.reload(prepared, path).await.map_err(|_| refused("the supervisor died"))?;
        self.status().metrics.reloads_applied.inc();
        Ok((changed, self.queues.left(&old).await))
    }

    /// Says what has come of the last configuration that was taken up.
    fn close(&mut self) {
        let Some(TakenUp { reply, changed, left, finishing, .. }) = self.taken_up.take() else { return };
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
async fn converged(taken_up: Option<&mut TakenUp>) {
    let Some(TakenUp { finishing, until, .. }) = taken_up else { return pending().await };
    // In any case the rest is counted again.
    let _ = timeout_at(*until, finishing.wait_for(BTreeSet::is_empty)).await;
}

fn no_loader() -> Refused {
    Refused("this daemon was not started from a file, so there is nothing to reload".to_owned())
}

#[cfg(test)]
mod tests;
