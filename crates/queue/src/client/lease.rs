//! A lease: the items of a fetch, and the right to acknowledge them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foundationdb::{Database, FdbError, Transaction, TransactionCommitted};
use futures::future::try_join;

use crate::client::suspects::Ward;
use crate::keys::cancelled::CancelledItems;
use crate::keys::leases::{Acknowledged, Header, Held};
use crate::keys::{Counter, Space};
use crate::model::error::{LeaseError, QueueError};
use crate::model::item::Item;
use crate::model::lease_id::LeaseId;
use crate::model::outcome::ItemOutcome;
use crate::model::progress::Progress;
use crate::model::recorder::{Holding, Recorder, cut};
use crate::model::retry_error::RetryError;
use crate::ops;
use crate::ops::acknowledge::{acknowledge, cost, part};
use crate::ops::cost::{WHOLE, joined, part_bytes};
use crate::run::operation::{Operation, Step, complete};
use crate::run::retry::{RetryPolicy, maybe_committed, run};
use crate::run::version::now;
use crate::run::version_history::VersionHistory;
use mutant::mutant;

/// The bytes of a change of a lease's header, about.
const HEADER: usize = 8_192;

/// Fetched items that are not acknowledged, and the right to acknowledge them.
///
/// The right lasts until a sweeper finds that the lease has expired. [`extend`](Lease::extend)
/// prolongs it. The key of the lease is the fencing token: if it is gone, the lease is lost, and
/// its items cannot be acknowledged any more. Dropping a lease leaves its items to expire. A
/// [`Sweeper`](crate::Sweeper) then returns them. If no sweeper runs, nobody gets them.
#[derive(Debug)]
pub struct Lease {
    space: Arc<Space>,
    id: LeaseId,
    deadline: u64,
    /// How far the deadline is set ahead.
    length: u64,
    acknowledged: Acknowledged,
    /// The items that attempts of unknown outcome may have acknowledged, until a later attempt has
    /// committed.
    unsure: Option<Acknowledged>,
    /// The items that are known to be cancelled. They are acknowledged, too.
    cancelled: Acknowledged,
    items: Vec<Item>,
    held: Vec<Held>,
    /// Keeps other suspects out of the process, if these are suspects.
    ward: Option<Ward>,
    /// The holder's clock.
    history: Option<VersionHistory>,
    /// A time by that clock, in microseconds: the last change that is known began after it. `None`:
    /// that is not known.
    since: Option<u64>,
    /// What the history has of it. `None` if nothing is recorded, so that a lease is not longer for that.
    holding: Option<Box<Holding>>,
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
        let &Header { deadline, length, ref acknowledged, .. } = header;
        Lease {
            space,
            id,
            deadline,
            length,
            acknowledged: acknowledged.clone(),
            unsure: None,
            cancelled: Acknowledged::none(acknowledged.count()),
            items,
            held,
            ward,
            history: None,
            since: None,
            holding: None,
        }
    }

    pub(crate) fn with_history(self, history: Option<&VersionHistory>) -> Lease {
        Lease { history: history.cloned(), ..self }
    }

    /// Whatever is acknowledged of it was cancelled: nobody has had it before. Its items start now.
    pub(crate) fn never_held(self) -> Lease {
        let holding = Holding::begun(self.space.recorder.as_ref());
        Lease { cancelled: self.acknowledged.clone(), holding, ..self }
    }

    /// Names the worker that has the items, of another program. The [history](crate::Recorder) then names it instead of this process. At most
    /// [`MAX_WORKER`](crate::MAX_WORKER) bytes of the name are kept. Without a recorder that is on, nothing is done, and the name is not made.
    pub fn note_worker(&mut self, name: impl FnOnce() -> String) {
        if self.space.recorder.as_ref().is_some_and(Recorder::may_record) {
            self.holding.get_or_insert_default().worker = Some(cut(name()));
        }
    }

    /// The same lease. The items that the record names are known to be cancelled.
    pub(crate) fn with_cancelled(mut self, record: Option<&CancelledItems>) -> Lease {
        record.into_iter().for_each(|record| self.note_cancelled(record));
        self
    }

    /// A change of the lease has committed whose transaction began at this time.
    pub(crate) fn changed_since(self, began: Option<u64>) -> Lease {
        Lease { since: began.or(self.since), ..self }
    }

    /// Which lease it is.
    pub fn id(&self) -> LeaseId {
        self.id
    }

    /// The items that were fetched, in order, acknowledged ones included.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// The indexes of the items that are not acknowledged.
    pub fn open(&self) -> impl Iterator<Item = usize> {
        self.acknowledged.open()
    }

    /// Whether the item of this index was cancelled while it was on the lease, as far as is known: each change of the lease finds out, and
    /// so does [`look_for_cancelled`](Lease::look_for_cancelled). A cancelled item is acknowledged; its outcome is passed over.
    pub fn is_cancelled(&self, index: usize) -> bool {
        self.cancelled.contains(index)
    }

    /// Whether an item is known to be cancelled.
    pub fn has_cancelled(&self) -> bool {
        !self.cancelled.is_empty()
    }

    /// Finds out which items were cancelled meanwhile, and whether that was the last of them: then the lease is over, and all items are
    /// acknowledged. A lease that is lost stays as it is; the next change finds that out.
    pub async fn look_for_cancelled(
        &mut self,
        db: &Database,
        policy: &RetryPolicy,
    ) -> Result<(), RetryError> {
        if self.is_acknowledged() {
            return Ok(());
        }
        let (space, id, known) = (&*self.space, self.id, &self.acknowledged);
        // Also from an attempt of unknown outcome: the next one finds nothing if that has cleared the record.
        let seen = Mutex::new(None);
        let noted = &seen;
        let done = run(db, policy, |tr| async move {
            let found = cancelled_since(space, &tr, id, known).await;
            let found = found.map(|(header, record)| {
                // The record of a lease that is over has no other reader.
                if header.is_none() && record.is_some() {
                    ops::cancel::clear(space, &tr, id);
                }
                if record.is_some() {
                    *noted.lock().unwrap_or_else(PoisonError::into_inner) = record;
                }
            });
            (tr, found)
        });
        let done = done.await.map(|_| ());
        let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
        seen.iter().for_each(|record| self.note_cancelled(record));
        done?;
        Ok(())
    }

    /// Whether all items are acknowledged, so that the lease is over.
    pub fn is_acknowledged(&self) -> bool {
        self.acknowledged.open().next().is_none()
    }

    /// Whether the lease keeps its session, and others that share the
    /// [`Quarantine`](crate::Quarantine), from fetching more suspects: items that may have killed a
    /// worker.
    pub fn is_in_quarantine(&self) -> bool {
        self.ward.is_some()
    }

    /// Lets the session fetch more suspects. The items of this lease are handled in another
    /// process, so they cannot kill this one.
    pub(crate) fn leave_quarantine(&mut self) {
        self.ward = None;
    }

    /// The database version until which the lease lasts.
    pub fn deadline(&self) -> u64 {
        self.deadline
    }

    /// How long it lasts after each change, as long as the database's versions advance by 10^6 a
    /// second.
    pub fn length(&self) -> Duration {
        Duration::from_micros(self.length)
    }

    /// Prolongs the lease: it lasts its length from now on. Does nothing if all items are
    /// acknowledged.
    ///
    /// # Errors
    /// [`LeaseError::Lost`] if the lease has expired and a sweeper has returned its items.
    pub async fn extend(&mut self, db: &Database, policy: &RetryPolicy) -> Result<(), LeaseError> {
        self.change(db, policy, &[]).await
    }

    /// The same, and writes how far items are, each by the item's index in [`items`](Lease::items). Items that are acknowledged are passed over. The
    /// lease has one record of it, which each such extension replaces; it is cleared with the lease. So it costs an extension one
    /// row more, and a lease without progress nothing. The record has 90,000 bytes at most: of more, the oldest progress is left out.
    ///
    /// # Errors
    /// As [`extend`](Lease::extend), and [`LeaseError::NoItem`].
    pub async fn extend_with(
        &mut self,
        db: &Database,
        policy: &RetryPolicy,
        progress: &[(usize, Progress)],
    ) -> Result<(), LeaseError> {
        let items = self.held.len();
        if let Some((index, _)) = progress.iter().find(|(index, _)| *index >= items) {
            return Err(LeaseError::NoItem { index: *index, items });
        }
        self.make(db, policy, &[], progress).await
    }

    /// Writes the outcomes of items, each by the item's index in [`items`](Lease::items), and
    /// prolongs the lease of the rest. If one transaction cannot hold them all, there are several,
    /// and each has the time and the attempts of the policy.
    ///
    /// If the outcome of a commit is unknown, the lease finds it out; no item is acknowledged
    /// twice. Items that are acknowledged already are passed over, so a failed call can be
    /// repeated. If the repeated call finds that the failed one had written the outcomes, it writes
    /// nothing: the lease of the rest then lasts its length from the failed call on.
    /// [`extend`](Lease::extend) prolongs it in any case.
    ///
    /// # Errors
    /// [`LeaseError::Lost`] if the lease has expired and a sweeper has returned its items. The
    /// items that [`open`](Lease::open) does not name were acknowledged before.
    pub async fn acknowledge(
        &mut self,
        db: &Database,
        policy: &RetryPolicy,
        outcomes: &[(usize, ItemOutcome)],
    ) -> Result<(), LeaseError> {
        let mut rest = outcomes;
        loop {
            let acknowledged = self.acknowledge_some(db, policy, rest).await?;
            rest = &rest[acknowledged..];
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// As [`acknowledge`](Lease::acknowledge), but in one transaction: as many of the first
    /// outcomes as it holds. Returns how many.
    pub async fn acknowledge_some(
        &mut self,
        db: &Database,
        policy: &RetryPolicy,
        outcomes: &[(usize, ItemOutcome)],
    ) -> Result<usize, LeaseError> {
        let part = &outcomes[..part(&self.space, &self.held, outcomes)];
        self.change(db, policy, part).await?;
        Ok(part.len())
    }

    /// Puts the outcomes into your own transaction, so that they are written together with its
    /// other writes or not at all. Pass the result to [`acknowledged`](Lease::acknowledged) once
    /// the transaction has committed. `None`: the lease is lost. Nothing was written then; do not
    /// commit the transaction.
    ///
    /// # Errors
    /// [`LeaseError::Cancelled`], if one of the items was cancelled: do not commit the transaction.
    /// [`LeaseError::Queue`] and [`LeaseError::NoItem`]; and [`LeaseError::TooLarge`], since your
    /// transaction cannot be split. Nothing was written.
    pub async fn acknowledge_in(
        &self,
        tr: &Transaction,
        outcomes: &[(usize, ItemOutcome)],
    ) -> Result<Option<Acknowledgement>, LeaseError> {
        self.check(outcomes)?;
        let (header, record) = cancelled_since(&self.space, tr, self.id, &self.acknowledged).await?;
        let is_cancelled = |index: usize| {
            self.cancelled.contains(index) || record.as_ref().is_some_and(|record| record.contains(index))
        };
        let items: Vec<usize> =
            outcomes.iter().map(|(index, _)| *index).filter(|index| is_cancelled(*index)).collect();
        if !items.is_empty() && !mutant("cancelled-items-are-passed-over") {
            return Err(LeaseError::Cancelled { items });
        }
        let Some(header) = header else { return Ok(None) };
        self.put_outcomes(tr, header, record, outcomes).await.map(Some)
    }

    /// Puts outcomes into a transaction that has read the header. Those of acknowledged items are passed over. `record`: which items were
    /// cancelled, if it was read.
    ///
    /// What the lease has not noted stays in the database, though the lease is over: if the outcome of the commit is unknown, it tells the end of such an
    /// item from that of the lease.
    async fn put_outcomes(
        &self,
        tr: &Transaction,
        header: Header,
        record: Option<CancelledItems>,
        outcomes: &[(usize, ItemOutcome)],
    ) -> Result<Acknowledgement, LeaseError> {
        let bytes: usize = outcomes.iter().map(|(index, to)| cost(&self.space, &self.held[*index], to)).sum();
        if bytes + joined(&self.space, &header.joined) > WHOLE {
            return Err(LeaseError::TooLarge { items: outcomes.len() });
        }
        let header =
            acknowledge(&self.space, tr, (self.id, header), &self.held, outcomes, self.holding.as_deref())
                .await?;
        let is_noted = |record: &CancelledItems| {
            record.items.iter().all(|(index, _)| self.cancelled.contains(*index as usize))
        };
        let is_known = record.as_ref().map_or(!self.cancelled.is_empty(), is_noted);
        if header.acknowledged.open().next().is_none() && is_known {
            ops::cancel::clear(&self.space, tr, self.id);
        }
        Ok(Acknowledgement { header, cancelled: record })
    }

    /// Notes that a transaction with an acknowledgement has committed.
    pub fn acknowledged(&mut self, acknowledgement: Acknowledgement) {
        let Acknowledgement { header, cancelled } = acknowledgement;
        (self.deadline, self.acknowledged) = (header.deadline, header.acknowledged);
        // They count as acknowledged from now on, so the next transaction does not read that they were cancelled.
        cancelled.iter().for_each(|record| self.note_cancelled(record));
        self.unsure = None;
        if self.is_acknowledged() {
            self.ward = None;
        }
    }

    /// Finds out whether a transaction with an acknowledgement has committed, if the outcome of its
    /// commit is unknown. `tr` is a new transaction. If an item was cancelled, it has not.
    pub async fn find_out(
        &mut self,
        tr: &Transaction,
        outcomes: &[(usize, ItemOutcome)],
    ) -> Result<CommitStatus, QueueError> {
        self.note_tried(outcomes);
        let status = self.status(tr, outcomes).await?;
        let has_cancelled = outcomes.iter().any(|(index, _)| self.cancelled.contains(*index));
        Ok(if has_cancelled { CommitStatus::NotCommitted } else { status })
    }

    /// The same, but for outcomes of cancelled items, which are passed over.
    async fn status(
        &mut self,
        tr: &Transaction,
        outcomes: &[(usize, ItemOutcome)],
    ) -> Result<CommitStatus, QueueError> {
        let (header, record) = cancelled_since(&self.space, tr, self.id, &self.acknowledged).await?;
        record.iter().for_each(|record| self.note_cancelled(record));
        if let Some(header) = header {
            let applied = outcomes.iter().all(|(index, _)| header.acknowledged.contains(*index));
            (self.deadline, self.acknowledged) = (header.deadline, header.acknowledged);
            return Ok(if applied { CommitStatus::Committed } else { CommitStatus::NotCommitted });
        }
        if self.is_acknowledged() {
            return Ok(CommitStatus::Committed);
        }
        if !self.was_ours(now(tr).await?) || was_cleared_by_others(&self.space, tr).await? {
            return Ok(CommitStatus::Lost);
        }
        self.acknowledged.fill();
        Ok(CommitStatus::Committed)
    }

    /// Whether this holder cleared the lease. The lease is gone at database version `version`.
    ///
    /// Until the deadline (by version, or by this holder's clock) nobody else clears the lease but
    /// a migration or the deletion of the queue. So this holder cleared it, if it may have
    /// acknowledged all items that were left. If the current version is before the lease's last
    /// change, the database was restored, and nothing can be concluded.
    fn was_ours(&self, version: u64) -> bool {
        let is_this_life = version >= self.deadline.saturating_sub(self.length);
        let tried = |index| self.unsure.as_ref().is_some_and(|unsure| unsure.contains(index));
        is_this_life
            && (version <= self.deadline || self.is_held_by_clock())
            && self.acknowledged.open().all(tried)
    }

    /// Whether less than the lease's length has passed since before its last change, by the
    /// holder's clock. Versions may have jumped.
    fn is_held_by_clock(&self) -> bool {
        let age = |history: &VersionHistory, since| history.now().saturating_sub(since);
        self.history
            .as_ref()
            .zip(self.since)
            .is_some_and(|(history, since)| age(history, since) < self.length)
    }

    /// Items were cancelled. An attempt of unknown outcome did not acknowledge them.
    fn note_cancelled(&mut self, record: &CancelledItems) {
        for index in record.items.iter().map(|(index, _)| *index as usize) {
            if index < self.held.len() {
                self.acknowledged.insert(index);
                self.cancelled.insert(index);
            }
        }
        if self.is_acknowledged() {
            self.ward = None;
        }
    }

    /// Remembers what may have been acknowledged, until it is known.
    fn note_tried(&mut self, outcomes: &[(usize, ItemOutcome)]) {
        let count = self.acknowledged.count();
        let unsure = self.unsure.get_or_insert_with(|| Acknowledged::none(count));
        outcomes.iter().filter(|(index, _)| *index < count).for_each(|(index, _)| unsure.insert(*index));
    }

    fn check(&self, outcomes: &[(usize, ItemOutcome)]) -> Result<(), LeaseError> {
        let items = self.held.len();
        match outcomes.iter().find(|(index, _)| *index >= items) {
            Some((index, _)) => Err(LeaseError::NoItem { index: *index, items }),
            None => Ok(()),
        }
    }

    async fn change(
        &mut self,
        db: &Database,
        policy: &RetryPolicy,
        outcomes: &[(usize, ItemOutcome)],
    ) -> Result<(), LeaseError> {
        self.check(outcomes)?;
        self.make(db, policy, outcomes, &[]).await
    }

    async fn make(
        &mut self,
        db: &Database,
        policy: &RetryPolicy,
        outcomes: &[(usize, ItemOutcome)],
        progress: &[(usize, Progress)],
    ) -> Result<(), LeaseError> {
        if self.is_acknowledged() {
            return Ok(());
        }
        let mut change = Change { progress, ..Change::new(self, outcomes) };
        match complete(db, policy, &mut change).await {
            Ok(done) => done.value,
            Err(error) => Err(LeaseError::refused(error, outcomes.len())),
        }
    }
}

/// A transaction that extends a lease, or acknowledges some of its items.
struct Change<'a> {
    lease: &'a mut Lease,
    outcomes: &'a [(usize, ItemOutcome)],
    /// What is new of the progress of items.
    progress: &'a [(usize, Progress)],
    /// `unsure` of the lease before the attempt under way.
    unsure_before: Option<Acknowledged>,
    /// The effect of the attempt under way if it commits.
    plan: Option<Acknowledgement>,
    /// When it began, by the holder's clock.
    began: Option<u64>,
}

