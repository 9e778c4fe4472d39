//! The sweeps of one queue.

use std::time::Duration;
use std::time::SystemTime;

use foundationdb::Database;
use kvqueue_queue::{Queue, RetryError, SweepRules, Sweeper, Swept as Found, VersionHistory};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    Swept,
    pause::{self, Woken},
};
use crate::{
    causes::with_causes,
    consumer::{clock::random, shutdown::ShutdownTokens},
    database::STORAGE_FAILED,
};

/// So often the database's version is read while a lease lasts, by one of the sweepers of a process for all of them.
const OBSERVATIONS: u32 = 8;

/// Nor more often than this, or less.
const SOONEST: Duration = Duration::from_millis(50);
const LATEST: Duration = Duration::from_secs(60);

/// Sweeps the queue again and again, and stops between two sweeps.
pub(super) async fn sweep(swept: &Swept, mut rules: watch::Receiver<SweepRules>, stop: &CancellationToken) {
    let Swept { db, queue, history, pause, shutdown, meters } = swept;
    let mut sweeper = Sweeper::new(queue.clone(), history.clone());
    let mut failures = 0;
    while stop.run_until_cancelled(pause.unfrozen()).await.is_some() {
        let by = *rules.borrow_and_update();
        let woken = match sweeper.sweep(db, SystemTime::now(), &by).await {
            Ok(found) => {
                failures = 0;
                meters.swept(&found.moved);
                report(shutdown, queue, &found);
                stop.run_until_cancelled(wait(found, &mut rules, observe(db, history, by.lease))).await
            }
            Err(error) => {
                failures += 1;
                warn(shutdown, queue, &error);
                Some(Woken::Failure { failures })
            }
        };
        let Some(woken) = woken else { return };
        if stop.run_until_cancelled(sleep(pause::pause(woken, random()))).await.is_none() {
            return;
        }
    }
}

/// Reads the database's version from time to time, as long as it is polled. Leases of the dead end later by up to this time.
async fn observe(db: &Database, history: &VersionHistory, lease: Duration) {
    let every = (lease / OBSERVATIONS).clamp(SOONEST, LATEST);
    loop {
        sleep(every).await;
        if history.observe(db, every / 2).await.is_err() {
            // The next sweep says what is wrong. Until the database answers again, leases are left alone.
            sleep(every).await;
        }
    }
}

/// Waits until there may be something to do.
async fn wait(
    found: Found,
    rules: &mut watch::Receiver<SweepRules>,
    observing: impl Future<Output = ()>,
) -> Woken {
    let woken = tokio::select! {
        () = observing => Woken::Time,
        woken = found.watch => woken.map_or(Woken::Failure { failures: 1 }, |()| Woken::Item),
        () = sleep(found.next) => Woken::Time,
        // An error says that nobody changes them any more, and that the queue is swept no more.
        _ = rules.changed() => Woken::Time,
    };
    // However soon that was: more of it may fail, and say so again.
    if found.trouble.is_some() { Woken::Failure { failures: 1 } } else { woken }
}

fn report(shutdown: &ShutdownTokens, queue: &Queue, swept: &Found) {
    let (name, moved) = (queue.name().escape_ascii(), &swept.moved);
    if moved.dead > 0 {
        tracing::warn!(
            event = "expired_items_dead",
            queue = %name,
            items = moved.dead,
            "items became dead letters because the lease of their last attempt expired"
        );
    }
    if moved.leases > 0 {
        tracing::warn!(
            event = "leases_expired",
            queue = %name,
            leases = moved.leases,
            items = moved.returned,
            "leases expired; their items will be retried"
        );
    }
    if moved.orphans > 0 {
        tracing::info!(
            event = "orphans_removed",
            queue = %name,
            items = moved.orphans,
            "removed the records of items that another program fetched"
        );
    }
    if moved.promoted + moved.operations > 0 {
        tracing::debug!(
            event = "swept",
            queue = %name,
            promoted = moved.promoted,
            operations = moved.operations,
            "queue swept"
        );
    }
    if let Some(error) = &swept.trouble {
        warn(shutdown, queue, error);
    }
}

pub(super) fn warn(shutdown: &ShutdownTokens, queue: &Queue, error: &RetryError) {
    if error.code() == Some(STORAGE_FAILED) {
        shutdown.storage_failed();
    }
    tracing::warn!(
        event = "sweep_failed",
        queue = %queue.name().escape_ascii(),
        error = with_causes(error),
        "sweep failed; retrying later"
    );
}
