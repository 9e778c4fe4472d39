//! Whole transactions about dead letters: one letter, or all of a queue.

use std::collections::BTreeSet;

use foundationdb::{Database, Transaction};

use crate::error::QueueError;
use crate::id::ItemId;
use crate::ops::dead_page::{
    DeadLetterAction, DeadLetterPage, Which, free_keys, hides_key, is_dead, mark, page,
};
use crate::ops::token;
use crate::queue::Queue;
use crate::retry::{Retry, RetryError, RetryPolicy, maybe_committed, run};
use crate::session::SessionId;

/// How many letters that cannot be read are purged together, or a page more: the unique keys are looked through once for them.
const ONE_BY_ONE: usize = 10_000;

/// What became of all dead letters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AllDead {
    /// Those that were retried, or purged.
    pub moved: usize,
    /// Those left as they were, because another item is there under their unique key.
    pub refused: usize,
    /// Those left as they were, because this version cannot read them. They can be purged.
    pub unreadable: usize,
}

/// What an operation did with one dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadLetterEffect {
    /// It was retried, or purged.
    Moved,
    /// There is none of that id.
    Gone,
    /// It stays, because another item is there under its unique key.
    Refused,
}

impl Queue {
    /// Retries a dead letter, as [`Queue::dead_retry`] does, and sees it through, also under an unknown outcome.
    pub async fn retry_dead(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        id: &ItemId,
    ) -> Result<DeadLetterEffect, RetryError> {
        Ok(self.dead_page(db, policy, DeadLetterAction::Retry, Which::One(id), None).await?.into())
    }

    /// Deletes a dead letter for good, and sees it through.
    ///
    /// Nobody knows the unique key of an item whose side record cannot be read. So this looks through all unique keys of the queue for that of such
    /// an item, and frees it.
    pub async fn purge_dead(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        id: &ItemId,
    ) -> Result<DeadLetterEffect, RetryError> {
        let hides = run(db, policy, |tr| async move {
            let record = tr.get(&self.space().dead_key(id), true).await;
            (tr, record.map(|record| record.is_some_and(|record| hides_key(&record))).map_err(Into::into))
        });
        if hides.await?.value {
            self.free_keys(db, policy, &BTreeSet::from([id.clone()])).await?;
        }
        Ok(self.dead_page(db, policy, DeadLetterAction::Purge, Which::One(id), None).await?.into())
    }

    /// Retries all dead letters, as [`Queue::dead_retry`] does one; those that it would refuse stay, and those that cannot be read.
    ///
    /// In pages, a transaction each: what was done before an error stays done, and so does what others make of it meanwhile. Under an
    /// unknown outcome nothing is counted or made ready twice.
    pub async fn retry_all_dead(&self, db: &Database, policy: &RetryPolicy) -> Result<AllDead, RetryError> {
        self.all_dead(db, policy, DeadLetterAction::Retry).await
    }

    /// Deletes all dead letters for good; otherwise as [`Queue::retry_all_dead`].
    pub async fn purge_all_dead(&self, db: &Database, policy: &RetryPolicy) -> Result<AllDead, RetryError> {
        self.all_dead(db, policy, DeadLetterAction::Purge).await
    }

    async fn all_dead(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        action: DeadLetterAction,
    ) -> Result<AllDead, RetryError> {
        let (mut all, mut after, mut spent) = (AllDead::default(), None, None);
        let mut one_by_one = BTreeSet::new();
        // Each page begins behind the one before: a letter that dies again meanwhile is not taken up again.
        loop {
            let which = after.as_ref().map_or(Which::First, Which::Behind);
            let page = self.dead_page(db, policy, action, which, spent).await?;
            all.moved += page.moved;
            all.refused += page.refused;
            all.unreadable += page.unreadable;
            one_by_one.extend(page.one_by_one);
            if page.last.is_none() || one_by_one.len() >= ONE_BY_ONE {
                all.moved += self.purge_one_by_one(db, policy, &std::mem::take(&mut one_by_one)).await?;
            }
            if page.last.is_none() {
                return Ok(all);
            }
            (after, spent) = (page.last, page.mark);
        }
    }

    /// Purges letters that cannot be read; returns how many there were.
    async fn purge_one_by_one(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        ids: &BTreeSet<ItemId>,
    ) -> Result<usize, RetryError> {
        if ids.is_empty() {
            return Ok(0);
        }
        // First the keys: if this ends half-way, the letters are still there to be purged again.
        self.free_keys(db, policy, ids).await?;
        let mut purged = 0;
        for id in ids {
            purged += self.dead_page(db, policy, DeadLetterAction::Purge, Which::One(id), None).await?.moved;
        }
        Ok(purged)
    }

    /// Frees the unique keys of these items, which are dead letters.
    async fn free_keys(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        ids: &BTreeSet<ItemId>,
    ) -> Result<(), RetryError> {
        let mut from: Option<Vec<u8>> = None;
        loop {
            let begin = from.as_deref();
            let page = run(db, policy, |tr| async move {
                let next = free_keys(self.space(), &tr, begin, ids).await;
                (tr, next)
            });
            from = page.await?.value;
            if from.is_none() {
                return Ok(());
            }
        }
    }

