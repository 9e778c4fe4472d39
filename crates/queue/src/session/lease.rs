//! Taking items on a lease.

use std::num::NonZeroUsize;

use foundationdb::{Database, Transaction};

use super::Session;
use crate::approach::{Approach, Place};
use crate::error::{QueueError, TakeError};
use crate::item::Item;
use crate::keys::leases::{Held, LeaseId};
use crate::lease::Lease;
use crate::ops::claim::claim;
use crate::ops::scan::Row;
use crate::ops::settle::now;
use crate::ops::{lease, scan};
use crate::retry::{Attempts, Retry, maybe_committed};
use crate::watch::Watch;

/// How many attempts of unknown outcome are remembered; each is looked for by the attempt that follows it.
const MAX_UNSURE: usize = 64;

/// What a take is to do.
#[derive(Debug)]
pub struct Take<'a> {
    /// The most items.
    pub k: NonZeroUsize,
    /// How long nobody takes them away, in database versions: 10^6 a second.
    pub length: u64,
    /// Where to look for them.
    pub approach: &'a mut Approach,
    /// Whether to make a watch where there is nothing.
    pub watch: bool,
}

/// What a take on a lease came to.
#[derive(Debug)]
pub struct Leased {
    /// The items; `None` if there were none.
    pub lease: Option<Lease>,
    /// Resolves after the next push. Only where there were no items and the take asked for a watch.
    pub watch: Option<Watch>,
    /// Whether an earlier attempt turned out to have taken them. Their deadline may be near: extend the lease first.
    pub recovered: bool,
    /// What it went through.
    pub attempts: Attempts,
}

/// An attempt that may have committed.
#[derive(Debug)]
pub(super) struct Unsure {
    id: LeaseId,
    items: Vec<Item>,
    held: Vec<Held>,
}

/// How an attempt goes on.
enum Step {
    /// An earlier one had committed: this is its lease.
    Found(Lease),
    /// There is nothing to take.
    Empty(Option<Watch>),
    /// The transaction takes what is last in `unsure`.
    Takes(Lease),
}

impl Session {
    /// Takes up to `take.k` items on a lease.
    ///
    /// A take that fails, or whose future is dropped, leaves nothing behind that does not end by itself: if it had taken items,
    /// the session's next take returns them, and without one their lease runs out.
    pub async fn lease(&mut self, db: &Database, take: &mut Take<'_>) -> Result<Leased, TakeError> {
        let (mut retry, mut tr) = Retry::begin(db, &self.policy)?;
        loop {
            let prepared = self.prepare_lease(&tr, take).await;
            let attempts = retry.attempts;
            let leased = |lease, recovered| Leased { lease: Some(lease), watch: None, recovered, attempts };
            tr = match prepared {
                Err(error) => retry.after_body(tr, error).await?,
                Ok(Step::Found(lease)) => return Ok(leased(lease, true)),
                Ok(Step::Empty(watch)) => match tr.commit().await {
                    Err(error) => retry.after_commit(error).await?,
                    Ok(_committed) => return Ok(Leased { lease: None, watch, recovered: false, attempts }),
                },
                Ok(Step::Takes(lease)) => match tr.commit().await {
                    Err(error) => {
                        if !maybe_committed(*error) {
                            self.unsure.pop_back();
                            take.approach.conflicted();
                        }
                        retry.after_commit(error).await?
                    }
                    Ok(_committed) => {
                        // Those before it did not commit, and will not.
                        self.unsure.clear();
                        if let Some(last) = lease.items().last() {
                            take.approach.committed(&last.id);
                        }
                        return Ok(leased(lease, false));
                    }
                },
            };
        }
    }

    /// The lease of a take that failed or was dropped, if it turns out to have taken items; it may have been taken away since, which
    /// its next change tells. After this no earlier take of the session commits any more: for a session that is not to take again.
    pub async fn recover(&mut self, db: &Database) -> Result<Option<Lease>, TakeError> {
        if self.unsure.is_empty() {
            return Ok(None);
        }
        let (mut retry, mut tr) = Retry::begin(db, &self.policy)?;
        loop {
            let prepared = match self.find_unsure(&tr).await {
                Ok(Some(lease)) => return Ok(Some(lease)),
                Ok(None) => lease::fence(self.queue.space(), &tr, self.id),
                Err(error) => Err(error),
            };
            tr = match prepared {
                Err(error) => retry.after_body(tr, error).await?,
                Ok(()) => match tr.commit().await {
                    Ok(_committed) => {
                        self.unsure.clear();
                        return Ok(None);
                    }
                    Err(error) => retry.after_commit(error).await?,
                },
            };
        }
    }

    async fn prepare_lease(&mut self, tr: &Transaction, take: &mut Take<'_>) -> Result<Step, QueueError> {
        let space = self.queue.space().clone();
        if let Some(lease) = self.find_unsure(tr).await? {
            return Ok(Step::Found(lease));
        }
        let rows = self.choose(tr, take).await?;
        if rows.is_empty() {
            return Ok(Step::Empty(take.watch.then(|| self.queue.watch(tr))));
        }
        let items = scan::items(&space, tr, &rows).await?;
        let held = lease::hold(rows);
        let id = LeaseId { session: self.id, number: self.next_attempt() };
        let deadline = now(tr).await?.saturating_add(take.length);
        let header = lease::put(&space, tr, id, (deadline, take.length), &held);
        lease::fence(&space, tr, self.id)?;
        if self.unsure.len() == MAX_UNSURE {
            self.unsure.pop_front();
        }
        self.unsure.push_back(Unsure { id, items: items.clone(), held: held.clone() });
        Ok(Step::Takes(Lease::new(space, id, &header, items, held)))
    }

    /// Removes the items that the approach chooses.
    pub(super) async fn choose(
        &mut self,
        tr: &Transaction,
        take: &mut Take<'_>,
    ) -> Result<Vec<Row>, QueueError> {
        let space = self.queue.space();
        let place = take.approach.place(take.k.get(), &mut self.rng);
        let rows = claim(space, tr, take.k, &place).await?;
        if rows.is_empty() && !place.is_front() {
            take.approach.short();
            return claim(space, tr, take.k, &Place::default()).await;
        }
        Ok(rows)
    }

    /// The lease of an attempt of unknown outcome, if it committed and was not taken away since.
    async fn find_unsure(&mut self, tr: &Transaction) -> Result<Option<Lease>, QueueError> {
        for at in 0..self.unsure.len() {
            let id = self.unsure[at].id;
            if let Some(header) = lease::header(self.queue.space(), tr, id).await? {
                let Some(Unsure { id, items, held }) = self.unsure.remove(at) else { continue };
                self.unsure.clear();
                return Ok(Some(Lease::new(self.queue.space().clone(), id, &header, items, held)));
            }
        }
        Ok(None)
    }
}
