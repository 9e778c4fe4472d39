//! The lease keeper: a task that extends a lease and writes its acknowledgements until all items are
//! acknowledged or the lease is lost.
//!
//! Keepers run on the actors' thread, like fetches. They only wait for the database, and no handler
//! runs there. So a handler that blocks its thread, or all threads of the pool, stops no extension.
//! A keeper also outlives a consumer that panics.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kvqueue_queue::{ItemOutcome, Lease, LeaseError, Progress, QueueError, RetryPolicy};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    cancelled::CancelledItems,
    held::Held,
    slice::{AckBuffer, KeeperRequest, LeaseHandle, Pending, Slice, Slices},
    timer::{GATHER, GATHER_SLICES, LeaseTimer, Next},
};
use crate::{
    base::causes::with_causes,
    consumer::{heartbeat::Heartbeat, runtime::QueueRuntime},
    database::STORAGE_FAILED,
    handlers::ProgressNews,
};

/// How long looking for cancelled items may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// Keeps one lease. The consumers that the fetch was for have a [`Slice`] of it each.
pub(crate) struct LeaseKeeper {
    pub(super) runtime: Arc<QueueRuntime>,
    pub(super) lease: Lease,
    slices: Arc<Slices>,
    pub(super) timer: LeaseTimer,
    pub(super) acks: Arc<AckBuffer>,
    requests: mpsc::UnboundedReceiver<KeeperRequest>,
    /// Cancels the handlers of the lease's items.
    cancelled: CancellationToken,
    /// Which items were cancelled, for the dispatchers.
    cancelled_items: Arc<CancelledItems>,
    /// What handlers have reported since the last extension.
    progress: Arc<ProgressNews>,
    /// Lets the queue's cancellation follower wake the keeper.
    _held: Held,
    /// When the transaction that a handler has was begun.
    pub(super) begun_at: Instant,
    /// An earlier attempt of the transaction that a handler has now may have committed.
    pub(super) unsure: bool,
    /// Beats after each step.
    heartbeat: Arc<Heartbeat>,
}

/// Why the keeper does not have the lease any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum LostLease {
    /// By this process's clock.
    #[error("it was not extended in time: the database did not answer, or this process was suspended")]
    Expired,
    /// The database reports it, or refuses changes of the lease.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The same in a transaction that a handler wrote into.
    #[error(transparent)]
    Transaction(#[from] QueueError),
}

impl LeaseKeeper {
    /// A keeper for fetched items, and a slice for each range. The ranges are in order and cover all
    /// items. The timer knows since when the lease is held.
    pub(crate) fn new(
        runtime: Arc<QueueRuntime>,
        lease: Lease,
        timer: LeaseTimer,
        ranges: &[Range<usize>],
    ) -> (Self, Vec<Slice>) {
        let (sender, requests) = mpsc::unbounded_channel();
        let cancelled = runtime.shutdown.drain_timed_out.child_token();
        let heartbeat = Arc::<Heartbeat>::default();
        let acks = Arc::<AckBuffer>::default();
        let cancelled_items = Arc::<CancelledItems>::default();
        let progress = Arc::<ProgressNews>::default();
        let held = runtime.held.add(lease.id(), sender.downgrade());
        let (slices, receivers) = Slices::new(ranges);
        let slices = Arc::new(slices);
        let parts = ranges.iter().zip(receivers).map(|(range, acknowledged)| Slice {
            items: lease.items()[range.clone()].to_vec(),
            handle: LeaseHandle {
                first: range.start,
                remaining: AtomicUsize::new(range.len()),
                slices: slices.clone(),
                heartbeat: Arc::downgrade(&heartbeat),
                acks: acks.clone(),
                requests: sender.clone(),
                cancelled: cancelled.clone(),
                cancelled_items: cancelled_items.clone(),
                progress: progress.clone(),
            },
            acknowledged,
        });
        let parts = parts.collect();
        let keeper = Self {
            runtime,
            lease,
            slices,
            timer,
            acks,
            requests,
            cancelled,
            cancelled_items,
            progress,
            _held: held,
            begun_at: Instant::now(),
            unsure: false,
            heartbeat,
        };
        // Since the fetch, if its outcome was unknown.
        keeper.stop_cancelled();
        (keeper, parts)
    }

