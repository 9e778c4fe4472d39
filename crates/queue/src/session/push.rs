//! Pushing a group of payloads, exactly once.

use foundationdb::{Database, Transaction};

use super::{Session, unsettled::Effect};
use crate::MAX_PUSHES;
use crate::error::{PushError, QueueError};
use crate::item::Stamp;
use crate::ops::{push, token};
use crate::retry::{Attempts, Retry, RetryError};

/// A push that committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// How many items it added.
    pub items: usize,
    /// What it went through.
    pub attempts: Attempts,
    /// The stamp of its transaction. `None` if nothing was pushed, or the client could not tell.
    transaction: Option<[u8; 10]>,
}

impl Pushed {
    /// The stamps of the items, in the order of the payloads.
    pub fn stamps(&self) -> impl Iterator<Item = Stamp> + use<> {
        let items = if self.transaction.is_some() { self.items } else { 0 };
        let transaction = self.transaction.unwrap_or_default();
        // The push was refused if it had more items than user versions.
        (0..items).map(move |user| Stamp::new(transaction, user as u16))
    }
}

impl Session {
    /// Adds one item per payload, in this order, in one transaction: all or nothing, exactly once.
    ///
    /// Without payloads nothing happens. Use [`batches`](crate::batches) where they could be too many for a transaction.
    ///
    /// # Errors
    /// All but [`PushError::Retry`] mean that nothing was written; for that one see
    /// [`is_maybe_committed`](PushError::is_maybe_committed).
    pub async fn push(&mut self, db: &Database, payloads: &[impl AsRef<[u8]>]) -> Result<Pushed, PushError> {
        if payloads.len() > MAX_PUSHES {
            return Err(PushError::TooManyItems { limit: MAX_PUSHES });
        }
        payloads.iter().try_for_each(|payload| push::check_payload(payload.as_ref()))?;
        if payloads.is_empty() {
            return Ok(Pushed { items: 0, attempts: Attempts::default(), transaction: None });
        }
        self.unsettled.forget_pushes();
        self.push_until_done(db, payloads).await.map_err(|error| match error.code() {
            Some(TRANSACTION_TOO_LARGE) => PushError::TransactionTooLarge {
                items: payloads.len(),
                bytes: payloads.iter().map(|payload| payload.as_ref().len()).sum(),
            },
            _ => error.into(),
        })
    }

    async fn push_until_done(
        &mut self,
        db: &Database,
        payloads: &[impl AsRef<[u8]>],
    ) -> Result<Pushed, RetryError> {
        let (mut retry, mut tr) = Retry::begin(db, &self.policy)?;
        loop {
            let prepared = self.prepare_push(&tr, payloads).await;
            let done = |transaction, attempts| Pushed { items: payloads.len(), attempts, transaction };
            tr = match prepared {
                Err(error) => retry.after_body(tr, error).await?,
                Ok(Some(earlier)) => return Ok(done(Some(earlier), retry.attempts)),
                Ok(None) => {
                    let stamp = tr.get_versionstamp();
                    match tr.commit().await {
                        Err(error) => {
                            self.unsettled.failed(*error);
                            retry.after_commit(error).await?
                        }
                        Ok(_committed) => {
                            self.unsettled.committed();
                            let stamp = stamp.await.ok().and_then(|stamp| stamp[..].try_into().ok());
                            return Ok(done(stamp, retry.attempts));
                        }
                    }
                }
            };
        }
    }

    /// Writes the push into a transaction; or returns the stamp of an earlier attempt if that one committed.
    async fn prepare_push(
        &mut self,
        tr: &Transaction,
        payloads: &[impl AsRef<[u8]>],
    ) -> Result<Option<[u8; 10]>, QueueError> {
        if let Some(stamp) = self.settle(tr).await? {
            return Ok(Some(stamp));
        }
        let attempt = self.next_attempt();
        let space = self.queue.space();
        token::mark(space, tr, self.id, attempt)?;
        for (user, payload) in (0..=u16::MAX).zip(payloads) {
            push::put(space, tr, user, payload.as_ref());
        }
        push::count(space, tr, payloads.len());
        self.unsettled.note(attempt, Effect::Pushed);
        Ok(None)
    }

    /// Finds out what became of attempts with an unknown outcome, if there are any: the stamp of the push under way if
    /// it committed. Items of a take that committed go to `recovered`.
    pub(super) async fn settle(&mut self, tr: &Transaction) -> Result<Option<[u8; 10]>, QueueError> {
        if self.unsettled.is_empty() {
            return Ok(None);
        }
        let Some(token) = token::read(self.queue.space(), tr, self.id).await? else { return Ok(None) };
        match self.unsettled.settle(&token) {
            Some(Effect::Pushed) => Ok(Some(token.stamp)),
            Some(Effect::Took(items)) => {
                self.recovered.extend(items);
                self.asked.clear();
                Ok(None)
            }
            None => Ok(None),
        }
    }
}

/// The database's error for a transaction above its size limit.
const TRANSACTION_TOO_LARGE: i32 = 2101;
