//! Whole transactions about dead letters: one letter, or all of a queue.

use foundationdb::{Database, Transaction};

use crate::error::QueueError;
use crate::id::ItemId;
use crate::ops::dead_page::{Fate, Page, Which, is_dead, page};
use crate::queue::Queue;
use crate::retry::{Retry, RetryError, RetryPolicy, maybe_committed};

/// What became of all dead letters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AllDead {
    /// Those that were retried, or purged.
    pub moved: usize,
    /// Those left as they were, because another item is there under their unique key.
    pub refused: usize,
}

/// What became of one dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadFate {
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
    ) -> Result<DeadFate, RetryError> {
        Ok(self.dead_page(db, policy, Fate::Retry, Which::One(id)).await?.into())
    }

    /// Deletes a dead letter for good, and sees it through.
    pub async fn purge_dead(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        id: &ItemId,
    ) -> Result<DeadFate, RetryError> {
        Ok(self.dead_page(db, policy, Fate::Purge, Which::One(id)).await?.into())
    }

    /// Retries all dead letters, as [`Queue::dead_retry`] does one; those that it would refuse stay.
    ///
    /// In pages, a transaction each: what was done before an error stays done, and so does what others make of it meanwhile. Under an
    /// unknown outcome nothing is counted or made ready twice.
    pub async fn retry_all_dead(&self, db: &Database, policy: &RetryPolicy) -> Result<AllDead, RetryError> {
        self.all_dead(db, policy, Fate::Retry).await
    }

    /// Deletes all dead letters for good; otherwise as [`Queue::retry_all_dead`].
    pub async fn purge_all_dead(&self, db: &Database, policy: &RetryPolicy) -> Result<AllDead, RetryError> {
        self.all_dead(db, policy, Fate::Purge).await
    }

    async fn all_dead(&self, db: &Database, policy: &RetryPolicy, fate: Fate) -> Result<AllDead, RetryError> {
        let (mut all, mut after) = (AllDead::default(), None);
        // Each page begins behind the one before: a letter that dies again meanwhile is not taken up again.
        loop {
            let which = after.as_ref().map_or(Which::First, Which::Behind);
            let page = self.dead_page(db, policy, fate, which).await?;
            all.moved += page.moved;
            all.refused += page.refused;
            if page.last.is_none() {
                return Ok(all);
            }
            after = page.last;
        }
    }

    /// Sees one page through.
    async fn dead_page(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        fate: Fate,
        which: Which<'_>,
    ) -> Result<Page, RetryError> {
        let (mut retry, mut tr) = Retry::begin(db, policy)?;
        let mut unsure: Option<Page> = None;
        loop {
            let prepared = self.prepare_dead(&tr, fate, which, unsure.as_ref()).await;
            tr = match prepared {
                Err(error) => retry.after_body(tr, error).await?,
                Ok(Step::Earlier(page)) => return Ok(page),
                Ok(Step::Commit(page)) => match tr.commit().await {
                    Ok(_committed) => return Ok(page),
                    Err(error) => {
                        if maybe_committed(*error) {
                            unsure = Some(page);
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
        fate: Fate,
        which: Which<'_>,
        unsure: Option<&Page>,
    ) -> Result<Step, QueueError> {
        if let Some(earlier) = unsure
            && let Some(first) = &earlier.first
            && !is_dead(self.space(), tr, first).await?
        {
            return Ok(Step::Earlier(earlier.clone()));
        }
        Ok(Step::Commit(page(self.space(), tr, fate, which).await?))
    }
}

impl From<Page> for DeadFate {
    fn from(page: Page) -> DeadFate {
        match page {
            Page { moved: 1.., .. } => DeadFate::Moved,
            Page { refused: 1.., .. } => DeadFate::Refused,
            Page { .. } => DeadFate::Gone,
        }
    }
}

/// How an attempt goes on.
enum Step {
    /// An earlier one had committed: its letters are gone.
    Earlier(Page),
    Commit(Page),
}
