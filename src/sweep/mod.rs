//! The sweeper of a queue: it returns items whose lease expired, makes scheduled items ready when they are due, and
//! removes old records.
//!
//! Every daemon has a sweeper for each of its queues, and one for old records of the audit trail. One of a queue's sweepers is on duty, and
//! the others look whether it still is; [`kvqueue_queue::Sweeper`] sees to that.

pub(crate) mod audit;
mod delay;
mod sweeps;

use std::{sync::Arc, time::Duration};

use futures::future::join;
use kvqueue_queue::{RetryPolicy, SweepRules};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{config::QueueConfig, consumer::runtime::NamedQueue, daemon::background};

/// A transaction that takes longer is given up, and tried again later.
const POLICY: RetryPolicy = RetryPolicy { max_attempts: None, timeout: Some(Duration::from_secs(60)) };

/// The running sweeper of a queue. Dropped, it stops after the sweep that is under way.
#[derive(Debug)]
pub(crate) struct Sweeping {
    rules: watch::Sender<SweepRules>,
    _stop: DropGuard,
}

impl Sweeping {
    /// Starts sweeping, in tasks on the current runtime.
    pub(crate) fn start(queue: Arc<NamedQueue>, rules: SweepRules) -> Self {
        let (rules, follow) = watch::channel(rules);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(background::restarted("sweeper", move || {
            let (queue, follow, stopped) = (queue.clone(), follow.clone(), stopped.clone());
            tokio::spawn(async move {
                join(sweeps::sweep_items(&queue, follow, &stopped), sweeps::sweep_sessions(&queue, &stopped))
                    .await;
            })
        }));
        Self { rules, _stop: stop.drop_guard() }
    }

    /// Sets other rules. They hold from the next sweep on, which begins now.
    pub(crate) fn set_rules(&self, rules: SweepRules) {
        self.rules.send_if_modified(|old| std::mem::replace(old, rules) != rules);
    }
}

/// The rules by which a queue is swept.
pub(crate) fn rules(config: &QueueConfig) -> SweepRules {
    SweepRules::default()
        .with_retry(config.retry.rules())
        .with_lease(config.lease)
        .with_idempotency_window(config.idempotency_window)
        .with_policy(POLICY)
}
