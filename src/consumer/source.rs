//! A queue as its consumers share it.

use std::{sync::Arc, time::Duration};

use foundationdb::Database;
use kvqueue_queue::{Queue, RetryRules, VersionHistory};
use tokio_util::task::TaskTracker;

use super::{
    breaker::{Breaker, Tried},
    contention::Contention,
    gate::Gate,
    idle::Idle,
    signals::Signals,
    suspects::Suspects,
    take::{LastWords, Taker},
};
use crate::{config::Delivery, metrics::QueueMeters};

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
    pub(crate) taker: Taker,
    pub(crate) contention: Arc<Contention>,
    pub(crate) meters: Arc<QueueMeters>,
    /// Whether takes may begin.
    pub(crate) gate: Gate,
    /// Holds takes back while the handler cannot work.
    pub(crate) breaker: Arc<Breaker>,
    pub(crate) idle: Idle,
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
