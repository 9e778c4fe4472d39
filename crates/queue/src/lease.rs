//! A batch in hand: its holder may settle its items, until the lease is lost.

use std::sync::Arc;
use std::time::SystemTime;

use foundationdb::{Database, Transaction};
use futures::future::try_join;

use crate::error::{LeaseError, QueueError};
use crate::item::Item;
use crate::keys::Space;
use crate::keys::leases::{Header, Held, LeaseId, Settled};
use crate::meta::Failure;
use crate::ops;
use crate::ops::cost::WHOLE;
use crate::ops::settle::{cost, part, settle};
use crate::ops::version::now;
use crate::retry::{Retry, RetryError, RetryPolicy, maybe_committed};
use crate::suspects::Ward;
use crate::version_history::VersionHistory;

/// What becomes of an item of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// It is finished, for ever.
    Done,
    /// Its attempt failed; it becomes ready again at `due`, or at once. At `due` a [`Sweeper`](crate::Sweeper) makes it ready. If none runs, it is
    /// never taken again.
    Retry {
        /// When, by the sweeper's clock and to the millisecond; `None`: now.
        due: Option<SystemTime>,
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
/// to run out. A [`Sweeper`](crate::Sweeper) then gives them back. If none runs, they stay away.
#[derive(Debug)]
pub struct Lease {
    space: Arc<Space>,
    id: LeaseId,
    deadline: u64,
    /// How far the deadline is set ahead.
    length: u64,
    settled: Settled,
    /// What attempts of unknown outcome may have settled, until one after them has committed.
    unsure: Option<Settled>,
    items: Vec<Item>,
    held: Vec<Held>,
    /// Keeps other suspects out of the process, if these are suspects.
    ward: Option<Ward>,
    /// The holder's clock.
    history: Option<VersionHistory>,
    /// A time by that clock, in microseconds: the last change that is known began after it. `None`: that is not known.
    since: Option<u64>,
}

impl Lease {
    pub(crate) fn new(
        space: Arc<Space>,
        id: LeaseId,
        header: &Header,
        items: Vec<Item>,
        held: Vec<Held>,
        ward: Option<Ward>,
    ) -> Lease {
        let &Header { deadline, length, ref settled, .. } = header;
        Lease {
            space,
            id,
            deadline,
            length,
            settled: settled.clone(),
            unsure: None,
            items,
            held,
            ward,
            history: None,
            since: None,
        }
    }

    pub(crate) fn with_history(self, history: Option<&VersionHistory>) -> Lease {
        Lease { history: history.cloned(), ..self }
    }

    /// A change of the lease has committed whose transaction began at this time.
    pub(crate) fn changed_since(&mut self, began: Option<u64>) {
        self.since = began.or(self.since);
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

    /// Whether it keeps the session, and others that share its [`Quarantine`](crate::Quarantine), from taking more suspects: items
    /// of which a worker may have died.
    pub fn is_in_quarantine(&self) -> bool {
        self.ward.is_some()
    }

    /// The database version until which nobody takes the lease away.
    pub fn deadline(&self) -> u64 {
        self.deadline
    }

    /// Moves the deadline on, by the lease's length from now; of a lease whose items are all settled there is none.
    ///
    /// # Errors
    /// [`LeaseError::Lost`] if the lease was taken away.
    pub async fn extend(&mut self, db: &Database, policy: &RetryPolicy) -> Result<(), LeaseError> {
        self.change(db, policy, &[]).await
    }

    /// Settles items, each by its index in [`items`](Lease::items), and moves the deadline of the rest on. In one transaction; or in
    /// several, one after the other, where that would be too large, and then each has the time and the attempts of the policy.
    ///
    /// Under an unknown outcome nothing is settled twice. Items that are settled already are passed over, so that a settlement that
    /// failed may be repeated.
    ///
    /// # Errors
    /// [`LeaseError::Lost`] if the lease was taken away; then nothing was settled that is not by [`open`](Lease::open).
    pub async fn settle(
        &mut self,
        db: &Database,
        policy: &RetryPolicy,
        settlements: &[(usize, Settlement)],
    ) -> Result<(), LeaseError> {
        let mut rest = settlements;
        loop {
            let settled = self.settle_some(db, policy, rest).await?;
            rest = &rest[settled..];
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// As [`settle`](Lease::settle), in one transaction, as many of the first of them as that holds; returns how many.
    pub async fn settle_some(
        &mut self,
        db: &Database,
        policy: &RetryPolicy,
        settlements: &[(usize, Settlement)],
    ) -> Result<usize, LeaseError> {
        let part = &settlements[..part(&self.space, &self.held, settlements)];
        self.change(db, policy, part).await?;
        Ok(part.len())
    }

    /// Puts a settlement into a transaction of the caller's, so that it happens with what else the transaction writes, or not at
    /// all. Pass the result to [`settled`](Lease::settled) once it has committed. `None`: the lease is lost; nothing was written, and
    /// the transaction should not be committed.
    ///
    /// # Errors
    /// [`LeaseError::Queue`] and [`LeaseError::NoItem`]; and [`LeaseError::TooLarge`], since a transaction of the caller's cannot be
    /// made several. Nothing was written.
    pub async fn settle_in(
        &self,
        tr: &Transaction,
        settlements: &[(usize, Settlement)],
    ) -> Result<Option<Change>, LeaseError> {
        self.check(settlements)?;
        let bytes: usize =
            settlements.iter().map(|(index, to)| cost(&self.space, &self.held[*index], to)).sum();
        if bytes > WHOLE {
            return Err(LeaseError::TooLarge { items: settlements.len() });
        }
        Ok(settle(&self.space, tr, self.id, &self.held, settlements).await?.map(Change))
    }

    /// Takes note of a settlement that committed.
    pub fn settled(&mut self, change: Change) {
        let Change(header) = change;
        (self.deadline, self.settled) = (header.deadline, header.settled);
        self.unsure = None;
        if self.is_settled() {
            self.ward = None;
        }
    }

    /// What became of a settlement whose commit had an unknown outcome, read in a new transaction.
    pub async fn look(
        &mut self,
        tr: &Transaction,
        settlements: &[(usize, Settlement)],
    ) -> Result<Fate, QueueError> {
        self.note_tried(settlements);
        self.find_out(tr, settlements).await
    }

    async fn find_out(
        &mut self,
        tr: &Transaction,
        settlements: &[(usize, Settlement)],
    ) -> Result<Fate, QueueError> {
        if let Some(header) = ops::lease::header(&self.space, tr, self.id).await? {
            let applied = settlements.iter().all(|(index, _)| header.settled.contains(*index));
            (self.deadline, self.settled) = (header.deadline, header.settled);
            return Ok(if applied { Fate::Happened } else { Fate::Open });
        }
        if !self.was_ours(now(tr).await?) || was_cleared_by_others(&self.space, tr).await? {
            return Ok(Fate::Lost);
        }
        self.settled.fill();
        Ok(Fate::Happened)
    }

    /// Whether it was this holder who cleared the lease that is gone at this version.
    ///
    /// Before its deadline nobody else does but a migration and a deletion of the queue, nor before the holder's own clock has measured the lease's
    /// length. So then it was us, if all that was left may have been settled. A version before the lease's last change is of another life of the
    /// database, in which neither says anything.
    fn was_ours(&self, version: u64) -> bool {
        let is_this_life = version >= self.deadline.saturating_sub(self.length);
        let tried = |index| self.unsure.as_ref().is_some_and(|unsure| unsure.contains(index));
        is_this_life
            && (version <= self.deadline || self.is_held_by_clock())
            && self.settled.open().all(tried)
    }

    /// Whether less than the lease's length has passed since before its last change, by the holder's clock. Versions may have jumped.
    fn is_held_by_clock(&self) -> bool {
        let age = |history: &VersionHistory, since| history.now().saturating_sub(since);
        self.history
            .as_ref()
            .zip(self.since)
            .is_some_and(|(history, since)| age(history, since) < self.length)
    }

    /// Remembers what may have been settled, until it is known.
    fn note_tried(&mut self, settlements: &[(usize, Settlement)]) {
        let count = self.settled.count();
        let unsure = self.unsure.get_or_insert_with(|| Settled::none(count));
        settlements.iter().filter(|(index, _)| *index < count).for_each(|(index, _)| unsure.insert(*index));
    }

    fn check(&self, settlements: &[(usize, Settlement)]) -> Result<(), LeaseError> {
        let items = self.held.len();
        match settlements.iter().find(|(index, _)| *index >= items) {
            Some((index, _)) => Err(LeaseError::NoItem { index: *index, items }),
            None => Ok(()),
        }
    }

    async fn change(
        &mut self,
        db: &Database,
        policy: &RetryPolicy,
        settlements: &[(usize, Settlement)],
    ) -> Result<(), LeaseError> {
        self.check(settlements)?;
        if self.is_settled() {
            return Ok(());
        }
        let refused = |error: RetryError| LeaseError::refused(error, settlements.len());
        let (mut retry, mut tr) = Retry::begin(db, policy)?;
        loop {
            let began = self.history.as_ref().map(VersionHistory::now);
            let prepared = self.prepare(&tr, settlements).await;
            tr = match prepared {
                Err(LeaseError::Queue(error)) => retry.after_body(tr, error).await.map_err(refused)?,
                Err(error) => return Err(error),
                Ok(Prepared::Happened) => return Ok(()),
                Ok(Prepared::Commit(change)) => {
                    let before = self.unsure.clone();
                    // Before the commit: this future may be dropped while that is under way.
                    self.note_tried(settlements);
                    match tr.commit().await {
                        Ok(_committed) => {
                            self.settled(change);
                            self.changed_since(began);
                            return Ok(());
                        }
                        Err(error) => {
                            if !maybe_committed(*error) {
                                self.unsure = before;
                            }
                            retry.after_commit(error).await.map_err(refused)?
                        }
                    }
                }
            };
        }
    }

    async fn prepare(
        &mut self,
        tr: &Transaction,
        settlements: &[(usize, Settlement)],
    ) -> Result<Prepared, LeaseError> {
        if self.unsure.is_some() {
            match self.find_out(tr, settlements).await? {
                Fate::Lost => return Err(LeaseError::Lost),
                // Of an extension nothing tells that it happened.
                Fate::Happened if !settlements.is_empty() || self.is_settled() => {
                    return Ok(Prepared::Happened);
                }
                Fate::Happened | Fate::Open => {}
            }
        }
        self.settle_in(tr, settlements).await?.map(Prepared::Commit).ok_or(LeaseError::Lost)
    }
}

/// Whether all leases of the queue may have been cleared before their deadlines: by a migration, which leaves the queue frozen, or with the queue, whose
/// counters are then gone too.
async fn was_cleared_by_others(space: &Space, tr: &Transaction) -> Result<bool, QueueError> {
    let (pause, npop) =
        try_join(ops::pause::paused(space, tr), async { Ok(tr.get(&space.npop, true).await?) }).await?;
    Ok(npop.is_none() || pause.is_some_and(|pause| pause.frozen))
}

/// A settlement that a transaction is about to make.
#[derive(Debug)]
#[must_use = "tell the lease with `settled` once the transaction has committed"]
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
}
