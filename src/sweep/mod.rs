//! What the daemon does for its queues beside handling items: items whose time has come are made ready, those of daemons that died are
//! given back, and what nobody needs any more is cleared.
//!
//! Every daemon sweeps its queues. They do not fight: [`Sweeper`] sees to that, and each waits a moment at random before it acts.
//!
//! | file | |
//! |---|---|
//! | `pause` | when to look again |
//! | `tokens` | clearing what dead sessions left |

mod pause;
mod tokens;

use std::{convert::Infallible, sync::Arc, time::Duration};

use foundationdb::Database;
use futures::future::{join, join_all};
use kvqueue_queue::{Queue, RetryError, RetryPolicy, SessionId, SweepRules, Sweeper, Swept};
use tokio::time::sleep;
use uuid::Uuid;

use self::pause::Woken;
use crate::{
    config::QueueConfig,
    consumer::{
        ambient::{now, random},
        signals::Signals,
    },
    database::STORAGE_FAILED,
};

/// A transaction that takes longer is given up, and tried again later.
const POLICY: RetryPolicy = RetryPolicy { max_attempts: None, timeout: Some(Duration::from_secs(60)) };

/// A queue, and the rules it is swept by.
#[derive(Debug)]
pub(crate) struct Sweeping {
    queue: Queue,
    rules: SweepRules,
}

impl Sweeping {
    pub(crate) fn new(queue: Queue, config: &QueueConfig) -> Self {
        let rules = SweepRules {
            max_attempts: config.retry.max_attempts,
            lease: versions(config.lease),
            operations_kept: versions(config.operations_kept),
            policy: POLICY,
        };
        Self { queue, rules }
    }
}

/// Sweeps queues, each by itself.
pub(crate) async fn forever(db: Arc<Database>, signals: &Signals, sweepings: Vec<Sweeping>) -> Infallible {
    let queues = sweepings.iter().map(|sweeping| sweeping.queue.clone()).collect();
    let sweeps = join_all(sweepings.iter().map(|it| sweep(&db, signals, it)));
    let (never, _) = join(tokens::forever(&db, signals, queues), sweeps).await;
    never
}

async fn sweep(db: &Database, signals: &Signals, Sweeping { queue, rules }: &Sweeping) -> Infallible {
    let mut sweeper = Sweeper::new(queue.clone(), SessionId(Uuid::now_v7().into_bytes()));
    let mut failures = 0;
    loop {
        let woken = match sweeper.sweep(db, now(), rules).await {
            Ok(swept) => {
                failures = 0;
                report(signals, queue, &swept);
                wait(swept).await
            }
            Err(error) => {
                failures += 1;
                warn(signals, queue, &error);
                Woken::Failure { failures }
            }
        };
        sleep(pause::pause(woken, random())).await;
    }
}

/// Waits until there may be something to do.
async fn wait(swept: Swept) -> Woken {
    let woken = tokio::select! {
        woken = swept.watch => woken.map_or(Woken::Failure { failures: 1 }, |()| Woken::Item),
        () = sleep(swept.next) => Woken::Time,
    };
    // However soon that was: more of it may fail, and say so again.
    if swept.trouble.is_some() { Woken::Failure { failures: 1 } } else { woken }
}

fn report(signals: &Signals, queue: &Queue, swept: &Swept) {
    let (name, moved) = (queue.name().escape_ascii(), &swept.moved);
    if moved.dead > 0 {
        tracing::warn!(queue = %name, items = moved.dead, "items are dead letters after their last lease ran out");
    }
    if moved.leases > 0 {
        tracing::warn!(queue = %name, leases = moved.leases, items = moved.returned, "leases ran out, items are ready again");
    }
    if moved.orphans > 0 {
        tracing::info!(queue = %name, items = moved.orphans, "cleared what is left of items that another program took");
    }
    if moved.promoted + moved.operations > 0 {
        tracing::debug!(queue = %name, promoted = moved.promoted, operations = moved.operations, "swept");
    }
    if let Some(error) = &swept.trouble {
        warn(signals, queue, error);
    }
}

fn warn(signals: &Signals, queue: &Queue, error: &RetryError) {
    if error.code() == Some(STORAGE_FAILED) {
        signals.storage_failed();
    }
    let (name, error) = (queue.name().escape_ascii(), error as &dyn std::error::Error);
    tracing::warn!(queue = %name, error, "sweep failed, trying again later");
}

/// A time in database versions.
fn versions(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