impl Operation for Change<'_> {
    type Output = Result<(), LeaseError>;

    async fn prepare(&mut self, tr: &Transaction) -> Result<Step<Self::Output>, QueueError> {
        let step = self.plan(tr).await?;
        if matches!(step, Step::Commit) {
            self.note();
        }
        Ok(step)
    }

    fn committed(&mut self, _: &TransactionCommitted) -> Option<Self::Output> {
        self.has_committed();
        Some(Ok(()))
    }

    fn failed(&mut self, error: FdbError) {
        if !maybe_committed(error) {
            self.lease.unsure = self.unsure_before.take();
        }
    }
}

impl<'a> Change<'a> {
    fn new(lease: &'a mut Lease, outcomes: &'a [(usize, ItemOutcome)]) -> Self {
        Change { lease, outcomes, progress: &[], unsure_before: None, plan: None, began: None }
    }

    /// Puts the change into a transaction, unless an earlier one has made it.
    async fn plan(&mut self, tr: &Transaction) -> Result<Step<Result<(), LeaseError>>, QueueError> {
        let (lease, outcomes) = (&mut *self.lease, self.outcomes);
        self.began = lease.history.as_ref().map(VersionHistory::now);
        if lease.unsure.is_some() {
            match lease.status(tr, outcomes).await? {
                CommitStatus::Lost => return Ok(Step::End(Err(LeaseError::Lost))),
                // Nothing in the database tells whether an extension has committed.
                CommitStatus::Committed if !outcomes.is_empty() || lease.is_acknowledged() => {
                    return Ok(Step::End(Ok(())));
                }
                CommitStatus::Committed | CommitStatus::NotCommitted => {}
            }
        }
        if lease.is_acknowledged() {
            return Ok(Step::End(Ok(())));
        }
        let (header, record) = cancelled_since(&lease.space, tr, lease.id, &lease.acknowledged).await?;
        record.iter().for_each(|record| lease.note_cancelled(record));
        let Some(mut header) = header else {
            if record.is_some() && lease.is_acknowledged() {
                // What was left of it was cancelled.
                ops::cancel::clear(&lease.space, tr, lease.id);
                self.plan = None;
                return Ok(Step::Commit);
            }
            return Ok(Step::End(Err(LeaseError::Lost)));
        };
        if !self.progress.is_empty() {
            ops::progress::add(&lease.space, tr, (lease.id, &mut header), self.progress).await?;
        }
        self.plan = match lease.put_outcomes(tr, header, record, outcomes).await {
            Ok(plan) => Some(plan),
            Err(LeaseError::Queue(error)) => return Err(error),
            Err(error) => return Ok(Step::End(Err(error))),
        };
        Ok(Step::Commit)
    }

