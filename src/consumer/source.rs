//! A queue as its consumers share it.

use std::{sync::Arc, time::Duration};

use foundationdb::Database;
use kvqueue_queue::Queue;
use tokio::sync::Mutex;

use crate::handlers::Handling;

/// One queue in this process: where its items come from and what is done with them.
pub(crate) struct Source {
    /// The name as configured.
    pub(crate) name: Arc<str>,
    pub(crate) queue: Queue,
    pub(crate) db: Arc<Database>,
    pub(crate) handling: Handling,
    /// How long one item may take.
    pub(crate) timeout: Option<Duration>,
    /// How long an idle consumer relies on its watch alone.
    pub(crate) slow_look: Duration,
    /// Held during a take. Consumers of one process would only conflict on the same first items; the lock is fair,
    /// so they take turns.
    pub(crate) turn: Mutex<()>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("name", &self.name).finish_non_exhaustive()
    }
}
