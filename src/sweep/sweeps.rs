//! The two sweeps of a queue. One returns expired leases, promotes scheduled items that are due and removes old
//! idempotency records. The other removes the records of dead sessions.

use std::{
    sync::atomic::Ordering,
    time::{Duration, SystemTime},
};

use foundationdb::Database;
use kvqueue_queue::{
    ClocksDiffer, QueueError, RetryError, RetryPolicy, SweepRules, Sweeper, Swept, TokenPlace,
    VersionHistory, millis, sweep_tokens,
};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    LEAVE, POLICY, callbacks,
    delay::{self, Woken},
    occurrences,
};
use crate::{
    base::{causes::with_causes, clock::random, times::after},
    consumer::runtime::NamedQueue,
    database::STORAGE_FAILED,
    status::{ClockChange, DaemonStatus, lag},
};

/// How often the database's version is read in the length of a lease. One sweeper of a process reads it for all.
const OBSERVATIONS: u32 = 8;

/// The shortest and the longest time between two such reads.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(60);

/// Sweeps the queue until it is stopped, which it checks between two sweeps.
pub(super) async fn sweep_items(
    queue: &NamedQueue,
    status: &DaemonStatus,
    mut rules: watch::Receiver<SweepRules>,
    stop: &CancellationToken,
) {
    let NamedQueue { db, history, .. } = queue;
    let mut sweeper = Sweeper::new(queue.queue.clone(), history.clone());
    let mut failures = 0;
    let mut patience = Duration::ZERO;
    while stop.run_until_cancelled(queue.pause.unfrozen()).await.is_some() {
        let by = *rules.borrow_and_update();
        let woken = match sweeper.sweep(db, &SystemTime::now, &by).await {
            Ok(swept) => {
                failures = 0;
                queue.meters.swept(&swept.moved);
                queue.meters.dead_removal.store(removal(&swept, by.dead_retention), Ordering::Relaxed);
                report(queue, &swept);
                if swept.has_compared_clocks {
                    report_clock(queue, status, swept.clock);
                }
                patience = swept.patience;
                let wanted = queue.meters.clock_lag.wanted();
                stop.run_until_cancelled(wait(swept, &mut rules, wanted, observe(db, history, by.lease)))
                    .await
            }
            Err(error) => {
                failures += 1;
                warn(queue, &error);
                Some(Woken::Failure { failures })
            }
        };
        let Some(woken) = woken else { break };
        if stop.run_until_cancelled(sleep(delay::before_sweep(woken, patience, random()))).await.is_none() {
            break;
        }
    }
    report_clock(queue, status, None);
    // Another sweeper knows it from now on.
    queue.meters.dead_removal.store(0, Ordering::Relaxed);
    let policy = RetryPolicy { timeout: Some(LEAVE), ..POLICY };
    // Another daemon takes over at its next look. If this fails, it does so when this sweeper is late.
    let _: Result<(), RetryError> = sweeper.leave(db, &policy).await;
}

/// When the oldest dead letter will be removed, in milliseconds since 1970; 0 if there is none that will be.
fn removal(swept: &Swept, retention: Option<Duration>) -> u64 {
    let removal = swept.oldest_dead.zip(retention);
    removal.map_or(0, |(died, kept)| millis(after(died, kept)))
}

/// Reads the database's version from time to time, as long as it is polled. A dead daemon's lease expires up to this
/// period later.
async fn observe(db: &Database, history: &VersionHistory, lease: Duration) {
    let every = (lease / OBSERVATIONS).clamp(SHORTEST, LONGEST);
    loop {
        sleep(every).await;
        if history.observe(db, every / 2).await.is_err() {
            // The next sweep reports the error. Until the database answers again, no lease expires.
            sleep(every).await;
        }
    }
}

