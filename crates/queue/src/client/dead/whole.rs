//! Retrying and purging dead letters in transactions of their own: one letter, or all of a queue.

use std::collections::BTreeSet;
use std::time::Instant;

use foundationdb::{Database, Transaction};

use crate::client::queue::Queue;
use crate::model::dead::AllDead;
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::item_change::ItemChange;
use crate::model::retry_error::RetryError;
use crate::model::session_id::SessionId;
use crate::model::view::ItemState;
use crate::ops::dead_page::{DeadLetterAction, DeadLetterPage, Which, free_keys, hides_key, page};
use crate::run::exactly_once::{Act, Body, Marked};
use crate::run::pause::check_unfrozen;
use crate::run::retry::{RetryPolicy, run};

/// About how many unreadable letters are purged together. All unique keys of the queue are searched once for them.
const ONE_BY_ONE: usize = 10_000;

impl Queue {
    /// Retries a dead letter as [`Queue::dead_retry`] does, in a transaction of its own, exactly once.
    pub async fn retry_dead(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        id: &ItemId,
    ) -> Result<ItemChange, RetryError> {
        self.one_dead(db, policy, DeadLetterAction::Retry, id).await
    }

    /// Deletes a dead letter for good, exactly once.
    ///
    /// If the letter's record cannot be read, its unique key is not known. Then this searches all unique keys of the queue for
    /// the letter's, and frees it.
    pub async fn purge_dead(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        id: &ItemId,
    ) -> Result<ItemChange, RetryError> {
        let hides = run(db, policy, |tr| async move {
            let record = tr.get(&self.space().dead_key(id), true).await;
            (tr, record.map(|record| record.is_some_and(|record| hides_key(&record))).map_err(Into::into))
        });
        if hides.await?.value {
            self.free_keys(db, policy, &BTreeSet::from([id.clone()])).await?;
        }
        self.one_dead(db, policy, DeadLetterAction::Purge, id).await
    }

    /// Retries all dead letters, as [`Queue::dead_retry`] does one. Letters that cannot be retried stay.
    ///
    /// It works in pages of one transaction each. After an error, the pages before stay done. If
    /// the outcome of a commit is unknown, it finds it out: no letter is counted or retried twice.
    /// After `until` no further page begins; `None`: without a limit.
    pub async fn retry_all_dead(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        until: Option<Instant>,
    ) -> Result<AllDead, RetryError> {
        self.all_dead(db, policy, DeadLetterAction::Retry, until).await
    }

    /// Deletes all dead letters for good; otherwise as [`Queue::retry_all_dead`].
    pub async fn purge_all_dead(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        until: Option<Instant>,
    ) -> Result<AllDead, RetryError> {
        self.all_dead(db, policy, DeadLetterAction::Purge, until).await
    }

    async fn all_dead(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        action: DeadLetterAction,
        until: Option<Instant>,
    ) -> Result<AllDead, RetryError> {
        let (mut all, mut after) = (AllDead::default(), None);
        let mut one_by_one = BTreeSet::new();
        let mut marked = Marked::new(self.space(), SessionId::new());
        // Each page begins behind the one before, so a letter that dies again meanwhile is not retried again.
        loop {
            let page = self.dead_page(&mut marked, db, policy, action, Which::After(after.as_ref())).await?;
            all.moved += page.moved;
            all.refused += page.refused;
            all.unreadable += page.unreadable;
            one_by_one.extend(page.one_by_one);
            all.more = page.last.is_some() && is_over(until);
            let is_last = page.last.is_none() || all.more;
            if is_last || one_by_one.len() >= ONE_BY_ONE {
                let ids = std::mem::take(&mut one_by_one);
                let (purged, more) = self.purge_one_by_one(&mut marked, db, policy, &ids, until).await?;
                all.moved += purged;
                all.more |= more;
            }
            after = page.last;
            if is_last || all.more {
                // The letters are moved, even if this fails: sweepers clear the mark later.
                let _ = marked.close(db, policy).await;
                return Ok(all);
            }
        }
    }

    /// Purges letters that cannot be read. Returns how many it purged, and whether `until` passed
    /// before the last one.
    async fn purge_one_by_one(
        &self,
        marked: &mut Marked,
        db: &Database,
        policy: &RetryPolicy,
        ids: &BTreeSet<ItemId>,
        until: Option<Instant>,
    ) -> Result<(usize, bool), RetryError> {
        if ids.is_empty() {
            return Ok((0, false));
        }
        // First the keys: if this fails half-way, the letters can be purged again.
        self.free_keys(db, policy, ids).await?;
        let mut purged = 0;
        for (done, id) in ids.iter().enumerate() {
            // One is purged in any case, so that calls that are repeated come to an end.
            if done > 0 && is_over(until) {
                return Ok((purged, true));
            }
            purged +=
                self.dead_page(marked, db, policy, DeadLetterAction::Purge, Which::One(id)).await?.moved;
        }
        Ok((purged, false))
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
                let next = async {
                    check_unfrozen(self.space(), &tr).await?;
                    free_keys(self.space(), &tr, begin, ids).await
                };
                let next = next.await;
                (tr, next)
            });
            from = page.await?.value;
            if from.is_none() {
                return Ok(());
            }
        }
    }

    /// Retries or purges one letter.
    async fn one_dead(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        action: DeadLetterAction,
        id: &ItemId,
    ) -> Result<ItemChange, RetryError> {
        let mut marked = Marked::new(self.space(), SessionId::new());
        let page = self.dead_page(&mut marked, db, policy, action, Which::One(id)).await?;
        // The letter is moved, even if this fails: sweepers clear the mark later.
        let _ = marked.close(db, policy).await;
        Ok(change(page))
    }

    /// Retries or purges a page of letters in one transaction, exactly once.
    async fn dead_page(
        &self,
        marked: &mut Marked,
        db: &Database,
        policy: &RetryPolicy,
        action: DeadLetterAction,
        which: Which<'_>,
    ) -> Result<DeadLetterPage, RetryError> {
        marked.run(db, policy, PageOf { queue: self, action, which }).await
    }
}

fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

/// The transaction of one page.
struct PageOf<'a> {
    queue: &'a Queue,
    action: DeadLetterAction,
    which: Which<'a>,
}

impl Body for PageOf<'_> {
    type Output = DeadLetterPage;

    async fn fill(&mut self, tr: &Transaction) -> Result<Act<DeadLetterPage>, QueueError> {
        let page = page(self.queue.space(), tr, self.action, self.which).await?;
        Ok(if page.moved == 0 { Act::Nothing(page) } else { Act::Write(page) })
    }
}

/// The result for one letter.
fn change(page: DeadLetterPage) -> ItemChange {
    match page {
        DeadLetterPage { moved: 1.., .. } => ItemChange::Done(ItemState::Dead),
        DeadLetterPage { holder: Some(holder), .. } => ItemChange::UniqueTaken(holder),
        DeadLetterPage { .. } => ItemChange::Gone,
    }
}
