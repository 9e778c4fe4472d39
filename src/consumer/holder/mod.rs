//! The holder of a lease: a task beside the handlers that keeps the lease, settles what is said of its items, and tells when it is lost.
//!
//! | file | role |
//! |---|---|
//! | `plan` | what to do next, as a pure function of time |
//! | `commit` | transactions that handlers write into |
//! | `holding` | the dispatcher's end |
//!
//! Holders run on the actors' runtime, like takes. What they do is waiting for the database, and no handler runs there, so a handler that
//! blocks its thread, or all of the pool's, stops no heartbeat; and they outlive the consumer that took the items, should it panic.

mod commit;
mod holding;
mod plan;

use std::sync::Arc;

use kvqueue_queue::{Lease, LeaseError, QueueError, RetryPolicy};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use self::{
    holding::{Asked, Outbox},
    plan::{Next, Plan},
};
use super::{signals::Signals, source::Source};
use crate::database::STORAGE_FAILED;

pub(crate) use self::holding::{Holding, Verdict};

/// A batch as a take has left it.
#[derive(Debug)]
pub(crate) struct Leased {
    pub(crate) lease: Lease,
    /// When the take began.
    pub(crate) taken_at: Instant,
    /// Whether it may have been made some time before it was known: by an earlier attempt, or by a take that took long.
    pub(crate) recovered: bool,
}

/// Keeps one lease. It ends when every item is settled, when the lease is lost, or when nobody is left to say what becomes of the rest.
pub(crate) struct Holder {
    source: Arc<Source>,
    signals: Arc<Signals>,
    consumer: u64,
    lease: Lease,
    plan: Plan,
    /// What is to be settled.
    outbox: Arc<Outbox>,
    asked: mpsc::UnboundedReceiver<Asked>,
    /// The handlers'.
    cancelled: CancellationToken,
    /// When the transaction that a handler has was begun.
    begun_at: Instant,
    /// An attempt to commit what the handler now does again had an unknown outcome.
    unsure: bool,
}

/// Why a lease is held no longer.
#[derive(Debug, thiserror::Error)]
enum Gone {
    /// By this process's own clock.
    #[error("it was not extended in time: the database did not answer, or this process was suspended")]
    RanOut,
    /// The database says so, or does not want any more of it.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The same in a transaction that a handler wrote into.
    #[error(transparent)]
    Transaction(#[from] QueueError),
}

impl Holder {
    /// A holder for a batch, and what the dispatcher needs of it.
    pub(crate) fn new(
        source: Arc<Source>,
        signals: Arc<Signals>,
        consumer: u64,
        leased: Leased,
    ) -> (Self, Holding) {
        let Leased { lease, taken_at, recovered } = leased;
        let outbox = Arc::<Outbox>::default();
        let (ask, asked) = mpsc::unbounded_channel();
        let cancelled = signals.grace_over.child_token();
        let holding = Holding { outbox: outbox.clone(), ask, cancelled: cancelled.clone() };
        let plan = Plan::new(source.lease, taken_at, recovered, lease.open().count());
        let holder = Self {
            source,
            signals,
            consumer,
            lease,
            plan,
            outbox,
            asked,
            cancelled,
            begun_at: taken_at,
            unsure: false,
        };
        (holder, holding)
    }

    /// Holds the lease to its end.
    pub(crate) async fn run(mut self) {
        // However this ends: handlers do not go on without a lease.
        let _guard = self.cancelled.clone().drop_guard();
        if let Err(gone) = self.hold().await {
            self.give_up(&gone);
        }
        // Before the guard's turn: whoever is cancelled asks whether the lease was lost.
        self.asked.close();
        if self.source.until_empty {
            self.source.idle.nudge();
        }
    }

    async fn hold(&mut self) -> Result<(), Gone> {
        loop {
            match self.plan.next(Instant::now()) {
                Next::Settle => self.settle().await?,
                Next::Extend => self.extend().await?,
                Next::Lost => return Err(Gone::RanOut),
                Next::End => {
                    self.note_rest();
                    return Ok(());
                }
                Next::Wait(until) => tokio::select! {
                    biased;
                    asked = self.asked.recv() => self.hear(asked).await?,
                    () = self.outbox.first.notified() => self.note_said(),
                    () = sleep_until(until) => {}
                },
            }
        }
    }

    async fn hear(&mut self, asked: Option<Asked>) -> Result<(), Gone> {
        match asked {
            Some(Asked::Begin(answer)) => self.begin(answer).await,
            Some(Asked::Commit(commit)) => self.commit(commit).await,
            None => {
                self.note_said();
                self.plan.left_alone();
                Ok(())
            }
        }
    }

    fn note_said(&mut self) {
        // It may be settled already: with a transaction that was asked for meanwhile.
        if !self.outbox.is_empty() {
            self.plan.said(Instant::now());
        }
    }

    async fn settle(&mut self) -> Result<(), Gone> {
        let said = self.outbox.take();
        let mut rest = said.as_slice();
        // As many transactions as it takes, each of which extends the lease.
        while !rest.is_empty() {
            let began = Instant::now();
            let policy = self.policy(began);
            let settled = self.lease.settle_some(&self.source.db, &policy, rest).await?;
            self.plan.changed(began, settled);
            rest = &rest[settled..];
        }
        self.plan.settled();
        Ok(())
    }

    async fn extend(&mut self) -> Result<(), Gone> {
        let began = Instant::now();
        let policy = self.policy(began);
        self.lease.extend(&self.source.db, &policy).await?;
        self.plan.changed(began, 0);
        Ok(())
    }

    /// A change is tried for as long as the lease is held; then there is nothing left to change.
    fn policy(&self, now: Instant) -> RetryPolicy {
        RetryPolicy { timeout: Some(self.plan.time_left(now)), ..RetryPolicy::default() }
    }

    /// The one place where the loss of a lease is told.
    fn give_up(&self, gone: &Gone) {
        let open = self.plan.open();
        if gone.code() == Some(STORAGE_FAILED) {
            self.signals.storage_failed();
        }
        self.signals.leave_behind(open);
        tracing::warn!(
            queue = %self.source.name,
            consumer = self.consumer,
            items = open,
            settled = self.lease.items().len() - open,
            reason = gone as &dyn std::error::Error,
            "lease lost, its items come again: what was handled and not settled is handled twice"
        );
    }

    /// Where the dispatcher went before everything was said.
    fn note_rest(&self) {
        let items = self.plan.open();
        if items > 0 {
            self.signals.leave_behind(items);
            tracing::warn!(
                queue = %self.source.name,
                consumer = self.consumer,
                items,
                "lease left to run out: nobody handles its items any more"
            );
        }
    }
}

impl Gone {
    /// The database's error code, if it was an error of the database.
    fn code(&self) -> Option<i32> {
        match self {
            Self::Lease(LeaseError::Retry(error)) => error.code(),
            Self::Transaction(error) | Self::Lease(LeaseError::Queue(error)) => {
                error.database().map(foundationdb::FdbError::code)
            }
            Self::RanOut | Self::Lease(_) => None,
        }
    }
}
