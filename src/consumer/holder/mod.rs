//! The holder of a lease: a task beside the handlers that keeps the lease, settles what is said of its items, and tells when it is lost.
//! The consumers that a take was for have a slice of its lease each, and one holder.
//!
//! | file | role |
//! |---|---|
//! | `plan` | what to do next, as a pure function of time |
//! | `commit` | transactions that handlers write into |
//! | `holding` | the dispatcher's end |
//! | `slice` | what each consumer has of it |
//!
//! Holders run on the actors' runtime, like takes. What they do is waiting for the database, and no handler runs there, so a handler that
//! blocks its thread, or all of the pool's, stops no heartbeat; and they outlive the consumer that took the items, should it panic.

mod commit;
mod holding;
mod plan;
mod slice;

use std::{ops::Range, sync::Arc};

use kvqueue_queue::{ItemOutcome as Settlement, Lease, LeaseError, QueueError, RetryPolicy};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use self::{
    holding::{Asked, Outbox, Waiting},
    plan::{GATHER, GATHER_SLICES, Next, Plan},
    slice::{Line, Slices},
};
use super::source::Source;
use crate::{database::STORAGE_FAILED, status::Heartbeat};

pub(crate) use self::{
    holding::{Holding, Verdict},
    slice::Slice,
};

/// A batch as a take has left it.
#[derive(Debug)]
pub(crate) struct Leased {
    pub(crate) lease: Lease,
    /// When the take began.
    pub(crate) taken_at: Instant,
    /// Whether that does not tell how old the lease is: an earlier take had made it, or this one took long.
    pub(crate) doubtful: bool,
}

/// Keeps one lease. It ends when every item is settled, when the lease is lost, or when nobody is left to say what becomes of the rest.
pub(crate) struct Holder {
    source: Arc<Source>,
    lease: Lease,
    slices: Slices,
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
    /// Beats whenever something has been done, or waited for. Dropped with this, it tells that nobody holds the lease any more.
    beat: Arc<Heartbeat>,
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
    /// A holder for what was taken, and the slices of it: `shares` are in order, and together they are all of the items.
    pub(crate) fn new(source: Arc<Source>, leased: Leased, shares: &[Range<usize>]) -> (Self, Vec<Slice>) {
        let Leased { lease, taken_at, doubtful } = leased;
        let (ask, asked) = mpsc::unbounded_channel();
        let cancelled = source.signals.drain_timed_out.child_token();
        let beat = Arc::default();
        let holder = Arc::downgrade(&beat);
        let line = Line { outbox: Arc::default(), ask, cancelled: cancelled.clone(), holder };
        let (parts, slices) = slice::cut(&lease, shares, &line);
        let plan = Plan::new(source.lease, taken_at, doubtful, lease.open().count());
        let outbox = line.outbox;
        let holder = Self {
            source,
            lease,
            slices: parts,
            plan,
            outbox,
            asked,
            cancelled,
            begun_at: taken_at,
            unsure: false,
            beat,
        };
        (holder, slices)
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
        self.slices.ended();
        if self.source.until_empty.is_some() {
            self.source.look_again.notify_one();
        }
    }

    async fn hold(&mut self) -> Result<(), Gone> {
        loop {
            self.beat.beat();
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
                    () = self.outbox.news.notified() => self.note_said(),
                    () = sleep_until(until) => {}
                },
            }
        }
    }

    async fn hear(&mut self, asked: Option<Asked>) -> Result<(), Gone> {
        match asked {
            Some(Asked::Begin(answer)) => self.begin(answer).await,
            Some(Asked::Commit(commit)) => self.commit(commit).await,
            Some(Asked::Leave(items)) => {
                // Their handler still has its transaction, which will not commit: an extension may make it conflict.
                self.plan.hand_out(false);
                self.slices.leave(items);
                Ok(())
            }
            None => {
                self.note_said();
                self.plan.left_alone();
                Ok(())
            }
        }
    }

    fn note_said(&mut self) {
        let gather = match self.outbox.waiting() {
            // It is settled already: before a transaction that was asked for meanwhile.
            Waiting::Nothing => return,
            Waiting::Some => GATHER,
            Waiting::Slice => GATHER_SLICES,
        };
        self.plan.said(Instant::now(), gather);
    }

    async fn settle(&mut self) -> Result<(), Gone> {
        let said = self.outbox.take();
        let mut rest = said.as_slice();
        // As many transactions as it takes, each of which extends the lease.
        while !rest.is_empty() {
            let began = Instant::now();
            let policy = self.policy(began);
            let settled = self.lease.acknowledge_some(&self.source.db, &policy, rest).await?;
            self.changed(began, &rest[..settled]);
            self.source.meters.settle_seconds.observe(began.elapsed());
            rest = &rest[settled..];
        }
        self.plan.settled();
        Ok(())
    }

    fn changed(&mut self, began: Instant, settled: &[(usize, Settlement)]) {
        self.beat.beat();
        self.plan.changed(began, settled.len());
        self.source.meters.settled(settled.iter().map(|(_, settlement)| settlement));
        settled.iter().for_each(|(index, _)| self.slices.settled(*index));
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
            self.source.signals.storage_failed();
        }
        self.source.signals.leave_behind(open);
        self.source.meters.leases_lost.inc();
        self.source.meters.lost.add(open as u64);
        tracing::warn!(
            event = "lease_lost",
            queue = %self.source.name,
            items = open,
            settled = self.lease.items().len() - open,
            expired_in_database = matches!(gone, Gone::Lease(error) if error.is_lost()),
            reason = gone as &dyn std::error::Error,
            "lease lost; its unacknowledged items will be redelivered"
        );
    }

    /// Where the dispatcher went before everything was said.
    fn note_rest(&self) {
        let items = self.plan.open();
        if items > 0 {
            self.source.signals.leave_behind(items);
            self.source.meters.lost.add(items as u64);
            tracing::warn!(
                event = "lease_abandoned",
                queue = %self.source.name,
                items,
                "lease left to expire, because nothing handles its items any more"
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
