//! Pushing a group of items, exactly once.

use foundationdb::{Database, Transaction};

use super::{Session, unresolved::Effect};
use crate::MAX_PUSHES;
use crate::error::{PushError, QueueError};
use crate::item::Stamp;
use crate::new_item::{NewItem, PushOptions, check_payload};
use crate::ops::pause::FREEZE_KNOWN;
use crate::ops::push::{Entry, Pusher};
use crate::ops::version::now;
use crate::ops::{token, went_back};
use crate::pushed::{PendingPush, PushEffect, PushedItem};
use crate::retry::{Attempts, Retry, RetryError};

/// A push that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// How many items it added.
    pub items: usize,
    /// Whether its operation had been done before, so that it added nothing.
    pub repeated: bool,
    /// What it went through.
    pub attempts: Attempts,
    placed: PendingPush,
    /// The stamp of its transaction. `None` if nothing was written, or the client could not tell.
    transaction: Option<[u8; 10]>,
}

impl Pushed {
    fn new(placed: PendingPush, transaction: Option<[u8; 10]>, attempts: Attempts) -> Pushed {
        Pushed { items: placed.added(), repeated: placed.is_repetition(), attempts, placed, transaction }
    }

    /// What came of each item, in their order. Of an operation that had been done before, the items that it added then.
    pub fn each(&self) -> impl Iterator<Item = PushedItem> + use<'_> {
        self.placed.items(self.transaction)
    }

    /// The stamps of the items that are in a FIFO queue by this push, in their order; where their operation had been done before,
    /// by that.
    pub fn stamps(&self) -> impl Iterator<Item = Stamp> + use<'_> {
        let own = self.each().filter(|item| item.effect != PushEffect::Duplicate);
        own.filter_map(|item| item.id?.stamp())
    }
}

/// How an attempt goes on.
enum PushStep {
    /// An earlier one had committed, with this stamp.
    Happened(PendingPush, [u8; 10]),
    /// There is nothing to write.
    Nothing(PendingPush),
    /// The transaction does this.
    Adds(PendingPush),
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
        let options = PushOptions::default();
        let entries = payloads.iter().map(|payload| Entry::from(payload.as_ref()));
        let entries: Vec<Entry<'_>> = entries.collect();
        entries.iter().try_for_each(|entry| check_payload(entry.payload.len(), options.max_payload))?;
        self.push_entries(db, &entries, &options).await
    }

    /// As [`Session::push`], with what goes in addition to the payloads. [`Pushed`] tells what came of each item.
    ///
    /// Use [`batches_by`](crate::batches_by) where they could be too many for a transaction; but what is pushed under an operation
    /// id has to fit into one. Without items nothing happens, and the id is not used.
    pub async fn push_items(
        &mut self,
        db: &Database,
        items: &[NewItem],
        options: &PushOptions,
    ) -> Result<Pushed, PushError> {
        options.check()?;
        items.iter().try_for_each(|item| item.check(self.queue.kind(), options.max_payload))?;
        let entries: Vec<Entry<'_>> = items.iter().map(Entry::from).collect();
        self.push_entries(db, &entries, options).await
    }

    async fn push_entries(
        &mut self,
        db: &Database,
        entries: &[Entry<'_>],
        options: &PushOptions,
    ) -> Result<Pushed, PushError> {
        if entries.len() > MAX_PUSHES {
            return Err(PushError::TooManyItems { limit: MAX_PUSHES });
        }
        if entries.is_empty() {
            return Ok(Pushed::new(PendingPush::default(), None, Attempts::default()));
        }
        self.unresolved.forget_pushes();
        let operation = options.idempotency_key.as_deref();
        self.push_until_done(db, entries, operation).await.map_err(|error| match error.code() {
            Some(TRANSACTION_TOO_LARGE) => PushError::TransactionTooLarge {
                items: entries.len(),
                bytes: entries.iter().map(|entry| entry.payload.len()).sum(),
            },
            _ => error.into(),
        })
    }

    async fn push_until_done(
        &mut self,
        db: &Database,
        entries: &[Entry<'_>],
        operation: Option<&[u8]>,
    ) -> Result<Pushed, RetryError> {
        let (mut retry, mut tr) = Retry::begin_adding(db, &self.policy)?;
        loop {
            let prepared = self.prepare_push(&tr, entries, operation).await;
            tr = match prepared {
                Err(error) => retry.after_body(tr, error).await?,
                Ok(PushStep::Happened(placed, stamp)) => {
                    return Ok(Pushed::new(placed, Some(stamp), retry.attempts));
                }
                // What it read it read at one moment, and no attempt before it can commit after that: each would have had to
                // find the same keys free.
                Ok(PushStep::Nothing(placed)) => return Ok(Pushed::new(placed, None, retry.attempts)),
                Ok(PushStep::Adds(placed)) => {
                    let stamp = tr.get_versionstamp();
                    match tr.commit().await {
                        Err(error) => {
                            self.unresolved.failed(*error);
                            retry.after_commit(error).await?
                        }
                        Ok(_committed) => {
                            self.unresolved.committed();
                            let stamp = stamp.await.ok().and_then(|stamp| stamp[..].try_into().ok());
                            return Ok(Pushed::new(placed, stamp, retry.attempts));
                        }
                    }
                }
            };
        }
    }

    /// Writes the push into a transaction, unless an earlier attempt has committed.
    async fn prepare_push(
        &mut self,
        tr: &Transaction,
        entries: &[Entry<'_>],
        operation: Option<&[u8]>,
    ) -> Result<PushStep, QueueError> {
        if let Some((placed, stamp)) = self.resolve(tr).await? {
            return Ok(PushStep::Happened(placed, stamp));
        }
        if !self.knows_versions {
            went_back::check(self.queue.space(), tr).await?;
            self.knows_versions = true;
        }
        let version = now(tr).await?;
        let known = self.unfrozen.filter(|seen| (*seen..seen + FREEZE_KNOWN).contains(&version));
        let mut pusher = Pusher::alone(self.queue.space().clone(), tr)
            .with_rng(self.rng.split())
            .with_unfrozen(known.is_some());
        let placed = pusher.place(entries, operation).await?;
        if !placed.is_repetition() {
            self.unfrozen = known.or(Some(version));
        }
        if placed.is_repetition() || (placed.added() == 0 && operation.is_none()) {
            return Ok(PushStep::Nothing(placed));
        }
        let attempt = self.next_attempt();
        token::mark(self.queue.space(), tr, self.id, attempt)?;
        self.unresolved.note(attempt, Effect::Pushed(placed.clone()));
        Ok(PushStep::Adds(placed))
    }

    /// Finds out what became of attempts with an unknown outcome, if there are any: what the push under way did, and its stamp, if
    /// it committed. Items of a take that committed go to `recovered`.
    pub(super) async fn resolve(
        &mut self,
        tr: &Transaction,
    ) -> Result<Option<(PendingPush, [u8; 10])>, QueueError> {
        if self.unresolved.is_empty() {
            return Ok(None);
        }
        let Some(token) = token::read(self.queue.space(), tr, self.id).await? else { return Ok(None) };
        match self.unresolved.resolve(&token) {
            Some(Effect::Pushed(placed)) => Ok(Some((placed, token.stamp))),
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
