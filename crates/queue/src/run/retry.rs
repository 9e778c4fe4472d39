//! Running a transaction until it has committed.
//!
//! The back-off is FoundationDB's own (`on_error`). What is added: bounds, a count of what happened, and the
//! distinction that matters here, between a commit that failed and one whose outcome is unknown.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use foundationdb::options::TransactionOption;
use foundationdb::{Database, FdbError, Transaction, TransactionCommitError, TransactionCommitted};
use futures::future::{Either, select};

use crate::model::codes::{NOT_COMMITTED, OUT_OF_SPACE};
use crate::model::error::QueueError;
use crate::model::retry_error::{Attempts, RetryError};

/// When to give up. The default is never: an operation then ends in success or in an error that no retry helps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The most attempts; `None` is no limit, 0 counts as 1.
    pub max_attempts: Option<u32>,
    /// The longest time for all attempts together, kept by the database client; `None` is no limit. Rounded up to
    /// milliseconds. A staged take that asks to be served needs several transactions, each of which has this time.
    pub timeout: Option<Duration>,
}

/// The result of a transaction that has committed.
#[derive(Debug, Clone, Copy)]
pub struct Done<T> {
    /// The value of the attempt that committed.
    pub value: T,
    /// The attempts of the operation.
    pub attempts: Attempts,
}

/// Runs `body` in a transaction and commits it, again and again until that succeeds.
///
/// Only for bodies that may commit twice with the same result, such as reads, clears and plain sets: an attempt with an
/// unknown outcome is simply repeated. Pushes and pops are not among them; a [`Session`](crate::Session) does those.
///
/// The body gets the transaction and gives it back with its result:
///
/// ```no_run
/// # use kvqueue_queue::{Queue, QueueError, RetryError, RetryPolicy, retry};
/// # async fn example(db: &foundationdb::Database, queue: &Queue) -> Result<i64, RetryError> {
/// let policy = RetryPolicy::default();
/// let done = retry::run(db, &policy, |tr| async move {
///     let len = queue.len(&tr).await;
///     (tr, len)
/// });
/// Ok(done.await?.value)
/// # }
/// ```
// A body that borrowed the transaction would read better, but the compiler cannot yet show that its future is Send.
pub async fn run<T, F, R>(db: &Database, policy: &RetryPolicy, mut body: F) -> Result<Done<T>, RetryError>
where
    F: FnMut(Transaction) -> R,
    R: Future<Output = (Transaction, Result<T, QueueError>)>,
{
    let (retry, tr) = Retry::begin(db, policy)?;
    run_begun(retry, tr, &mut body).await
}

/// The same, for a body that only adds data. Where the disk of an embedded database is full, it is given up after about a second
/// ([`RetryError::is_out_of_space`]): repeating it makes no space.
pub async fn run_adding<T, F, R>(
    db: &Database,
    policy: &RetryPolicy,
    mut body: F,
) -> Result<Done<T>, RetryError>
where
    F: FnMut(Transaction) -> R,
    R: Future<Output = (Transaction, Result<T, QueueError>)>,
{
    let (retry, tr) = Retry::begin_adding(db, policy)?;
    run_begun(retry, tr, &mut body).await
}

async fn run_begun<T, F, R>(
    mut retry: Retry,
    mut tr: Transaction,
    body: &mut F,
) -> Result<Done<T>, RetryError>
where
    F: FnMut(Transaction) -> R,
    R: Future<Output = (Transaction, Result<T, QueueError>)>,
{
    loop {
        let (used, outcome) = body(tr).await;
        tr = match outcome {
            Ok(value) => match used.commit().await {
                Ok(_committed) => return Ok(Done { value, attempts: retry.attempts }),
                Err(error) => retry.after_commit(error).await?,
            },
            Err(error) => retry.after_body(used, error).await?,
        };
    }
}

/// The state between the attempts of one operation.
#[derive(Debug)]
pub(crate) struct Retry {
    max_attempts: Option<u32>,
    timeout: Option<Duration>,
    /// Grows patient with each wait.
    pacer: Option<Transaction>,
    /// How often in a row the database refused to store more, and how often it may.
    refusals: u32,
    max_refusals: Option<u32>,
    pub(crate) attempts: Attempts,
}

impl Retry {
    /// The transaction of the first attempt.
    pub(crate) fn begin(db: &Database, policy: &RetryPolicy) -> Result<(Retry, Transaction), RetryError> {
        let retry = Retry {
            max_attempts: policy.max_attempts,
            timeout: policy.timeout,
            pacer: None,
            refusals: 0,
            max_refusals: None,
            attempts: Attempts { begun: 1, ..Attempts::default() },
        };
        let tr = db.create_trx().map_err(|error| retry.give_up(error.into()))?;
        retry.limit(&tr)?;
        Ok((retry, tr))
    }

