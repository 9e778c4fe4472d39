//! A queue as its consumers share it.

use std::{sync::Arc, time::Duration};

use foundationdb::Database;
use kvqueue_queue::{Approach, Queue, RetryRules, VersionHistory};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::{
    breaker::{Breaker, Tried},
    fetch::{Clock, LastWords},
    gate::Gate,
    signals::Signals,
    suspects::Suspects,
};
use crate::{config::Delivery, metrics::QueueMeters, status::Heartbeat};

/// One queue in this process: where its items come from and what is done with them.
pub(crate) struct Source {
    /// The name as configured.
    pub(crate) name: Arc<str>,
    pub(crate) queue: Queue,
    pub(crate) db: Arc<Database>,
    pub(crate) tried: Tried,
    /// The handler's name.
    pub(crate) handler: Arc<str>,
    pub(crate) delivery: Delivery,
    /// How long items stay with a daemon that does not say that it lives.
    pub(crate) lease: Duration,
    pub(crate) retry: RetryRules,
    /// How long a call of the handler may take.
    pub(crate) timeout: Option<Duration>,
    /// Whether consumers stop once there is nothing left to wait for; and what they say while there is.
    pub(crate) until_empty: Option<LastWords>,
    /// Which items its first fetch tries to get.
    pub(crate) approach: Approach,
    /// The poll interval: how long a watch is relied on.
    pub(crate) poll_interval: Duration,
    /// Tells the fetcher that there may be items for another reason than a push.
    pub(crate) look_again: Notify,
    /// Beats when a fetch ends, however it does.
    pub(crate) fetches: Heartbeat,
    /// What time it is at the database.
    pub(crate) clock: Arc<Clock>,
    pub(crate) meters: Arc<QueueMeters>,
    /// Whether takes may begin.
    pub(crate) gate: Gate,
    /// Holds takes back while the handler cannot work.
    pub(crate) breaker: Arc<Breaker>,
    pub(crate) suspects: Arc<Suspects>,
    /// By whose clock its leases are measured.
    pub(crate) history: VersionHistory,
    pub(crate) signals: Arc<Signals>,
    /// Batches that are being handled or settled. They go on when their consumer panics.
    pub(crate) work: TaskTracker,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("name", &self.name).finish_non_exhaustive()
    }
}
