//! A queue at run time: what belongs to its name, and what belongs to its settings.

use std::{
    ops::Deref,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use foundationdb::Database;
use kvqueue_queue::{Approach, Item, Queue, RetryRules, VersionHistory};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::{
    breaker::{Breaker, Tried},
    claimed::Batch,
    expiry::Expiry,
    fetch::{VersionClock, WaitLog},
    lease::HeldLeases,
    pause_state::PauseState,
    sharing::Sharing,
    shutdown::ShutdownTokens,
    suspects::Suspects,
};
use crate::{
    config::QueueConfig,
    consumer::heartbeat::Heartbeat,
    handlers::{Processes, QueueOfCall},
    meters::QueueMeters,
};

/// A queue that this daemon works on, by its name: what stays when a reload changes the queue's
/// settings. Its sweeper and its pause follower have this; everything else has a [`QueueRuntime`].
pub(crate) struct NamedQueue {
    /// The name as configured.
    pub(crate) name: Arc<str>,
    pub(crate) queue: Queue,
    pub(crate) db: Arc<Database>,
    pub(crate) meters: Arc<QueueMeters>,
    pub(crate) pause: PauseState,
    /// Stops fetches while the handler cannot work.
    pub(crate) breaker: Arc<Breaker>,
    /// The leases that keepers of this process have.
    pub(crate) held: Arc<HeldLeases>,
    /// Maps versions to this process's clock, by which leases are measured. All queues share it.
    pub(crate) history: VersionHistory,
    /// All queues share them.
    pub(crate) shutdown: Arc<ShutdownTokens>,
}

/// A queue with its settings, as its fetcher, consumers, dispatchers and lease keepers share it. A
/// reload that changes settings makes a new one.
pub(crate) struct QueueRuntime {
    pub(crate) named: Arc<NamedQueue>,
    pub(crate) tried: Tried,
    /// The settings that it was made with. A setting that a reload takes up at once may have another value by now.
    pub(crate) config: QueueConfig,
    pub(crate) retry: RetryRules,
    pub(crate) expiry: Expiry,
    /// With `--until-empty`: consumers stop when the queue has no items, and log what they wait for.
    pub(crate) until_empty: Option<WaitLog>,
    /// The strategy of the first fetch.
    pub(crate) approach: Approach,
    /// How often an idle fetcher looks without a wake-up.
    pub(crate) poll_interval: Duration,
    /// Wakes the fetcher for another reason than a push.
    pub(crate) look_again: Arc<Notify>,
    /// Whether the fetcher has found the queue full, so that lease keepers wake it when items have ended.
    pub(crate) wants_slots: AtomicBool,
    /// What consumers have fetched and not begun.
    pub(crate) sharing: Sharing,
    /// Beats when a fetch ends.
    pub(crate) fetches: Heartbeat,
    /// The time that belongs to a version of the database.
    pub(crate) clock: Arc<VersionClock>,
    pub(crate) suspects: Arc<Suspects>,
    /// Dispatchers and lease keepers. They go on when their consumer panics.
    pub(crate) work: TaskTracker,
}

impl QueueRuntime {
    /// Items that have left the queue.
    pub(crate) fn batch(&self, items: Vec<Item>) -> Batch {
        Batch::new(self.name.clone(), self.meters.clone(), items)
    }
}

/// A runtime is its queue, with settings.
impl Deref for QueueRuntime {
    type Target = NamedQueue;

    fn deref(&self) -> &NamedQueue {
        &self.named
    }
}

impl std::fmt::Debug for QueueRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueRuntime").field("name", &self.name).finish_non_exhaustive()
    }
}

impl QueueOfCall for QueueRuntime {
    fn since(&self, version: u64) -> Option<Duration> {
        self.clock.since(version, Instant::now())
    }

    fn works(&self, consumer: u64) {
        self.breaker.works(consumer);
    }

    fn meters(&self) -> &Arc<QueueMeters> {
        &self.meters
    }

    fn processes(&self) -> &Processes {
        &self.shutdown.processes
    }
}