    /// Notes what the transaction does that is about to commit.
    fn note(&mut self) {
        self.unsure_before.clone_from(&self.lease.unsure);
        self.lease.note_tried(self.outcomes);
    }

    fn has_committed(&mut self) {
        if let Some(plan) = self.plan.take() {
            self.lease.acknowledged(plan);
        }
        self.lease.since = self.began.or(self.lease.since);
    }
}

/// The header of a lease; and which items were cancelled, if others are acknowledged than are known to be, or the lease is gone.
async fn cancelled_since(
    space: &Space,
    tr: &Transaction,
    id: LeaseId,
    known: &Acknowledged,
) -> Result<(Option<Header>, Option<CancelledItems>), QueueError> {
    let header = ops::lease::header(space, tr, id).await?;
    let is_news = header.as_ref().is_none_or(|header| !known.covers(&header.acknowledged));
    let record = if is_news { ops::cancel::read(space, tr, id).await? } else { None };
    Ok((header, record))
}

/// Acknowledges items of several leases as [`Lease::acknowledge`] does, in as few transactions as
/// hold them. The outcomes of each lease are written in one transaction if they fit. Returns the
/// result of each.
///
/// A lease that is lost does not prevent the others from being acknowledged. An error of the
/// database is the error of all leases of a transaction.
pub async fn acknowledge_together(
    db: &Database,
    policy: &RetryPolicy,
    leases: &mut [(Lease, Vec<(usize, ItemOutcome)>)],
) -> Vec<Result<(), LeaseError>> {
    let mut results = Vec::with_capacity(leases.len());
    let mut rest = leases;
    while !rest.is_empty() {
        let (group, more) = rest.split_at_mut(fitting(rest));
        match group {
            [(lease, outcomes)] => results.push(lease.acknowledge(db, policy, outcomes).await),
            group => {
                let done = Together::acknowledge(db, policy, group).await;
                for ((lease, outcomes), result) in group.iter_mut().zip(done) {
                    results.push(match result {
                        // Their items have joined batches, which only their headers tell.
                        Err(LeaseError::TooLarge { .. }) => lease.acknowledge(db, policy, outcomes).await,
                        result => result,
                    });
                }
            }
        }
        rest = more;
    }
    results
}

