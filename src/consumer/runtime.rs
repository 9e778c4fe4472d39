//! One configured queue at run time.

use std::{sync::Arc, time::Duration};

use foundationdb::Database;
use kvqueue_queue::{Approach, Queue, RetryRules, VersionHistory};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::{
    breaker::{Breaker, Tried},
    fetch::{LastWords, VersionClock},
    pause_state::PauseState,
    shutdown::ShutdownTokens,
    suspects::Suspects,
};
use crate::{config::Delivery, metrics::QueueMeters, status::Heartbeat};

/// A queue in this process, as its fetcher, consumers, dispatchers and lease keepers share it. A
/// reload that changes settings makes a new one; pause state, breaker and metrics are kept by name.
pub(crate) struct QueueRuntime {
    /// The name as configured.
    pub(crate) name: Arc<str>,
    pub(crate) queue: Queue,
    pub(crate) db: Arc<Database>,
    pub(crate) tried: Tried,
    /// The handler's name.
    pub(crate) handler: Arc<str>,
    pub(crate) delivery: Delivery,
    /// The length of a lease.
    pub(crate) lease: Duration,
    pub(crate) retry: RetryRules,
    /// The limit of one call of the handler.
    pub(crate) timeout: Option<Duration>,
    /// With `--until-empty`: consumers stop when the queue has no items, and log what they wait for.
    pub(crate) until_empty: Option<LastWords>,
    /// The strategy of the first fetch.
    pub(crate) approach: Approach,
    /// How often an idle fetcher looks without a wake-up.
    pub(crate) poll_interval: Duration,
    /// Wakes the fetcher for another reason than a push.
    pub(crate) look_again: Notify,
    /// Beats when a fetch ends.
    pub(crate) fetches: Heartbeat,
    /// The time that belongs to a version of the database.
    pub(crate) clock: Arc<VersionClock>,
    pub(crate) meters: Arc<QueueMeters>,
    pub(crate) pause: PauseState,
    /// Stops fetches while the handler cannot work.
    pub(crate) breaker: Arc<Breaker>,
    pub(crate) suspects: Arc<Suspects>,
    /// Maps versions to this process's clock, by which leases are measured.
    pub(crate) history: VersionHistory,
    pub(crate) shutdown: Arc<ShutdownTokens>,
    /// Dispatchers and lease keepers. They go on when their consumer panics.
    pub(crate) work: TaskTracker,
}

impl std::fmt::Debug for QueueRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueRuntime").field("name", &self.name).finish_non_exhaustive()
    }
}