    /// Keeps the lease until all items are acknowledged, no handle is left, or the lease is lost.
    pub(crate) async fn run(mut self) {
        // In any case handlers do not go on without a lease.
        let _guard = self.cancelled.clone().drop_guard();
        if let Err(lost) = self.keep().await {
            self.report_lost(&lost);
        }
        // Before the guard cancels: a cancelled dispatcher asks whether the lease is lost.
        self.requests.close();
        self.slices.close_all();
        if self.runtime.until_empty.is_some() {
            self.runtime.look_again.notify_one();
        }
    }

    async fn keep(&mut self) -> Result<(), LostLease> {
        loop {
            self.heartbeat.beat();
            match self.timer.next(Instant::now()) {
                Next::Acknowledge => self.acknowledge().await?,
                Next::Extend => self.extend().await?,
                Next::Lost => return Err(LostLease::Expired),
                Next::End => {
                    self.report_abandoned();
                    return Ok(());
                }
                Next::Wait(until) => tokio::select! {
                    biased;
                    request = self.requests.recv() => self.on_request(request).await?,
                    () = self.acks.changed.notified() => self.on_outcomes(),
                    () = sleep_until(until) => {}
                },
            }
        }
    }

    async fn on_request(&mut self, request: Option<KeeperRequest>) -> Result<(), LostLease> {
        match request {
            Some(KeeperRequest::Begin(reply)) => self.begin(reply).await,
            Some(KeeperRequest::Commit(request)) => self.commit(request).await,
            Some(KeeperRequest::Leave(items)) => {
                // The handler of these items still has its transaction, but may not commit it, so an
                // extension may make it conflict.
                self.timer.transaction_out(false);
                self.slices.leave(items);
                Ok(())
            }
            Some(KeeperRequest::LookForCancelled) => {
                self.look_for_cancelled().await;
                Ok(())
            }
            None => {
                self.on_outcomes();
                self.timer.close();
                Ok(())
            }
        }
    }

    /// Finds out which items were cancelled, and stops their handlers. If the database does not answer, the next change of the lease finds
    /// it out.
    pub(super) async fn look_for_cancelled(&mut self) {
        let timeout = self.timer.time_left(Instant::now()).min(LOOK_TIMEOUT);
        let policy = RetryPolicy { timeout: Some(timeout), ..RetryPolicy::default() };
        if let Err(error) = self.lease.look_for_cancelled(&self.runtime.db, &policy).await {
            tracing::debug!(
                event = "cancellations_not_read",
                queue = %self.runtime.name,
                error = with_causes(&error),
                "cannot read the queue's cancellations; retrying"
            );
        }
        self.stop_cancelled();
    }

    /// Stops the handlers of items that are known to be cancelled.
    fn stop_cancelled(&self) {
        if !self.lease.has_cancelled() {
            return;
        }
        for (index, item) in self.lease.items().iter().enumerate() {
            if self.lease.is_cancelled(index) && self.cancelled_items.cancel(index) {
                tracing::info!(
                    event = "item_cancelled",
                    queue = %self.runtime.name,
                    item = %item.id,
                    "running item cancelled; its handler is stopped"
                );
            }
        }
    }

    fn on_outcomes(&mut self) {
        let gather = match self.acks.pending() {
            // They were acknowledged already, before a transaction was handed out.
            Pending::Nothing => return,
            Pending::Outcomes => GATHER,
            Pending::CompleteSlice => GATHER_SLICES,
        };
        self.timer.outcomes_pending(Instant::now(), gather);
    }

