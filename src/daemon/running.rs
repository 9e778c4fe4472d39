//! The queues that the daemon works on, and how another configuration takes effect.
//!
//! Items end under the settings under which they were fetched. A queue whose settings change gets a new `QueueRuntime`
//! and new consumers, which start as the old ones leave. Its `NamedQueue` (pause state, breaker, metrics) stays. A
//! reload first does everything that can fail or wait, and only then changes anything.

use std::{collections::BTreeMap, sync::Arc};

use foundationdb::{Database, FdbError};
use futures::{StreamExt, future::join_all, stream};
use kvqueue_queue::{Counts, Queue, QueueError, Recording};
use tokio::time::timeout;

use super::{
    active_config::ActiveConfig,
    configured::{Configured, ConfiguredQueue},
    reload::{Plan, Prepared},
};
use crate::{
    actors::{ConsumerContext, ConsumerSpec, DesiredConsumers, SupervisorExit, SupervisorHandle},
    base::deadlines::LEFT,
    config::Config,
    consumer::runtime::{NamedQueue, QueueRuntime},
    control::{CommandError, Left},
    daemon::{cancellation_follower::CancellationFollower, pause_follower::PauseFollower},
    database::QUEUES_AT_A_TIME,
    handlers::AnyHandler,
    sweep::Sweeping,
    telemetry,
};

/// The queues that the daemon works on. They belong to the actors' thread.
pub(super) struct RunningQueues {
    db: Arc<Database>,
    pub(super) shared: Arc<ConsumerContext>,
    supervisor: SupervisorHandle,
    until_empty: bool,
    active: ActiveConfig,
    queues: BTreeMap<Arc<str>, RunningQueue>,
}

/// Queues that are about to start, by name. Their pauses are known and followed.
pub(super) type NewQueues = BTreeMap<Arc<str>, (Arc<NamedQueue>, Followers)>;

/// What follows the database for a queue. Dropped, both stop.
pub(super) struct Followers {
    _pause: PauseFollower,
    _cancellations: CancellationFollower,
}

struct RunningQueue {
    runtime: Arc<QueueRuntime>,
    sweeping: Sweeping,
    _followers: Followers,
}

impl RunningQueues {
    /// No queues yet; `active` already has the first configuration.
    pub(super) fn new(
        db: Arc<Database>,
        shared: Arc<ConsumerContext>,
        supervisor: SupervisorHandle,
        until_empty: bool,
        active: ActiveConfig,
    ) -> Self {
        Self { db, shared, supervisor, until_empty, active, queues: BTreeMap::new() }
    }

    /// The active configuration.
    pub(super) fn config(&self) -> Arc<Config> {
        self.active.config()
    }

    /// The keys that a prepared configuration changes.
    pub(super) fn changes(&self, Prepared { plan, configured, .. }: &Prepared) -> Vec<String> {
        let mut changed = plan.changed();
        changed.extend(self.active.loaded().changes(&configured.files));
        changed
    }

    /// The queues of the configuration before that are removed and have items.
    pub(super) async fn left(&self, before: &Config) -> Vec<Left> {
        left(&self.db, before, &self.config()).await
    }

    /// The handlers in use.
    pub(super) fn handlers(&self) -> BTreeMap<Arc<str>, AnyHandler> {
        self.queues
            .iter()
            .map(|(name, running)| (name.clone(), running.runtime.tried.handling.clone()))
            .collect()
    }

    /// Puts another configuration into effect; `path` is its file, if there is one. Old consumers may still be
    /// finishing their batches when this returns.
    pub(super) async fn reload(
        &mut self,
        Prepared { config, plan, configured: Configured { queues, files } }: Prepared,
        path: Option<String>,
    ) -> Result<(), SupervisorExit> {
        let new = self.prepare(&queues).await;
        let level = &config.log.level;
        if *level != self.config().log.level
            && let Err(error) = telemetry::set_level(level)
        {
            tracing::warn!(event = "log_level_unchanged", %error, "cannot change the log level");
        }
        self.shared.status.configure(path, &config);
        // A drain uses the new shutdown timeout from here on.
        self.active.replace(config, files);
        self.run(&queues, new, Some(&plan)).await
    }