    /// The same for an operation that only adds data, which a full disk refuses until somebody does something about it.
    pub(crate) fn begin_adding(
        db: &Database,
        policy: &RetryPolicy,
    ) -> Result<(Retry, Transaction), RetryError> {
        let (retry, tr) = Retry::begin(db, policy)?;
        Ok((Retry { max_refusals: Some(MAX_REFUSALS), ..retry }, tr))
    }

    /// Bounds the time of a transaction's attempts.
    fn limit(&self, tr: &Transaction) -> Result<(), RetryError> {
        let Some(timeout) = self.timeout else { return Ok(()) };
        // The option survives on_error, and its clock runs from the first attempt. 0 would mean no limit.
        let millis = timeout.as_nanos().div_ceil(1_000_000).max(1);
        let millis = i32::try_from(millis).unwrap_or(i32::MAX);
        tr.set_option(TransactionOption::Timeout(millis)).map_err(|error| self.give_up(error.into()))
    }

    /// Ends with the error of the time limit when it passes before `tr` is used; without a limit it never ends.
    pub(crate) async fn expired(&self, tr: &Transaction) -> FdbError {
        if self.timeout.is_some() {
            // The future of a stamp ends with the transaction. To ask for one costs the database nothing.
            if let Err(error) = tr.get_versionstamp().await {
                return error;
            }
        }
        pending().await
    }

    /// The transaction that goes on with an operation after one that is a part of it. It is no new attempt; its time begins again.
    pub(crate) fn go_on(&mut self, committed: TransactionCommitted) -> Result<Transaction, RetryError> {
        self.max_attempts = self.max_attempts.map(|max| max.saturating_add(1));
        let tr = committed.reset();
        self.limit(&tr)?;
        self.attempts.begun += 1;
        Ok(tr)
    }

    /// The transaction that begins again with an operation once something else is out of its way. It is no new attempt.
    pub(crate) fn again(&mut self, db: &Database) -> Result<Transaction, RetryError> {
        let tr = db.create_trx().map_err(|error| self.give_up(error.into()))?;
        self.limit(&tr)?;
        self.max_attempts = self.max_attempts.map(|max| max.saturating_add(1));
        self.attempts.begun += 1;
        Ok(tr)
    }

    /// The transaction of the next attempt of an operation that has to wait for others: once `key` has changed from what `tr` saw,
    /// or after a while, by the database's back-off. `tr` may have read, and not written.
    pub(crate) async fn wait(
        &mut self,
        db: &Database,
        tr: Transaction,
        key: &[u8],
    ) -> Result<Transaction, RetryError> {
        let conflict = FdbError::from_code(NOT_COMMITTED);
        if !self.may_go_on() {
            return Err(self.give_up(conflict.into()));
        }
        let watch = tr.watch(key);
        let tr = match tr.commit().await {
            // To wait is no attempt, however often.
            Ok(committed) => self.go_on(committed)?,
            Err(error) => return self.after_commit(error).await,
        };
        let changed = async {
            // A watch that fails tells nothing; then it takes a while.
            if watch.await.is_err() {
                pending::<()>().await;
            }
        };
        let pacer = match self.pacer.take() {
            Some(pacer) => pacer,
            None => self.pacer(db)?,
        };
        match select(pin!(changed), pacer.on_error(conflict)).await {
            Either::Left(_) => {}
            Either::Right((pacer, _)) => {
                self.pacer = Some(pacer.map_err(|error| self.give_up(error.into()))?);
            }
        }
        Ok(tr)
    }

    /// A transaction whose back-off is what an operation waits for.
    fn pacer(&self, db: &Database) -> Result<Transaction, RetryError> {
        let refused = |error: FdbError| self.give_up(error.into());
        let pacer = db.create_trx().map_err(refused)?;
        self.limit(&pacer)?;
        pacer.set_option(TransactionOption::MaxRetryDelay(MAX_WAIT_MILLIS)).map_err(refused)?;
        Ok(pacer)
    }

    /// The transaction of the next attempt after a body failed.
    pub(crate) async fn after_body(
        &mut self,
        tr: Transaction,
        error: QueueError,
    ) -> Result<Transaction, RetryError> {
        match error.database() {
            Some(cause) if self.may_go_on() => {
                self.count(cause);
                let tr = tr.on_error(cause).await.map_err(|error| self.give_up(error.into()))?;
                self.attempts.begun += 1;
                Ok(tr)
            }
            _ => Err(self.give_up(error)),
        }
    }

