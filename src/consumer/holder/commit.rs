//! Exactly-once: the end of items in the transaction that their handler has written into.

use foundationdb::{FdbError, Transaction, TransactionCommitError};
use kvqueue_queue::{
    CommitStatus, ItemOutcome as Settlement, LeaseError, QueueError, retry::maybe_committed,
};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

use super::{
    Gone, Holder,
    holding::{Commit, Verdict, Waiting},
};
use crate::database::STORAGE_FAILED;

type Settlements = [(usize, Settlement)];

impl Holder {
    /// Gives a handler a transaction. What waits is settled before: later it would conflict with the transaction.
    pub(super) async fn begin(&mut self, answer: oneshot::Sender<Transaction>) -> Result<(), Gone> {
        if self.outbox.waiting() != Waiting::Nothing {
            self.settle().await?;
        }
        self.unsure = false;
        let transaction = self.transaction()?;
        self.begun_at = Instant::now();
        // Without a dispatcher the channel closes, which is heard next.
        let _ = answer.send(transaction);
        self.plan.hand_out(true);
        Ok(())
    }

    /// Commits, and answers with what came of it.
    pub(super) async fn commit(&mut self, commit: Commit) -> Result<(), Gone> {
        let Commit { transaction, settlements, answer } = commit;
        self.plan.hand_out(false);
        let held_until = self.plan.held_until();
        let began = Instant::now();
        let verdict = timeout_at(held_until, self.try_commit(transaction, &settlements)).await;
        let verdict = verdict.map_err(|_| Gone::RanOut)??;
        match verdict {
            Verdict::Settled => {
                self.changed(self.begun_at, &settlements);
                self.source.meters.settle_seconds.observe(began.elapsed());
                if self.unsure {
                    // It may have been an earlier attempt that committed.
                    self.plan.doubt();
                }
            }
            Verdict::Again(..) => self.plan.hand_out(true),
            Verdict::Refused(_) => {}
        }
        let _ = answer.send(verdict);
        Ok(())
    }

    async fn try_commit(&mut self, tr: Transaction, settlements: &Settlements) -> Result<Verdict, Gone> {
        // In the same transaction: should an earlier attempt commit only now, the two conflict.
        if self.unsure {
            match self.lease.find_out(&tr, settlements).await {
                Ok(CommitStatus::NotCommitted) => {}
                Ok(CommitStatus::Committed) => return Ok(Verdict::Settled),
                Ok(CommitStatus::Lost) => return Err(LeaseError::Lost.into()),
                Err(error) => return self.after_read(tr, error).await,
            }
        }
        let change = match self.lease.acknowledge_in(&tr, settlements).await {
            Ok(Some(change)) => change,
            Ok(None) => return Err(LeaseError::Lost.into()),
            Err(LeaseError::Queue(error)) => return self.after_read(tr, error).await,
            Err(error) => return Err(error.into()),
        };
        match tr.commit().await {
            Ok(_committed) => {
                self.lease.acknowledged(change);
                Ok(Verdict::Settled)
            }
            Err(error) => self.after_commit(error, settlements).await,
        }
    }

    /// Nothing has been written.
    async fn after_read(&mut self, tr: Transaction, error: QueueError) -> Result<Verdict, Gone> {
        let Some(cause) = error.database() else { return Err(error.into()) };
        Ok(match tr.on_error(cause).await {
            Ok(tr) => self.again(tr, cause),
            Err(refused) => Verdict::Refused(refused),
        })
    }

    async fn after_commit(
        &mut self,
        error: TransactionCommitError,
        settlements: &Settlements,
    ) -> Result<Verdict, Gone> {
        let cause: FdbError = *error;
        if cause.code() == STORAGE_FAILED {
            return Err(QueueError::from(cause).into());
        }
        let next = error.on_error().await;
        if !maybe_committed(cause) {
            return Ok(match next {
                Ok(tr) => self.again(tr, cause),
                Err(refused) => Verdict::Refused(refused),
            });
        }
        // Perhaps it did commit. Looking now may spare the handler a run; what counts is the look in its next transaction.
        self.unsure = true;
        match self.look(settlements).await? {
            CommitStatus::Committed => Ok(Verdict::Settled),
            CommitStatus::Lost => Err(LeaseError::Lost.into()),
            CommitStatus::NotCommitted => {
                let tr = self.transaction()?;
                Ok(self.again(tr, cause))
            }
        }
    }

    async fn look(&mut self, settlements: &Settlements) -> Result<CommitStatus, Gone> {
        let mut tr = self.transaction()?;
        loop {
            let error = match self.lease.find_out(&tr, settlements).await {
                Ok(fate) => return Ok(fate),
                Err(error) => error,
            };
            let Some(cause) = error.database() else { return Err(error.into()) };
            tr = tr.on_error(cause).await.map_err(QueueError::from)?;
        }
    }

    fn again(&mut self, tr: Transaction, cause: FdbError) -> Verdict {
        self.begun_at = Instant::now();
        Verdict::Again(tr, cause)
    }

    /// A new transaction. It has no time limit of its own: while a handler has it the lease is extended, and with the lease goes the
    /// handler; a commit is waited for as long as the lease is held.
    fn transaction(&self) -> Result<Transaction, Gone> {
        Ok(self.source.db.create_trx().map_err(QueueError::from)?)
    }
}
