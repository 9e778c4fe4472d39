//! A long operation in many transactions, each of which is done once, also where its outcome is unknown.

use foundationdb::{Database, Transaction};

use crate::error::QueueError;
use crate::ops::token;
use crate::queue::Queue;
use crate::retry::{Retry, RetryError, RetryPolicy, maybe_committed, run};
use crate::session::SessionId;

/// The operation's identity, with a token slot of its own at a queue.
#[derive(Debug)]
pub(crate) struct Marked {
    queue: Queue,
    id: SessionId,
    /// The number of the last attempt.
    attempt: u64,
}

/// What a transaction is about to do.
#[derive(Debug, Clone)]
pub(crate) enum Act<T> {
    /// It writes.
    Write(T),
    /// There is nothing to write.
    Nothing(T),
}

/// How an attempt goes on.
enum MarkedStep<T> {
    Commit(T),
    /// There is nothing to commit, or an earlier attempt had committed.
    Over(T),
}

impl Marked {
    pub(crate) fn new(queue: Queue, id: SessionId) -> Marked {
        Marked { queue, id, attempt: 0 }
    }

    /// Sees one transaction through, and returns what the attempt that committed was about to do.
    pub(crate) async fn run<T: Clone>(
        &mut self,
        db: &Database,
        policy: &RetryPolicy,
        mut body: impl AsyncFnMut(&Transaction) -> Result<Act<T>, QueueError>,
    ) -> Result<T, RetryError> {
        let (mut retry, mut tr) = Retry::begin(db, policy)?;
        // Attempts that may have committed; at most one did.
        let mut unsure: Vec<(u64, T)> = Vec::new();
        loop {
            let prepared = self.prepare(&tr, &mut body, &unsure).await;
            tr = match prepared {
                Err(error) => retry.after_body(tr, error).await?,
                Ok(MarkedStep::Over(done)) => return Ok(done),
                Ok(MarkedStep::Commit(doing)) => match tr.commit().await {
                    Ok(_committed) => return Ok(doing),
                    Err(error) => {
                        if maybe_committed(*error) {
                            unsure.push((self.attempt, doing));
                        }
                        retry.after_commit(error).await?
                    }
                },
            };
        }
    }

    async fn prepare<T: Clone>(
        &mut self,
        tr: &Transaction,
        body: &mut impl AsyncFnMut(&Transaction) -> Result<Act<T>, QueueError>,
        unsure: &[(u64, T)],
    ) -> Result<MarkedStep<T>, QueueError> {
        let space = self.queue.space();
        if !unsure.is_empty()
            && let Some(token) = token::read(space, tr, self.id).await?
            && let Some((_, done)) = unsure.iter().find(|(attempt, _)| *attempt == token.attempt)
        {
            return Ok(MarkedStep::Over(done.clone()));
        }
        match body(tr).await? {
            Act::Nothing(found) => Ok(MarkedStep::Over(found)),
            Act::Write(doing) => {
                self.attempt += 1;
                token::mark(space, tr, self.id, self.attempt)?;
                Ok(MarkedStep::Commit(doing))
            }
        }
    }

    /// Clears the slot, if it was used.
    pub(crate) async fn close(&mut self, db: &Database, policy: &RetryPolicy) -> Result<(), RetryError> {
        if self.attempt == 0 {
            return Ok(());
        }
        let (space, id) = (self.queue.space(), self.id);
        run(db, policy, |tr| async move {
            let cleared = token::clear(space, &tr, id);
            (tr, cleared)
        })
        .await
        .map(|_| ())
    }
}