    /// Writes the pending outcomes, in as many transactions as they need. Each extends the lease.
    pub(super) async fn acknowledge(&mut self) -> Result<(), LostLease> {
        let pending = self.acks.take();
        let mut rest = pending.as_slice();
        while !rest.is_empty() {
            let began = Instant::now();
            let policy = self.policy(began);
            let written = self.lease.acknowledge_some(&self.runtime.db, &policy, rest).await?;
            self.acknowledged(began, &rest[..written]);
            self.runtime.meters.acknowledge_seconds.observe(began.elapsed().as_secs_f64());
            rest = &rest[written..];
        }
        self.timer.outcomes_written();
        Ok(())
    }

    /// A transaction that began at `began` has acknowledged these items.
    pub(super) fn acknowledged(&mut self, began: Instant, outcomes: &[(usize, ItemOutcome)]) {
        self.heartbeat.beat();
        self.timer.changed(began, outcomes.len());
        self.stop_cancelled();
        let is_cancelled = |index: usize| self.lease.is_cancelled(index);
        let cancelled = outcomes.iter().filter(|(index, _)| is_cancelled(*index)).count();
        self.runtime.meters.cancelled.inc_by(cancelled as u64);
        let written = outcomes.iter().filter(|(index, _)| !is_cancelled(*index));
        self.runtime.meters.acknowledged(written.map(|(_, outcome)| outcome));
        self.slices.acknowledged(outcomes.iter().map(|(index, _)| *index));
        if self.runtime.wants_slots.load(Ordering::Relaxed) {
            self.runtime.look_again.notify_one();
        }
    }

    async fn extend(&mut self) -> Result<(), LostLease> {
        let began = Instant::now();
        let policy = self.policy(began);
        let news = self.news();
        self.lease.extend_with(&self.runtime.db, &policy, &news).await?;
        self.timer.changed(began, 0);
        self.stop_cancelled();
        Ok(())
    }

    /// What is new of the progress of items, by their indexes in the lease.
    fn news(&self) -> Vec<(usize, Progress)> {
        let mut news = self.progress.take();
        if news.is_empty() {
            return Vec::new();
        }
        let items = self.lease.items().iter().enumerate();
        items.filter_map(|(index, item)| Some((index, news.remove(&item.id)?))).collect()
    }

    /// Changes are retried while the lease lasts. After that there is no lease to change.
    fn policy(&self, now: Instant) -> RetryPolicy {
        RetryPolicy { timeout: Some(self.timer.time_left(now)), ..RetryPolicy::default() }
    }

    /// The only place that reports a lost lease.
    fn report_lost(&self, lost: &LostLease) {
        let open = self.timer.open();
        if lost.code() == Some(STORAGE_FAILED) {
            self.runtime.shutdown.storage_failed();
        }
        self.runtime.shutdown.leave_behind(open);
        self.runtime.meters.leases_lost.inc();
        self.runtime.meters.lost.inc_by(open as u64);
        tracing::warn!(
            event = "lease_lost",
            queue = %self.runtime.name,
            items = open,
            acknowledged = self.lease.items().len() - open,
            expired_in_database = matches!(lost, LostLease::Lease(error) if error.is_lost()),
            reason = lost as &dyn std::error::Error,
            "lease lost; its unacknowledged items will be redelivered"
        );
    }

    /// Dispatchers have ended without an outcome for each item.
    fn report_abandoned(&self) {
        let items = self.timer.open();
        if items > 0 {
            self.runtime.shutdown.leave_behind(items);
            self.runtime.meters.lost.inc_by(items as u64);
            tracing::warn!(
                event = "lease_abandoned",
                queue = %self.runtime.name,
                items,
                "lease left to expire, because nothing handles its items any more"
            );
        }
    }
}

impl LostLease {
    /// The database's error code, if the error is the database's.
    fn code(&self) -> Option<i32> {
        match self {
            Self::Lease(LeaseError::Retry(error)) => error.code(),
            Self::Transaction(error) | Self::Lease(LeaseError::Queue(error)) => {
                error.database().map(foundationdb::FdbError::code)
            }
            Self::Expired | Self::Lease(_) => None,
        }
    }
}
