//! Pushing a group of items, exactly once.

use foundationdb::{Database, FdbError, Transaction, TransactionCommitted};
use futures::future::{BoxFuture, ready, try_join};

use super::{Session, unresolved::Effect};
use crate::model::error::{PushError, QueueError};
use crate::model::new_item::{NewItem, PushOptions, check_payload};
use crate::model::pushed::{PendingPush, PushEffect, PushedItem};
use crate::model::retry_error::Attempts;
use crate::model::sizes::MAX_PUSHES;
use crate::model::stamp::Stamp;
use crate::ops::push::{Entry, Pusher};
use crate::ops::{kinds, went_back};
use crate::run::operation::{Operation, Step, complete_adding};
use crate::run::pause::FREEZE_KNOWN;
use crate::run::retry::Done;
use crate::run::token;
use crate::run::version::now;

/// A push that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// How many items it added.
    pub items: usize,
    /// Whether its operation had been done before, so that it added nothing.
    pub repeated: bool,
    /// The transactions of the push.
    pub attempts: Attempts,
    placed: PendingPush,
    /// The stamp of its transaction. `None` if nothing was written, or the client could not tell.
    transaction: Option<[u8; 10]>,
}

impl Pushed {
    fn new(placed: PendingPush, transaction: Option<[u8; 10]>, attempts: Attempts) -> Pushed {
        Pushed { items: placed.added(), repeated: placed.is_repetition(), attempts, placed, transaction }
    }

    /// The result for each item, in their order. If the operation had been done before, the items that it added then.
    pub fn each(&self) -> impl Iterator<Item = PushedItem> + use<'_> {
        self.placed.items(self.transaction)
    }

    /// The stamps of the items that are in a FIFO queue by this push, in their order; where their operation had been done before,
    /// by that.
    pub fn stamps(&self) -> impl Iterator<Item = Stamp> + use<'_> {
        let is_own = |effect| matches!(effect, PushEffect::Added | PushEffect::Repeated);
        let own = self.each().filter(move |item| is_own(item.effect));
        own.filter_map(|item| item.id?.stamp())
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
        items.iter().try_for_each(|item| item.check_new(self.queue.kind(), options.max_payload))?;
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
        let policy = self.policy;
        let mut push = Push { session: self, entries, operation, plan: None };
        let done = complete_adding(db, &policy, &mut push).await;
        let Done { value: (placed, stamp), attempts } = done.map_err(|error| match error.code() {
            Some(TRANSACTION_TOO_LARGE) => PushError::TransactionTooLarge {
                items: entries.len(),
                bytes: entries.iter().map(|entry| entry.payload.len()).sum(),
            },
            _ => error.into(),
        })?;
        let stamp = match stamp {
            Some(stamp) => stamp.await,
            None => None,
        };
        Ok(Pushed::new(placed, stamp, attempts))
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

/// The stamp of a transaction, once that is known. `None` if the client cannot tell.
type StampFuture = BoxFuture<'static, Option<[u8; 10]>>;

/// A push under way.
struct Push<'a> {
    session: &'a mut Session,
    entries: &'a [Entry<'a>],
    operation: Option<&'a [u8]>,
    /// The items that the attempt under way adds, and its stamp.
    plan: Option<(PendingPush, StampFuture)>,
}

impl Operation for Push<'_> {
    /// The items, and the stamp of the transaction that added them.
    type Output = (PendingPush, Option<StampFuture>);

    async fn prepare(&mut self, tr: &Transaction) -> Result<Step<Self::Output>, QueueError> {
        let session = &mut *self.session;
        if let Some((placed, stamp)) = session.resolve(tr).await? {
            return Ok(Step::End((placed, Some(Box::pin(ready(Some(stamp)))))));
        }
        if !session.knows_versions {
            let space = session.queue.space();
            try_join(went_back::check(space, tr), kinds::check_stamped(space, tr)).await?;
            session.knows_versions = true;
        }
        let version = now(tr).await?;
        let known = session.unfrozen.filter(|seen| (*seen..seen + FREEZE_KNOWN).contains(&version));
        // A migration may not notice it, unlike all that changes a counter.
        let replaces = self.entries.iter().any(Entry::replaces);
        let mut pusher = Pusher::alone(session.queue.space().clone(), tr)
            .with_rng(session.rng.split())
            .with_unfrozen(known.is_some() && !replaces)
            .with_turn(session.partitions.next_turn(&mut session.rng), session.partitions.is_plain(version));
        let placed = pusher.place(self.entries, self.operation).await?;
        if !placed.is_repetition() {
            session.partitions.pushed(&pusher, version);
            session.unfrozen = known.or(Some(version));
        }
        if placed.is_repetition() || (!placed.writes() && self.operation.is_none()) {
            // It has read everything at one version. No earlier attempt can commit after that: each would have had to find the
            // same keys free.
            return Ok(Step::End((placed, None)));
        }
        let attempt = session.next_attempt();
        token::mark(session.queue.space(), tr, session.id, attempt)?;
        session.unresolved.note(attempt, Effect::Pushed(placed.clone()));
        let stamp = tr.get_versionstamp();
        let stamp = async { stamp.await.ok().and_then(|stamp| stamp[..].try_into().ok()) };
        self.plan = Some((placed, Box::pin(stamp)));
        Ok(Step::Commit)
    }

    fn committed(&mut self, _: &TransactionCommitted) -> Option<Self::Output> {
        self.session.unresolved.committed();
        self.plan.take().map(|(placed, stamp)| (placed, Some(stamp)))
    }

    fn failed(&mut self, error: FdbError) {
        self.session.unresolved.failed(error);
    }
}

/// The database's error for a transaction above its size limit.
const TRANSACTION_TOO_LARGE: i32 = 2101;
