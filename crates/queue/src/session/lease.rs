//! Fetching items: moving them to a lease.

use std::num::NonZeroUsize;
use std::time::Duration;

use foundationdb::options::TransactionOption;
use foundationdb::{Database, Transaction};

use super::Session;
use super::choose::Chosen;
use super::request;
use crate::approach::{Approach, Extent};
use crate::error::{FetchError, QueueError};
use crate::item::Item;
use crate::keys::leases::{Header, Held, LeaseId};
use crate::lease::Lease;
use crate::ops::lease::row;
use crate::ops::scan::Row;
use crate::ops::version::{committed_at, now};
use crate::ops::{lease, scan};
use crate::retry::{Attempts, NOT_COMMITTED, Retry, RetryError, maybe_committed};
use crate::suspects::{Suspicion, Ward};
use crate::time::versions;
use crate::version_history::VersionHistory;
use crate::watch::Watch;

/// How many attempts of unknown outcome are remembered; each is looked for by the attempt that follows it.
const MAX_UNSURE: usize = 64;

/// What [`Session::fetch`] and [`Session::take_with`] are to do.
#[derive(Debug)]
#[non_exhaustive]
pub struct FetchOptions<'a> {
    /// The most items.
    pub k: NonZeroUsize,
    /// The length of the lease, by the database's versions: to a microsecond. `take_with` needs none.
    pub lease: Duration,
    /// Where to look for the items.
    pub approach: &'a mut Approach,
    /// Whether to watch an empty queue. The default is not to.
    pub watch: bool,
}

impl<'a> FetchOptions<'a> {
    /// Up to `k` items, for this time, without a watch.
    pub fn new(k: NonZeroUsize, lease: Duration, approach: &'a mut Approach) -> FetchOptions<'a> {
        FetchOptions { k, lease, approach, watch: false }
    }

    /// The same with a watch of an empty queue, or without one.
    #[must_use]
    pub fn with_watch(self, watch: bool) -> FetchOptions<'a> {
        FetchOptions { watch, ..self }
    }

    /// It committed, with these items.
    pub(super) fn won(&mut self, items: &[Item], by: By) {
        match (by, items.last()) {
            (By::Others, _) => self.approach.done(),
            (By::Itself { seen }, Some(last)) => self.approach.committed(seen, &last.id),
            (By::Itself { .. }, None) => {}
        }
    }

    /// It did not commit, because of what others did.
    pub(super) fn lost(&mut self, by: By) {
        // Nobody takes what it was served with, but a sweeper does if it comes too late.
        if let By::Itself { seen } = by {
            self.approach.conflicted(seen);
        }
    }
}

/// How a take gets its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// By itself; and what was seen of the queue.
    Itself { seen: Extent },
    /// Others have served it.
    Others,
}

/// The result of [`Session::fetch`].
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "the items stay on their lease until it expires"]
pub struct Fetched {
    /// The items; `None` if there were none.
    pub lease: Option<Lease>,
    /// Resolves after the next push. Only where there were no items and the take asked for a watch.
    pub watch: Option<Watch>,
    /// Whether the lease is older than this take: an earlier one had made it after all. Its deadline may be near: extend the lease
    /// first. It is what the earlier take asked for, which may have been more items, or another length, than this one asks for: release
    /// what is too many.
    pub recovered: bool,
    /// The database version at which it committed; `None` if there are no items, or if the lease is older than this take.
    pub version: Option<u64>,
    /// What it went through.
    pub attempts: Attempts,
}

/// An attempt that may have committed.
#[derive(Debug)]
pub(super) struct Unsure {
    pub(super) id: LeaseId,
    items: Vec<Item>,
    held: Vec<Held>,
}

/// How an attempt goes on.
enum FetchStep {
    /// An earlier one had committed: this is its lease.
    Found(Lease),
    /// There is nothing to take.
    Empty(Option<Watch>),
    /// The transaction takes what is last in `unsure`.
    Takes(Lease, By),
    /// It is not this take's turn; it waits for this key.
    Waits(Vec<u8>),
    /// The transaction is one of several that the take needs.
    Steps(request::RequestStep),
}

impl Session {
    /// Moves up to `take.k` ready items to a lease.
    ///
    /// If a fetch fails, or its future is dropped, it may have got items. The session's next fetch returns
    /// them. Without a next fetch their lease expires.
    ///
    /// On a cluster the lease is durable when this returns. The embedded engine has written it by then and
    /// flushes it a moment later. So the lease survives the end of any process. After a power failure within
    /// that moment the items are ready, as if the lease had expired.
    pub async fn fetch(&mut self, db: &Database, take: &mut FetchOptions<'_>) -> Result<Fetched, FetchError> {
        let leased = self.lease_until_done(db, take).await;
        if leased.is_err() {
            self.give_up(db).await;
        }
        leased.map_err(|error| FetchError::refused(error, take.k.get()))
    }

