//! A batch in hand: its holder may settle its items, until the lease is lost.

use std::sync::Arc;

use foundationdb::{Database, Transaction};

use crate::error::{LeaseError, QueueError};
use crate::item::Item;
use crate::keys::Space;
use crate::keys::leases::{Header, Held, LeaseId, Settled};
use crate::meta::{Failure, Millis};
use crate::ops;
use crate::ops::settle::{now, settle};
use crate::retry::{Retry, RetryPolicy};

/// What becomes of an item of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// It is finished, for ever.
    Done,
    /// Its attempt failed; it becomes ready again at `due`, or at once.
    Retry {
        /// When, in milliseconds since 1970; `None`: now.
        due: Option<Millis>,
        /// What went wrong.
        failure: Failure,
    },
    /// It is given back as it was, at its place, and the attempt does not count.
    Release,
    /// It becomes a dead letter, for this reason.
    Dead(Failure),
}

/// Items taken and not yet settled, and the right to settle them.
///
/// The right lasts until a sweeper finds the deadline past, which [`extend`](Lease::extend) moves on. The lease's key is the
/// fencing token: whoever finds it gone has lost the lease, and cannot settle or extend any more. Dropping a lease leaves its items
/// to run out.
#[derive(Debug)]
pub struct Lease {
    space: Arc<Space>,
    id: LeaseId,
    deadline: u64,
    settled: Settled,
    items: Vec<Item>,
    held: Vec<Held>,
}

impl Lease {
    pub(crate) fn new(
        space: Arc<Space>,
        id: LeaseId,
        header: &Header,
        items: Vec<Item>,
        held: Vec<Held>,
    ) -> Lease {
        Lease { space, id, deadline: header.deadline, settled: header.settled.clone(), items, held }
    }

    /// Which lease it is.
    pub fn id(&self) -> LeaseId {
        self.id
    }

    /// The items that were taken, in order, settled ones included.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// The indexes of the items that are not settled.
    pub fn open(&self) -> impl Iterator<Item = usize> {
        self.settled.open()
    }

    /// Whether all items are settled, so that there is nothing left to hold.
    pub fn is_settled(&self) -> bool {
        self.settled.open().next().is_none()
    }

    /// The database version until which nobody takes the lease away.
    pub fn deadline(&self) -> u64 {
        self.deadline
    }

    /// Moves the deadline on, by the lease's length from now.
    ///
    /// # Errors
    /// [`LeaseError::Lost`] if the lease was taken away.
    pub async fn extend(&mut self, db: &Database, policy: &RetryPolicy) -> Result<(), LeaseError> {
        self.change(db, policy, &[]).await
    }

    /// Settles items, each by its index in [`items`](Lease::items), all in one transaction; and moves the deadline of the rest on.
    ///
    /// Under an unknown outcome nothing is settled twice. Items that are settled already are passed over.
    ///
    /// # Errors
    /// [`LeaseError::Lost`] if the lease was taken away; then nothing was settled.
    pub async fn settle(
        &mut self,
        db: &Database,
        policy: &RetryPolicy,
        settlements: &[(usize, Settlement)],
    ) -> Result<(), LeaseError> {
        self.change(db, policy, settlements).await
    }

    /// Puts a settlement into a transaction of the caller's, so that it happens with what else the transaction writes, or not at
    /// all. Pass the result to [`settled`](Lease::settled) once it has committed. `None`: the lease is lost; nothing was written, and
    /// the transaction should not be committed.
    pub async fn settle_in(
        &self,
        tr: &Transaction,
        settlements: &[(usize, Settlement)],
    ) -> Result<Option<Change>, QueueError> {
        Ok(settle(&self.space, tr, self.id, &self.held, settlements).await?.map(Change))
    }

    /// Takes note of a settlement that committed.
    pub fn settled(&mut self, change: Change) {
        let Change(header) = change;
        (self.deadline, self.settled) = (header.deadline, header.settled);
    }

    /// What became of a settlement whose commit had an unknown outcome, read in a new transaction.
    pub async fn look(
        &mut self,
        tr: &Transaction,
        settlements: &[(usize, Settlement)],
    ) -> Result<Fate, QueueError> {
        match ops::lease::header(&self.space, tr, self.id).await? {
            Some(header) => {
                let applied = settlements.iter().all(|(index, _)| header.settled.contains(*index));
                self.settled(Change(header));
                Ok(if applied { Fate::Happened } else { Fate::Open })
            }
            // Nobody else clears a lease before its deadline, so then it was us, with the last of its items.
            None if now(tr).await? <= self.deadline => {
                self.settled
                    .open()
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|index| self.settled.insert(index));
                Ok(Fate::Happened)
            }
            None => Ok(Fate::Lost),
        }
    }

    async fn change(
        &mut self,
        db: &Database,
        policy: &RetryPolicy,
        settlements: &[(usize, Settlement)],
    ) -> Result<(), LeaseError> {
        let (mut retry, mut tr) = Retry::begin(db, policy)?;
        loop {
            let prepared = self.prepare(&tr, settlements, retry.attempts.unknown > 0).await;
            tr = match prepared {
                Err(error) => retry.after_body(tr, error).await?,
                Ok(Prepared::Happened) => return Ok(()),
                Ok(Prepared::Lost) => return Err(LeaseError::Lost),
                Ok(Prepared::Commit(change)) => match tr.commit().await {
                    Ok(_committed) => {
                        self.settled(change);
                        return Ok(());
                    }
                    Err(error) => retry.after_commit(error).await?,
                },
            };
        }
    }

    async fn prepare(
        &mut self,
        tr: &Transaction,
        settlements: &[(usize, Settlement)],
        unknown: bool,
    ) -> Result<Prepared, QueueError> {
        if unknown && !settlements.is_empty() {
            match self.look(tr, settlements).await? {
                Fate::Happened => return Ok(Prepared::Happened),
                Fate::Lost => return Ok(Prepared::Lost),
                Fate::Open => {}
            }
        }
        Ok(self.settle_in(tr, settlements).await?.map_or(Prepared::Lost, Prepared::Commit))
    }
}

/// A settlement that a transaction is about to make.
#[derive(Debug)]
pub struct Change(Header);

/// What became of a settlement whose outcome was unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It committed.
    Happened,
    /// It did not, and the lease is still held.
    Open,
    /// The lease is gone. If it ran out before the settlement could commit, that did not happen; nobody can tell any more.
    Lost,
}

enum Prepared {
    Commit(Change),
    Happened,
    Lost,
}