    /// Sees one page through, and clears the mark of the one before.
    async fn dead_page(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        action: DeadLetterAction,
        which: Which<'_>,
        spent: Option<SessionId>,
    ) -> Result<DeadLetterPage, RetryError> {
        let (mut retry, mut tr) = Retry::begin(db, policy)?;
        // Attempts that may have committed; at most one did.
        let mut unsure: Vec<DeadLetterPage> = Vec::new();
        loop {
            let prepared = self.prepare_dead(&tr, action, which, &unsure, spent).await;
            tr = match prepared {
                Err(error) => retry.after_body(tr, error).await?,
                Ok(DeadLetterStep::Earlier(page)) => return Ok(page),
                Ok(DeadLetterStep::Commit(page)) => match tr.commit().await {
                    Ok(_committed) => return Ok(page),
                    Err(error) => {
                        if maybe_committed(*error) {
                            unsure.push(page);
                        }
                        retry.after_commit(error).await?
                    }
                },
            };
        }
    }

    async fn prepare_dead(
        &self,
        tr: &Transaction,
        action: DeadLetterAction,
        which: Which<'_>,
        unsure: &[DeadLetterPage],
        spent: Option<SessionId>,
    ) -> Result<DeadLetterStep, QueueError> {
        for earlier in unsure {
            if self.has_happened(tr, earlier).await? {
                return Ok(DeadLetterStep::Earlier(earlier.clone()));
            }
        }
        let mut page = page(self.space(), tr, action, which).await?;
        if !matches!(which, Which::One(_)) {
            mark(self.space(), tr, action, &mut page).await?;
        }
        if let Some(spent) = spent {
            token::clear(self.space(), tr, spent)?;
        }
        Ok(DeadLetterStep::Commit(page))
    }

    /// Whether an attempt of unknown outcome has committed; of one letter, whether it is gone, for any reason.
    async fn has_happened(&self, tr: &Transaction, page: &DeadLetterPage) -> Result<bool, QueueError> {
        match (page.mark, &page.first) {
            (Some(mark), _) => Ok(token::read(self.space(), tr, mark).await?.is_some()),
            (None, Some(first)) => Ok(!is_dead(self.space(), tr, first).await?),
            (None, None) => Ok(false),
        }
    }
}

impl From<DeadLetterPage> for DeadLetterEffect {
    fn from(page: DeadLetterPage) -> DeadLetterEffect {
        match page {
            DeadLetterPage { moved: 1.., .. } => DeadLetterEffect::Moved,
            DeadLetterPage { refused: 1.., .. } => DeadLetterEffect::Refused,
            DeadLetterPage { .. } => DeadLetterEffect::Gone,
        }
    }
}

/// How an attempt goes on.
enum DeadLetterStep {
    /// An earlier one had committed.
    Earlier(DeadLetterPage),
    Commit(DeadLetterPage),
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use super::*;
    use crate::meta::Failure;
    use crate::testing::on_database;
    use crate::{Approach, FetchOptions, ItemOutcome, Session};

    #[test]
    fn a_page_whose_first_letter_another_moved_is_not_taken_for_done() {
        on_database(async |db| {
            let (queue, policy) = (Queue::new(b"", b"q").unwrap(), RetryPolicy::default());
            let mut session = Session::new(queue.clone());
            session.push(db, &["a", "b", "c"]).await.unwrap();
            let k = NonZeroUsize::new(3).unwrap();
            let mut approach = Approach::Front;
            let mut take = FetchOptions::new(k, Duration::from_secs(30), &mut approach);
            let mut lease = session.fetch(db, &mut take).await.unwrap().lease.unwrap();
            let dead = ItemOutcome::Dead(Failure::new(1, 1, "no"));
            let all: Vec<_> = (0..3).map(|index| (index, dead.clone())).collect();
            lease.acknowledge(db, &policy, &all).await.unwrap();

            // An attempt whose outcome is unknown: it did not commit, but another purged the first letter.
            let lost = db.create_trx().unwrap();
            let step =
                queue.prepare_dead(&lost, DeadLetterAction::Retry, Which::First, &[], None).await.unwrap();
            let DeadLetterStep::Commit(page) = step else { panic!("nothing came before") };
            assert_eq!(page.moved, 3);
            queue.purge_dead(db, &policy, page.first.as_ref().unwrap()).await.unwrap();
            let tr = db.create_trx().unwrap();
            let unsure = [page];
            let step =
                queue.prepare_dead(&tr, DeadLetterAction::Retry, Which::First, &unsure, None).await.unwrap();
            let DeadLetterStep::Commit(page) = step else { panic!("it had not committed") };
            assert_eq!(page.moved, 2);
            tr.commit().await.unwrap();
            // And one that did.
            let (tr, unsure) = (db.create_trx().unwrap(), [page]);
            let step =
                queue.prepare_dead(&tr, DeadLetterAction::Retry, Which::First, &unsure, None).await.unwrap();
            assert!(matches!(step, DeadLetterStep::Earlier(page) if page.moved == 2));
        });
    }
}