    async fn lease_until_done(
        &mut self,
        db: &Database,
        take: &mut FetchOptions<'_>,
    ) -> Result<Fetched, RetryError> {
        let (mut retry, mut tr) = Retry::begin(db, &self.policy)?;
        let mut aside = Vec::new();
        loop {
            let began = self.history.as_ref().map(VersionHistory::now);
            let prepared = self.prepare_lease(&tr, take).await;
            let attempts = retry.attempts;
            let leased = |lease, recovered, version| {
                let lease = Some(lease);
                Fetched { lease, watch: None, recovered, version, attempts }
            };
            tr = match prepared {
                Err(error) => self.after_take(db, &mut retry, tr, error, &mut aside).await?,
                Ok(FetchStep::Found(lease)) => return Ok(leased(lease, true, None)),
                Ok(FetchStep::Empty(watch)) => match tr.commit().await {
                    Err(error) => retry.after_commit(error).await?,
                    Ok(_committed) => {
                        let watch = watch.map(|watch| watch.paced(db));
                        return Ok(Fetched { lease: None, watch, recovered: false, version: None, attempts });
                    }
                },
                Ok(FetchStep::Waits(key)) => retry.wait(db, tr, &key).await?,
                Ok(FetchStep::Steps(step)) => self.commit_step(&mut retry, tr, step, take).await?,
                Ok(FetchStep::Takes(mut lease, by)) => match tr.commit().await {
                    Err(error) => {
                        if !maybe_committed(*error) {
                            self.unsure.pop_back();
                        }
                        if error.code() == NOT_COMMITTED {
                            take.lost(by);
                        }
                        retry.after_commit(error).await?
                    }
                    Ok(committed) => {
                        // Those before it did not commit, and will not.
                        self.unsure.clear();
                        self.asked.clear();
                        take.won(lease.items(), by);
                        lease.changed_since(began);
                        return Ok(leased(lease, false, committed_at(&committed)));
                    }
                },
            };
        }
    }

    async fn prepare_lease(
        &mut self,
        tr: &Transaction,
        take: &mut FetchOptions<'_>,
    ) -> Result<FetchStep, QueueError> {
        if let Some(lease) = self.find_unsure(tr).await? {
            return Ok(FetchStep::Found(lease));
        }
        let length = versions(take.lease).max(1);
        match self.choose(tr, take, length).await? {
            Chosen::Empty => Ok(FetchStep::Empty(self.watch_empty(tr, take).await?)),
            Chosen::Waits(key) => Ok(FetchStep::Waits(key)),
            Chosen::Steps(step) => Ok(FetchStep::Steps(step)),
            Chosen::Rows(rows, seen) => {
                Ok(FetchStep::Takes(self.put_lease(tr, length, rows).await?, By::Itself { seen }))
            }
            Chosen::Served(id, header, held) => {
                Ok(FetchStep::Takes(self.take_up(tr, id, header, held).await?, By::Others))
            }
        }
    }

    /// Writes the lease of rows that the transaction removes.
    async fn put_lease(
        &mut self,
        tr: &Transaction,
        length: u64,
        rows: Vec<Row>,
    ) -> Result<Lease, QueueError> {
        let space = self.queue.space().clone();
        let items = scan::items(&space, tr, &rows).await?;
        let held = lease::hold(rows);
        let id = LeaseId { session: self.id, number: self.next_attempt() };
        let deadline = now(tr).await?.saturating_add(length);
        let header = lease::put(&space, tr, id, (deadline, length), &held);
        self.hold(tr, id, &header, items, held)
    }

    /// Makes a lease this session's that others have served it with. Its time runs from here, and from here on an attempt is spent.
    async fn take_up(
        &mut self,
        tr: &Transaction,
        id: LeaseId,
        header: Header,
        held: Vec<Held>,
    ) -> Result<Lease, QueueError> {
        let space = self.queue.space().clone();
        let rows: Vec<Row> = held.iter().map(row).collect();
        let items = scan::items(&space, tr, &rows).await?;
        let deadline = now(tr).await?.saturating_add(header.length);
        let header = Header { served: false, deadline, ..header };
        lease::update(&space, tr, id, &header);
        self.hold(tr, id, &header, items, held)
    }

    /// The lease that a transaction makes, if it commits.
    fn hold(
        &mut self,
        tr: &Transaction,
        id: LeaseId,
        header: &Header,
        items: Vec<Item>,
        held: Vec<Held>,
    ) -> Result<Lease, QueueError> {
        let space = self.queue.space().clone();
        // A lease that a power failure undoes returns its items, as its end would; so it need not be on the disk before they are
        // handled. Whatever becomes of them is written after it. A cluster does not know the option.
        tr.set_option(TransactionOption::DurabilityRisky)?;
        lease::fence(&space, tr, self.id)?;
        if self.unsure.len() == MAX_UNSURE {
            self.unsure.pop_front();
        }
        self.unsure.push_back(Unsure { id, items: items.clone(), held: held.clone() });
        let ward = self.ward.take().or_else(|| self.enter(&items));
        Ok(Lease::new(space, id, header, items, held, ward).with_history(self.history.as_ref()))
    }

    /// Enters suspects that the session has got into the quarantine, if there are no others in it.
    fn enter(&self, items: &[Item]) -> Option<Ward> {
        let crashes = items.iter().filter_map(|item| item.meta.as_ref()).map(|meta| meta.crashes).max();
        let suspicion = Suspicion::of(crashes.unwrap_or(0));
        (suspicion > Suspicion::None).then(|| self.quarantine.enter(&self.queue.space().ready, suspicion))?
    }

    /// The lease of an attempt of unknown outcome, if it committed and was not taken away since.
    async fn find_unsure(&mut self, tr: &Transaction) -> Result<Option<Lease>, QueueError> {
        for at in 0..self.unsure.len() {
            let id = self.unsure[at].id;
            let header = lease::header(self.queue.space(), tr, id).await?;
            // What others have served and was not taken up is found as such.
            if let Some(header) = header.filter(|header| !header.served) {
                let Some(Unsure { id, items, held }) = self.unsure.remove(at) else { continue };
                self.unsure.clear();
                self.asked.clear();
                let ward = self.enter(&items);
                let lease = Lease::new(self.queue.space().clone(), id, &header, items, held, ward);
                return Ok(Some(lease.with_history(self.history.as_ref())));
            }
        }
        Ok(None)
    }
}
