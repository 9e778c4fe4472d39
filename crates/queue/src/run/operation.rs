//! Operations that commit exactly once, though the outcome of a commit can be unknown.
//!
//! An operation makes attempts, each in a transaction of its own, until one has committed. If the outcome of a commit is
//! unknown, the next attempt finds it out before it does anything else.

use foundationdb::{Database, FdbError, Transaction, TransactionCommitted};

use crate::model::error::QueueError;
use crate::model::retry_error::RetryError;
use crate::run::retry::{Done, Retry, RetryPolicy};
use crate::run::turn::turn;

/// An operation, as [`complete`] runs it. Its state tells which attempts have an unknown outcome.
pub(crate) trait Operation: Send {
    /// The result.
    type Output: Send;

    /// Fills the transaction of an attempt, unless an earlier attempt has committed.
    ///
    /// Before it returns [`Step::Commit`] it notes in longer-lived state what the attempt does: the caller may drop the
    /// operation during the commit.
    fn prepare(
        &mut self,
        tr: &Transaction,
    ) -> impl Future<Output = Result<Step<Self::Output>, QueueError>> + Send;

    /// The attempt that was prepared last has committed. `None` if the operation needs another transaction.
    fn committed(&mut self, committed: &TransactionCommitted) -> Option<Self::Output>;

    /// The commit of the attempt that was prepared last has failed;
    /// [`maybe_committed`](crate::run::retry::maybe_committed) tells whether its outcome is unknown.
    fn failed(&mut self, error: FdbError);
}

/// The next step after an attempt is prepared.
#[derive(Debug)]
pub(crate) enum Step<T> {
    /// Commit its transaction.
    Commit,
    /// The operation ends without a commit: there is nothing to write, or an earlier attempt has committed.
    End(T),
    /// Try again when this key has changed, or after a while. The transaction has only read.
    Wait(Vec<u8>),
    /// Try again in a new transaction.
    Again,
}

/// Runs an operation to its end.
pub(crate) async fn complete<O: Operation>(
    db: &Database,
    policy: &RetryPolicy,
    operation: &mut O,
) -> Result<Done<O::Output>, RetryError> {
    complete_begun(db, Retry::begin(db, policy)?, operation).await
}

/// The same for an operation that only adds data; see [`Retry::begin_adding`]. It waits for its [`turn`].
pub(crate) async fn complete_adding<O: Operation>(
    db: &Database,
    policy: &RetryPolicy,
    operation: &mut O,
) -> Result<Done<O::Output>, RetryError> {
    let (retry, tr) = Retry::begin_adding(db, policy)?;
    let turn = turn(db, retry.expired(&tr)).await;
    let _turn = turn.map_err(|error| retry.give_up(error.into()))?;
    complete_begun(db, (retry, tr), operation).await
}

async fn complete_begun<O: Operation>(
    db: &Database,
    (mut retry, mut tr): (Retry, Transaction),
    operation: &mut O,
) -> Result<Done<O::Output>, RetryError> {
    loop {
        let prepared = operation.prepare(&tr).await;
        tr = match prepared {
            Err(error) => retry.after_body(tr, error).await?,
            Ok(Step::End(value)) => return Ok(Done { value, attempts: retry.attempts }),
            Ok(Step::Wait(key)) => retry.wait(db, tr, &key).await?,
            Ok(Step::Again) => retry.again(db)?,
            Ok(Step::Commit) => match tr.commit().await {
                Ok(committed) => match operation.committed(&committed) {
                    Some(value) => return Ok(Done { value, attempts: retry.attempts }),
                    None => retry.go_on(committed)?,
                },
                Err(error) => {
                    operation.failed(*error);
                    retry.after_commit(error).await?
                }
            },
        };
    }
}