/// How many of the first leases' outcomes go into one transaction: one does, whatever it takes.
fn fitting(leases: &[(Lease, Vec<(usize, ItemOutcome)>)]) -> usize {
    let mut bytes = 0;
    let fit = leases.iter().take_while(|(lease, outcomes)| {
        let held = |index: usize| lease.held.get(index);
        let costs = outcomes.iter().filter_map(|(index, to)| Some(cost(&lease.space, held(*index)?, to)));
        bytes += HEADER + costs.sum::<usize>();
        bytes <= part_bytes()
    });
    fit.count().max(1)
}

/// A transaction that changes several leases.
struct Together<'a> {
    changes: Vec<Change<'a>>,
    /// The results of the changes that have ended.
    ended: Vec<Option<Result<(), LeaseError>>>,
}

impl<'a> Together<'a> {
    async fn acknowledge(
        db: &Database,
        policy: &RetryPolicy,
        leases: &'a mut [(Lease, Vec<(usize, ItemOutcome)>)],
    ) -> Vec<Result<(), LeaseError>> {
        let first = |(lease, outcomes): &(Lease, Vec<_>)| match lease.check(outcomes) {
            Ok(()) if lease.is_acknowledged() => Some(Ok(())),
            Ok(()) => None,
            Err(error) => Some(Err(error)),
        };
        let ended = leases.iter().map(first).collect();
        let changes = leases.iter_mut().map(|(lease, outcomes)| Change::new(lease, outcomes)).collect();
        let mut together = Together { changes, ended };
        match complete(db, policy, &mut together).await {
            Ok(done) => done.value,
            Err(error) => {
                let Together { changes, ended } = together;
                let failed =
                    |change: &Change<'_>| Err(LeaseError::refused(error.clone(), change.outcomes.len()));
                ended
                    .into_iter()
                    .zip(&changes)
                    .map(|(ended, change)| ended.unwrap_or_else(|| failed(change)))
                    .collect()
            }
        }
    }

