//! The sweeper of a queue: it returns items whose lease expired, makes scheduled items ready when they are due, and
//! removes old records. It also fires schedules and closes batches. Next to it, tasks divide the queue into partitions, store how long its ended items are kept, and
//! store its schedules, as configured.
//!
//! Every daemon has a sweeper for each of its queues, and one for old records of the audit trail. One of a queue's sweepers is on duty, and
//! the others look whether it still is; [`kvqueue_queue::Sweeper`] sees to that.

pub(crate) mod audit;
mod callbacks;
mod delay;
mod division;
mod history;
mod occurrences;
mod policy;
mod schedules;
mod sweeps;

use std::sync::Arc;

use futures::future::join5;
use kvqueue_queue::{Partitions, SweepRules};
use tokio::{sync::watch, time::timeout};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use self::policy::{LEAVE, POLICY};
pub(crate) use self::schedules::ConfiguredSchedules;
use crate::{
    base::background,
    config::{KeptHistory, QueueConfig},
    consumer::runtime::NamedQueue,
    status::DaemonStatus,
};

/// The sweepers of a daemon.
#[derive(Debug, Default)]
pub(crate) struct Sweepers {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Sweepers {
    /// Starts sweeping a queue, in tasks on the current runtime.
    pub(crate) fn start(
        &self,
        queue: Arc<NamedQueue>,
        status: &Arc<DaemonStatus>,
        Settings { rules, division, history, schedules }: Settings,
    ) -> Sweeping {
        let (rules, follow) = watch::channel(rules);
        let (division, divide) = watch::channel(division);
        let (history, keep) = watch::channel(history);
        let (schedules, configured) = watch::channel(Arc::new(schedules));
        let (stop, status) = (self.stop.child_token(), status.clone());
        queue.meters.clock_lag.is_being_found();
        let stopped = stop.clone();
        self.tasks.spawn(background::restarted("sweeper", move || {
            let (queue, status) = (queue.clone(), status.clone());
            let (follow, stopped) = (follow.clone(), stopped.clone());
            let (divide, keep, configured) = (divide.clone(), keep.clone(), configured.clone());
            tokio::spawn(async move {
                join5(
                    sweeps::sweep_items(&queue, &status, follow, &stopped),
                    sweeps::sweep_sessions(&queue, &stopped),
                    stopped.run_until_cancelled(division::keep(&queue, divide)),
                    stopped.run_until_cancelled(history::keep(&queue, keep)),
                    stopped.run_until_cancelled(schedules::keep(&queue, configured)),
                )
                .await;
            })
        }));
        Sweeping { rules, division, history, schedules, _stop: stop.drop_guard() }
    }

    /// Stops them all, and waits for a second at most until they have given up their duty.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        // Another daemon takes over from a sweeper that did not get to it, some seconds later.
        let _ = timeout(LEAVE, self.tasks.wait()).await;
    }
}

/// The running sweeper of a queue. Dropped, it stops after the sweep that is under way.
#[derive(Debug)]
pub(crate) struct Sweeping {
    rules: watch::Sender<SweepRules>,
    division: watch::Sender<Option<Partitions>>,
    history: watch::Sender<Option<KeptHistory>>,
    schedules: watch::Sender<Arc<ConfiguredSchedules>>,
    _stop: DropGuard,
}

impl Sweeping {
    /// Applies the settings of a reload. Rules hold from the next sweep on, which begins now. Schedules are compared with the database even if they
    /// are the same as before.
    pub(crate) fn set(&self, Settings { rules, division, history, schedules }: Settings) {
        self.rules.send_if_modified(|old| std::mem::replace(old, rules) != rules);
        self.division.send_if_modified(|old| std::mem::replace(old, division) != division);
        self.history.send_if_modified(|old| {
            let is_other = *old != history;
            *old = history;
            is_other
        });
        self.schedules.send_replace(Arc::new(schedules));
    }
}

/// What a configuration says about the sweeper of a queue and the tasks next to it.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) rules: SweepRules,
    /// How the queue is to be divided; `None`: it is left as it is.
    pub(crate) division: Option<Partitions>,
    /// What is kept of ended items; `None`: what is stored about it is left as it is.
    pub(crate) history: Option<KeptHistory>,
    pub(crate) schedules: ConfiguredSchedules,
}

/// The rules by which a queue is swept.
pub(crate) fn rules(config: &QueueConfig) -> SweepRules {
    SweepRules::default()
        .with_retry(config.retry.rules())
        .with_lease(config.lease)
        .with_idempotency_window(config.idempotency_window)
        .with_ttl(config.ttl)
        .with_on_expiry(config.on_expiry.into())
        .with_dead_retention(config.dead_retention())
        .with_policy(POLICY)
}