    /// Prepares the queues that do not run yet: asks the database whether they are paused, and follows that.
    pub(super) async fn prepare(&self, queues: &[ConfiguredQueue]) -> NewQueues {
        let new = queues.iter().filter(|queue| !self.queues.contains_key(&queue.name));
        let prepared = new.map(async |queue| {
            let named = queue.named(&self.db, &self.shared);
            let follower =
                PauseFollower::start(named.clone(), self.shared.status.clone(), self.until_empty).await;
            let cancellations = CancellationFollower::start(named.clone());
            (queue.name.clone(), (named, Followers { _pause: follower, _cancellations: cancellations }))
        });
        join_all(prepared).await.into_iter().collect()
    }

    /// Runs these queues and no others. `new` has the queues that do not run yet. Without a plan, every queue gets new
    /// consumers.
    pub(super) async fn run(
        &mut self,
        configured: &[ConfiguredQueue],
        mut new: NewQueues,
        plan: Option<&Plan>,
    ) -> Result<(), SupervisorExit> {
        let mut queues = BTreeMap::new();
        let mut desired = DesiredConsumers::new();
        for queue in configured {
            let name = &queue.name;
            let runtime = |named| queue.runtime(named, &self.shared, self.until_empty);
            queue.set_recording(&self.shared);
            let running = match (self.queues.remove(name), new.remove(name)) {
                (Some(mut running), _) => {
                    if plan.is_none_or(|plan| !plan.keeps_runtime(name)) {
                        running.runtime = runtime(running.runtime.named.clone());
                    }
                    running.sweeping.set(queue.sweep_settings());
                    running
                }
                (None, Some((named, followers))) => RunningQueue {
                    runtime: runtime(named.clone()),
                    sweeping: self.shared.sweepers.start(named, &self.shared.status, queue.sweep_settings()),
                    _followers: followers,
                },
                (None, None) => continue,
            };
            let spec = |k| ConsumerSpec { runtime: running.runtime.clone(), k };
            desired.insert(name.clone(), queue.batch_sizes().map(spec).collect());
            queues.insert(name.clone(), running);
        }
        // What ends of removed queues from now on is recorded as other daemons have set it.
        self.queues.keys().for_each(|name| self.shared.status.recorder(name).set(Recording::AsStored));
        // Their sweepers and pause followers stop here.
        self.queues = queues;
        self.supervisor.reconcile(desired).await
    }

    /// Pauses or resumes a queue in this daemon alone.
    pub(super) fn pause_locally(&self, queue: &str, paused: bool) -> Result<(), CommandError> {
        let Some(running) = self.queues.get(queue) else {
            let names: Vec<_> = self.queues.keys().collect();
            let text = format!("this daemon has no queue {queue:?}; it has {}", telemetry::listed(&names));
            return Err(CommandError(text));
        };
        if running.runtime.pause.pause_locally(paused) {
            if paused {
                tracing::info!(event = "queue_paused_locally", queue, "queue paused in this daemon");
            } else {
                tracing::info!(event = "queue_resumed_locally", queue, "queue resumed in this daemon");
            }
            self.shared.status.touch();
        }
        Ok(())
    }
}

/// The removed queues that have items. A queue is left out if the database does not answer in time.
async fn left(db: &Database, old: &Config, new: &Config) -> Vec<Left> {
    let removed = old.queues.iter().filter(|(name, _)| !new.queues.contains_key(*name));
    let counted = removed.map(async |(name, settings)| {
        let queue = Queue::of_kind(old.prefix.as_bytes(), name.as_bytes(), settings.layout()).ok()?;
        let Counts { ready, waiting, .. } = counts(db, &queue).await.ok()?;
        let items = u64::try_from(ready.max(0).saturating_add(waiting.max(0))).ok()?;
        (items > 0).then(|| Left { queue: name.clone(), items })
    });
    let mut found = Vec::new();
    let mut counted =
        stream::iter(counted).buffered(QUEUES_AT_A_TIME).filter_map(std::future::ready).boxed_local();
    let all = async {
        while let Some(left) = counted.next().await {
            found.push(left);
        }
    };
    // The counts so far are reported.
    let _ = timeout(LEFT, all).await;
    drop(counted);
    found
}

async fn counts(db: &Database, queue: &Queue) -> Result<Counts, QueueError> {
    let tr = db.create_trx().map_err(|error| FdbError::from_code(error.code()))?;
    queue.counts(&tr).await
}