    /// The transaction of the next attempt after a commit failed, or may have failed.
    pub(crate) async fn after_commit(
        &mut self,
        error: TransactionCommitError,
    ) -> Result<Transaction, RetryError> {
        let cause = *error;
        self.count(cause);
        if maybe_committed(cause) {
            self.attempts.unknown += 1;
        }
        if !self.may_go_on() {
            return Err(self.give_up(cause.into()));
        }
        let tr = error.on_error().await.map_err(|error| self.give_up(error.into()))?;
        self.attempts.begun += 1;
        Ok(tr)
    }

    fn may_go_on(&self) -> bool {
        self.max_refusals.is_none_or(|max| self.refusals < max)
            && self.max_attempts.is_none_or(|max| self.attempts.begun < max)
    }

    fn count(&mut self, cause: FdbError) {
        if cause.code() == NOT_COMMITTED {
            self.attempts.conflicts += 1;
        }
        self.refusals = if cause.code() == OUT_OF_SPACE { self.refusals + 1 } else { 0 };
    }

    pub(crate) fn give_up(&self, error: QueueError) -> RetryError {
        RetryError { error, attempts: self.attempts }
    }
}

/// The longest that an operation waits before it looks again whether others have done their part. The first wait is up to a tenth
/// of that, each following one up to twice as long as the one before.
const MAX_WAIT_MILLIS: i32 = 100;

/// How often in a row the database may refuse an operation that only adds data: with FoundationDB's back-off that takes a second. A
/// cluster has recovered by then; a full disk stays full until somebody does something. What frees space goes on trying.
const MAX_REFUSALS: u32 = 8;

/// Whether a transaction whose commit failed with this error may have committed.
///
/// Wider than the error predicate of that name, which covers 1021 and 1039 only: a commit that timed out, was cancelled
/// or lost its disk is as uncertain. Errors in the 2000s mean that the request was refused.
pub fn maybe_committed(error: FdbError) -> bool {
    !error.is_retryable_not_committed() && !(2_000..3_000).contains(&error.code())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::{
        Canceller, ItemId, Mover, NewItem, PushOptions, Queue, Session, SweepRules, Sweeper, TokenPlace,
        VersionHistory, sweep_tokens,
    };

    #[test]
    fn a_full_disk_ends_operations_that_only_add_data_and_no_others() {
        let begun = |max_refusals| Retry {
            max_attempts: None,
            timeout: None,
            pacer: None,
            refusals: 0,
            max_refusals,
            attempts: Attempts::default(),
        };
        let (mut push, mut other) = (begun(Some(MAX_REFUSALS)), begun(None));
        for refusals in 1..3 * MAX_REFUSALS {
            for retry in [&mut push, &mut other] {
                retry.count(FdbError::from_code(OUT_OF_SPACE));
            }
            assert_eq!((push.may_go_on(), other.may_go_on()), (refusals < MAX_REFUSALS, true));
        }
        push.count(FdbError::from_code(NOT_COMMITTED));
        assert!(push.may_go_on(), "only refusals in a row count");
    }

    /// Compiles only while operations can be spawned onto a multi-threaded runtime.
    #[expect(dead_code, reason = "it is compiled, not called")]
    fn operations_are_send(
        db: &Database,
        queue: &Queue,
        session: &mut Session,
        (sweeper, history, place): (&mut Sweeper, &VersionHistory, &mut TokenPlace),
        (mover, canceller, id): (&mut Mover, &mut Canceller, &ItemId),
    ) {
        fn is_send(_: impl Send) {}
        let policy = RetryPolicy::default();
        is_send(run(db, &policy, |tr| async move {
            let popped = queue.pop_k(&tr, NonZeroUsize::MIN).await;
            (tr, popped)
        }));
        is_send(session.push(db, &[b"payload"]));
        is_send(session.push_items(db, &[NewItem::new("payload")], &PushOptions::default()));
        is_send(session.take(db, NonZeroUsize::MIN));
        is_send(sweep_tokens(db, queue, history, place, std::time::UNIX_EPOCH, Duration::ZERO, &policy));
        is_send(queue.retry_all_dead(db, &policy, None));
        is_send(queue.delete_item(db, &policy, id));
        is_send(queue.cancel_item(db, &policy, id));
        is_send(canceller.page(db, &policy));
        is_send(queue.retry_item(db, &policy, id));
        is_send(mover.page(db, &policy, NonZeroUsize::MIN));
        is_send(sweeper.sweep(db, &|| std::time::UNIX_EPOCH, &SweepRules::default()));
    }

    #[test]
    fn only_a_refused_commit_is_known_not_to_have_happened() {
        for refused in [1020, 1007, 1009, 1038, 2004, 2101, 2103] {
            assert!(!maybe_committed(FdbError::from_code(refused)), "{refused}");
        }
        for unknown in [1021, 1039, 1025, 1031, 1510, 4100] {
            assert!(maybe_committed(FdbError::from_code(unknown)), "{unknown}");
        }
    }
}