/// Waits until there may be something to do.
async fn wait(
    swept: Swept,
    rules: &mut watch::Receiver<SweepRules>,
    wanted: impl Future<Output = ()>,
    observing: impl Future<Output = ()>,
) -> Woken {
    let woken = tokio::select! {
        () = wanted => Woken::Time,
        () = observing => Woken::Time,
        woken = swept.watch => woken.map_or(Woken::Failure { failures: 1 }, |()| Woken::Item),
        () = sleep(swept.next) => Woken::Time,
        // An error means that the `Sweeping` was dropped, and this task ends with it.
        _ = rules.changed() => Woken::Time,
    };
    // The part of the sweep that failed may fail again, so it is retried after a pause.
    if swept.trouble.is_some() { Woken::Failure { failures: 1 } } else { woken }
}

/// Says when this machine's clock begins to differ from another process's, and by when items expire then.
fn report_clock(queue: &NamedQueue, status: &DaemonStatus, clock: Option<ClocksDiffer>) {
    queue.meters.clock_lag.found(clock.as_ref().map_or(Duration::ZERO, lag));
    match status.clock(&queue.name, clock) {
        Some(ClockChange::Differs(text)) => tracing::warn!(
            event = "clock_differs",
            queue = %queue.queue.name().escape_ascii(),
            text,
            "this machine's clock differs from another process's"
        ),
        Some(ClockChange::Agrees) => {
            tracing::info!(
                event = "clock_agrees",
                "this machine's clock differs from no other process's any more"
            );
        }
        None => {}
    }
}

fn report(queue: &NamedQueue, swept: &Swept) {
    let (name, moved) = (queue.queue.name().escape_ascii(), &swept.moved);
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
    if moved.expired > 0 {
        tracing::info!(
            event = "items_expired",
            queue = %name,
            items = moved.expired,
            "items expired before their first attempt began"
        );
    }
    if moved.removed_dead > 0 {
        tracing::info!(
            event = "dead_letters_removed",
            queue = %name,
            items = moved.removed_dead,
            "dead letters that were older than dead-retention are removed"
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
    occurrences::report(queue, swept);
    callbacks::report(queue, swept);
    if let Some(error) = &swept.trouble {
        warn(queue, error);
    }
}

fn warn(queue: &NamedQueue, error: &RetryError) {
    if error.code() == Some(STORAGE_FAILED) {
        queue.shutdown.storage_failed();
    }
    tracing::warn!(
        event = "sweep_failed",
        queue = %queue.queue.name().escape_ascii(),
        error = with_causes(error),
        "sweep failed; retrying later"
    );
}

/// How often sessions are swept. The first time is when the daemon starts to work on the queue.
const SESSIONS_PERIOD: Duration = Duration::from_hours(1);

/// A session that has done nothing for this long, by the database's versions and by the clock, is gone.
const GONE: Duration = Duration::from_hours(24);

/// Removes the records of sessions that were not closed, such as those of killed processes, until it is stopped.
pub(super) async fn sweep_sessions(queue: &NamedQueue, stop: &CancellationToken) {
    let NamedQueue { db, history, .. } = queue;
    let mut place = TokenPlace::default();
    while stop.run_until_cancelled(queue.pause.unfrozen()).await.is_some() {
        // Before the clock is read, so that the noted version existed at that time. The sweep reports errors.
        let _: Result<(), QueueError> = history.observe(db, SESSIONS_PERIOD).await;
        match sweep_tokens(db, &queue.queue, history, &mut place, SystemTime::now(), GONE, &POLICY).await {
            Ok(swept) if swept.cleared == 0 => {}
            Ok(swept) => {
                let name = queue.queue.name().escape_ascii();
                tracing::info!(
                    event = "sessions_removed",
                    queue = %name,
                    sessions = swept.cleared,
                    "removed the records of dead sessions"
                );
            }
            Err(error) => warn(queue, &error),
        }
        if stop.run_until_cancelled(sleep(SESSIONS_PERIOD)).await.is_none() {
            return;
        }
    }
}
