//! Exactly-once delivery: items are acknowledged in the transaction that their handler has written
//! into.

use foundationdb::{FdbError, Transaction, TransactionCommitError};
use kvqueue_queue::{CommitStatus, ItemOutcome, LeaseError, QueueError, retry::maybe_committed};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

use super::{
    keeper::{LeaseKeeper, LostLease},
    slice::{CommitOutcome, CommitRequest, Pending},
};
use crate::database::STORAGE_FAILED;

type Outcomes = [(usize, ItemOutcome)];

impl LeaseKeeper {
    /// Gives a handler a transaction. Pending outcomes are written first: later they would conflict
    /// with it.
    pub(super) async fn begin(&mut self, reply: oneshot::Sender<Transaction>) -> Result<(), LostLease> {
        if self.acks.pending() != Pending::Nothing {
            self.acknowledge().await?;
        }
        self.unsure = false;
        let transaction = self.transaction()?;
        self.begun_at = Instant::now();
        // If the dispatcher has ended, the channel of requests closes next.
        let _ = reply.send(transaction);
        self.timer.transaction_out(true);
        Ok(())
    }

    /// Commits the transaction together with its outcomes, and replies.
    pub(super) async fn commit(&mut self, request: CommitRequest) -> Result<(), LostLease> {
        let CommitRequest { transaction, outcomes, reply } = request;
        self.timer.transaction_out(false);
        let held_until = self.timer.held_until();
        let began = Instant::now();
        let committed = timeout_at(held_until, self.try_commit(transaction, &outcomes)).await;
        let committed = committed.map_err(|_| LostLease::Expired)??;
        match committed {
            CommitOutcome::Committed => {
                self.acknowledged(self.begun_at, &outcomes);
                self.runtime.meters.acknowledge_seconds.observe(began.elapsed().as_secs_f64());
                if self.unsure {
                    // An earlier attempt may be the one that committed.
                    self.timer.age_is_unknown();
                }
            }
            CommitOutcome::Retry(..) => self.timer.transaction_out(true),
            CommitOutcome::Refused(_) | CommitOutcome::Cancelled => {}
        }
        let _ = reply.send(committed);
        Ok(())
    }

    async fn try_commit(&mut self, tr: Transaction, outcomes: &Outcomes) -> Result<CommitOutcome, LostLease> {
        // In the same transaction: if an earlier attempt commits only now, the two conflict.
        if self.unsure {
            match self.lease.find_out(&tr, outcomes).await {
                Ok(CommitStatus::NotCommitted) => {}
                Ok(CommitStatus::Committed) => return Ok(CommitOutcome::Committed),
                Ok(CommitStatus::Lost) => return Err(LeaseError::Lost.into()),
                Err(error) => return self.after_read(tr, error).await,
            }
        }
        let change = match self.lease.acknowledge_in(&tr, outcomes).await {
            Ok(Some(change)) => change,
            Ok(None) => return Err(LeaseError::Lost.into()),
            Err(LeaseError::Queue(error)) => return self.after_read(tr, error).await,
            Err(LeaseError::Cancelled { .. }) => {
                self.look_for_cancelled().await;
                return Ok(CommitOutcome::Cancelled);
            }
            Err(error) => return Err(error.into()),
        };
        match tr.commit().await {
            Ok(_committed) => {
                self.lease.acknowledged(change);
                Ok(CommitOutcome::Committed)
            }
            Err(error) => self.after_commit(error, outcomes).await,
        }
    }

    /// A read has failed, so nothing has been written.
    async fn after_read(&mut self, tr: Transaction, error: QueueError) -> Result<CommitOutcome, LostLease> {
        let Some(cause) = error.database() else { return Err(error.into()) };
        Ok(match tr.on_error(cause).await {
            Ok(tr) => self.retry(tr, cause),
            Err(refused) => CommitOutcome::Refused(refused),
        })
    }

    async fn after_commit(
        &mut self,
        error: TransactionCommitError,
        outcomes: &Outcomes,
    ) -> Result<CommitOutcome, LostLease> {
        let cause: FdbError = *error;
        if cause.code() == STORAGE_FAILED {
            return Err(QueueError::from(cause).into());
        }
        let next = error.on_error().await;
        if !maybe_committed(cause) {
            return Ok(match next {
                Ok(tr) => self.retry(tr, cause),
                Err(refused) => CommitOutcome::Refused(refused),
            });
        }
        // It may have committed. Finding out now can spare the handler a run. What decides is the
        // same read in its next transaction.
        self.unsure = true;
        match self.find_out(outcomes).await? {
            CommitStatus::Committed => Ok(CommitOutcome::Committed),
            CommitStatus::Lost => Err(LeaseError::Lost.into()),
            CommitStatus::NotCommitted => {
                let tr = self.transaction()?;
                Ok(self.retry(tr, cause))
            }
        }
    }

    async fn find_out(&mut self, outcomes: &Outcomes) -> Result<CommitStatus, LostLease> {
        let mut tr = self.transaction()?;
        loop {
            let error = match self.lease.find_out(&tr, outcomes).await {
                Ok(status) => return Ok(status),
                Err(error) => error,
            };
            let Some(cause) = error.database() else { return Err(error.into()) };
            tr = tr.on_error(cause).await.map_err(QueueError::from)?;
        }
    }

    fn retry(&mut self, tr: Transaction, cause: FdbError) -> CommitOutcome {
        self.begun_at = Instant::now();
        CommitOutcome::Retry(tr, cause)
    }

    /// A new transaction without a time limit of its own. The lease limits it: while a handler has
    /// the transaction the lease is extended, a lost lease cancels the handler, and a commit is
    /// awaited until the lease's deadline.
    fn transaction(&self) -> Result<Transaction, LostLease> {
        Ok(self.runtime.db.create_trx().map_err(QueueError::from)?)
    }
}