    /// The changes that have not ended, with their results.
    fn open(&mut self) -> impl Iterator<Item = (&mut Change<'a>, &mut Option<Result<(), LeaseError>>)> {
        self.changes.iter_mut().zip(&mut self.ended).filter(|(_, ended)| ended.is_none())
    }

    fn results(&mut self) -> Vec<Result<(), LeaseError>> {
        std::mem::take(&mut self.ended).into_iter().flatten().collect()
    }
}

impl Operation for Together<'_> {
    type Output = Vec<Result<(), LeaseError>>;

    async fn prepare(&mut self, tr: &Transaction) -> Result<Step<Self::Output>, QueueError> {
        for (change, ended) in self.open() {
            if let Step::End(result) = change.plan(tr).await? {
                *ended = Some(result);
            }
        }
        // Only now: until all are planned, nothing is about to commit.
        self.open().for_each(|(change, _)| change.note());
        let is_over = self.open().next().is_none();
        Ok(if is_over { Step::End(self.results()) } else { Step::Commit })
    }

    fn committed(&mut self, _: &TransactionCommitted) -> Option<Self::Output> {
        for (change, ended) in self.open() {
            change.has_committed();
            *ended = Some(Ok(()));
        }
        Some(self.results())
    }

    fn failed(&mut self, error: FdbError) {
        if !maybe_committed(error) {
            self.open().for_each(|(change, _)| change.lease.unsure = change.unsure_before.take());
        }
    }
}

/// Whether all leases of the queue may have been cleared before their deadlines: by a migration,
/// which leaves the queue frozen, or with the queue, whose counters are then gone too.
async fn was_cleared_by_others(space: &Space, tr: &Transaction) -> Result<bool, QueueError> {
    let npop = async { Ok(tr.get(space.counter(Counter::Pop), true).await?) };
    let (pause, npop) = try_join(crate::run::pause::paused(space, tr), npop).await?;
    Ok(npop.is_none() || pause.is_some_and(|pause| pause.frozen))
}

/// An acknowledgement that is in a transaction of the caller's and has not committed.
#[derive(Debug)]
#[must_use = "pass it to `Lease::acknowledged` once the transaction has committed"]
pub struct Acknowledgement {
    header: Header,
    /// The items that the transaction has found cancelled.
    cancelled: Option<CancelledItems>,
}

/// The outcome of a commit that was unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitStatus {
    /// The transaction has committed.
    Committed,
    /// It has not committed; the lease is still held, or an item was cancelled.
    NotCommitted,
    /// The lease is gone. If it expired before the transaction could commit, the transaction did
    /// not commit; nothing in the database tells any more.
    Lost,
}
