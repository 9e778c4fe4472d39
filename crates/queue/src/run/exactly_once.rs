//! Operations of one or many transactions, each of which commits exactly once.
//!
//! Each attempt writes its number to a token slot of the operation. After a commit of unknown outcome, the next attempt
//! reads the slot: if it has the number of an earlier attempt, that attempt has committed.
//!
//! An operation is refused if its queue is frozen before the commit. A migration could otherwise
//! leave the change behind at the source.

use std::sync::Arc;

use foundationdb::{Database, FdbError, Transaction, TransactionCommitted};

use crate::keys::Space;
use crate::model::error::QueueError;
use crate::model::retry_error::RetryError;
use crate::model::session_id::SessionId;
use crate::run::operation::{Operation, Step, complete, complete_adding};
use crate::run::pause::check_unfrozen;
use crate::run::retry::{RetryPolicy, maybe_committed, run};
use crate::run::token;

/// The identity of an operation, which has a token slot of its own at a queue.
#[derive(Debug)]
pub(crate) struct Marked {
    space: Arc<Space>,
    id: SessionId,
    /// The number of the last attempt.
    attempt: u64,
}

/// The body of a transaction.
pub(crate) trait Body: Send {
    /// Its result.
    type Output: Clone + Send;

    /// Fills the transaction of an attempt.
    fn fill(
        &mut self,
        tr: &Transaction,
    ) -> impl Future<Output = Result<Act<Self::Output>, QueueError>> + Send;
}

/// The result of a body.
#[derive(Debug, Clone)]
pub(crate) enum Act<T> {
    /// It has written: commit.
    Write(T),
    /// It has written nothing.
    Nothing(T),
}

impl Marked {
    pub(crate) fn new(space: &Arc<Space>, id: SessionId) -> Marked {
        Marked { space: Arc::clone(space), id, attempt: 0 }
    }

    /// Runs a body in transactions until one has committed. Returns the body's result in that attempt.
    pub(crate) async fn run<B: Body>(
        &mut self,
        db: &Database,
        policy: &RetryPolicy,
        body: B,
    ) -> Result<B::Output, RetryError> {
        let mut transaction = MarkedTransaction { marked: self, body, unsure: Vec::new() };
        complete(db, policy, &mut transaction).await.map(|done| done.value)
    }

    /// The same for a body that only adds data; see [`complete_adding`].
    pub(crate) async fn run_adding<B: Body>(
        &mut self,
        db: &Database,
        policy: &RetryPolicy,
        body: B,
    ) -> Result<B::Output, RetryError> {
        let mut transaction = MarkedTransaction { marked: self, body, unsure: Vec::new() };
        complete_adding(db, policy, &mut transaction).await.map(|done| done.value)
    }

    /// Clears the slot, if it was used.
    pub(crate) async fn close(&mut self, db: &Database, policy: &RetryPolicy) -> Result<(), RetryError> {
        if self.attempt == 0 {
            return Ok(());
        }
        let (space, id) = (&self.space, self.id);
        run(db, policy, |tr| async move {
            let cleared = token::clear(space, &tr, id);
            (tr, cleared)
        })
        .await
        .map(|_| ())
    }
}

struct MarkedTransaction<'a, B: Body> {
    marked: &'a mut Marked,
    body: B,
    /// The attempts that may have committed, the one under way last. At most one of them has.
    unsure: Vec<(u64, B::Output)>,
}

impl<B: Body> Operation for MarkedTransaction<'_, B> {
    type Output = B::Output;

    async fn prepare(&mut self, tr: &Transaction) -> Result<Step<B::Output>, QueueError> {
        let space = &self.marked.space;
        if !self.unsure.is_empty()
            && let Some(token) = token::read(space, tr, self.marked.id).await?
            && let Some((_, done)) = self.unsure.iter().find(|(attempt, _)| *attempt == token.attempt)
        {
            return Ok(Step::End(done.clone()));
        }
        match self.body.fill(tr).await? {
            Act::Nothing(found) => Ok(Step::End(found)),
            Act::Write(doing) => {
                check_unfrozen(space, tr).await?;
                self.marked.attempt += 1;
                token::mark(space, tr, self.marked.id, self.marked.attempt)?;
                self.unsure.push((self.marked.attempt, doing));
                Ok(Step::Commit)
            }
        }
    }

    fn committed(&mut self, _: &TransactionCommitted) -> Option<B::Output> {
        self.unsure.pop().map(|(_, done)| done)
    }

    fn failed(&mut self, error: FdbError) {
        if !maybe_committed(error) {
            self.unsure.pop();
        }
    }
}
