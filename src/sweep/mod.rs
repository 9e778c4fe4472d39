//! Sweeping: items whose time has come are made ready, those of daemons that died are
//! given back, and what nobody needs any more is cleared.
//!
//! Every daemon sweeps its queues. They do not fight: [`Sweeper`] sees to that, and each waits a moment at random before it acts.
//!
//! | file | |
//! |---|---|
//! | `queue` | the sweeps of one queue |
//! | `pause` | when to look again |
//! | `tokens` | clearing what dead sessions left |

mod pause;
mod queue;
mod tokens;

use std::{sync::Arc, time::Duration};

use foundationdb::Database;
use futures::future::join;
use kvqueue_queue::{Queue, RetryPolicy, SweepRules, VersionHistory};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    config::QueueConfig,
    consumer::{pause_state::PauseState, shutdown::ShutdownTokens},
    daemon::aside,
    metrics::QueueMeters,
};

/// A transaction that takes longer is given up, and tried again later.
const POLICY: RetryPolicy = RetryPolicy { max_attempts: None, timeout: Some(Duration::from_secs(60)) };

/// A queue that is swept. Dropped, it is swept no more; a sweep that is under way is seen through.
#[derive(Debug)]
pub(crate) struct Sweeping {
    rules: watch::Sender<SweepRules>,
    _stop: DropGuard,
}

/// What is swept, and on whose behalf.
pub(crate) struct Swept {
    pub(crate) db: Arc<Database>,
    pub(crate) queue: Queue,
    /// The same for all queues of the database.
    pub(crate) history: VersionHistory,
    /// Who freezes the queue holds its sweeps back, too.
    pub(crate) pause: PauseState,
    pub(crate) shutdown: Arc<ShutdownTokens>,
    pub(crate) meters: Arc<QueueMeters>,
}

impl Sweeping {
    /// Begins, in tasks on the runtime it is called on.
    pub(crate) fn start(swept: Swept, rules: SweepRules) -> Self {
        let (rules, follow) = watch::channel(rules);
        let stop = CancellationToken::new();
        let told = stop.clone();
        let swept = Arc::new(swept);
        tokio::spawn(aside::restarted("sweeper", move || {
            let (swept, follow, told) = (swept.clone(), follow.clone(), told.clone());
            tokio::spawn(async move {
                join(queue::sweep(&swept, follow, &told), tokens::sweep(&swept, &told)).await;
            })
        }));
        Self { rules, _stop: stop.drop_guard() }
    }

    /// Other rules from the next sweep on, which is now.
    pub(crate) fn follow(&self, rules: SweepRules) {
        self.rules.send_if_modified(|old| std::mem::replace(old, rules) != rules);
    }
}

/// By what rules a queue is swept.
pub(crate) fn rules(config: &QueueConfig) -> SweepRules {
    SweepRules::default()
        .with_retry(config.retry.rules())
        .with_lease(config.lease)
        .with_idempotency_window(config.idempotency_window)
        .with_policy(POLICY)
}
