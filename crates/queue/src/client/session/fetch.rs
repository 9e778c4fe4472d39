//! Fetching items: on a lease, or for good.

use std::num::NonZeroUsize;
use std::time::Duration;

use foundationdb::{Database, FdbError, Transaction, TransactionCommitted};

use super::Session;
use super::aside::max_aside;
use super::plan::{Chosen, Moved, Plan, Source};
use crate::client::approach::Approach;
use crate::client::lease::Lease;
use crate::client::session::fetched::{Fetched, Share};
use crate::client::session::options::{FetchOptions, Goal};
use crate::model::codes::NOT_COMMITTED;
use crate::model::error::{FetchError, QueueError};
use crate::model::id::ItemId;
use crate::model::item::Item;
use crate::model::time::versions;
use crate::run::operation::{Operation, Step, complete};
use crate::run::retry::{Done, maybe_committed};
use crate::run::version::committed_at;
use crate::run::version_history::VersionHistory;
use crate::run::watch::Watch;

impl Session {
    /// Moves up to `options.k` ready items to a lease.
    ///
    /// If a fetch fails, or its future is dropped, it may have got items. The session's next fetch
    /// returns them. Without a next fetch their lease expires.
    ///
    /// On a cluster the lease is durable when this returns. The embedded engine has written it by
    /// then and flushes it a moment later. So the lease survives the end of any process. After a
    /// power failure within that moment the items are ready, as if the lease had expired.
    pub async fn fetch(
        &mut self,
        db: &Database,
        options: &mut FetchOptions<'_>,
    ) -> Result<Fetched<Option<Lease>>, FetchError> {
        let shares = [(options.k, versions(options.lease).max(1))];
        let fetched = self.run_fetch(db, options, Goal::Lease(&shares)).await?;
        Ok(fetched.map(|mut moved| moved.leases.pop()))
    }

    /// Fetches for several workers in one transaction. A share is what one worker asks for, and
    /// gets a lease of its own: the first share has the first items of the queue, and so on. There are fewer leases than shares, for the
    /// first of these, if there are too few items or they do not fit into one transaction.
    ///
    /// The fetch begins at the front. Items that may have killed a worker go to the first share
    /// alone. The workers are other processes, so these leases do not prevent this process from
    /// fetching more such items ([`Lease::is_in_quarantine`]). For the rest, see
    /// [`Session::fetch`].
    pub async fn fetch_for(
        &mut self,
        db: &Database,
        shares: &[Share],
        watch: bool,
    ) -> Result<Fetched<Vec<Lease>>, FetchError> {
        let Some(k) = shares.iter().map(|share| share.k).reduce(|k, more| k.saturating_add(more.get()))
        else {
            return Ok(Fetched::default());
        };
        let lengths: Vec<_> = shares.iter().map(|share| (share.k, versions(share.lease).max(1))).collect();
        let mut approach = Approach::Front;
        let mut options = FetchOptions::new(k, Duration::ZERO, &mut approach).with_watch(watch);
        let fetched = self.run_fetch(db, &mut options, Goal::Lease(&lengths)).await?;
        let mut fetched = fetched.map(|moved| moved.leases);
        fetched.got.iter_mut().for_each(Lease::leave_quarantine);
        Ok(fetched)
    }

    /// Removes and returns the first `k` items, or all if there are fewer. If there are none,
    /// returns a watch.
    ///
    /// Two sessions that take at the same time conflict; pushes and takes do not. The watch begins
    /// in a transaction that saw the queue empty, and that committed.
    pub async fn take(&mut self, db: &Database, k: NonZeroUsize) -> Result<Fetched<Vec<Item>>, FetchError> {
        let mut approach = Approach::Front;
        let mut options = FetchOptions::new(k, Duration::ZERO, &mut approach).with_watch(true);
        self.take_with(db, &mut options).await
    }

    /// The same with options.
    pub async fn take_with(
        &mut self,
        db: &Database,
        options: &mut FetchOptions<'_>,
    ) -> Result<Fetched<Vec<Item>>, FetchError> {
        if !self.recovered.is_empty() {
            return Ok(Fetched {
                recovered: true,
                got: self.take_recovered(options.k),
                ..Fetched::default()
            });
        }
        Ok(self.run_fetch(db, options, Goal::Remove).await?.map(|moved| moved.items))
    }

    async fn run_fetch(
        &mut self,
        db: &Database,
        options: &mut FetchOptions<'_>,
        goal: Goal<'_>,
    ) -> Result<Fetched<Moved>, FetchError> {
        let (policy, k) = (self.policy, options.k.get());
        let mut fetch = Fetch { session: self, db, options, goal, aside: Vec::new(), plan: Plan::default() };
        match complete(db, &policy, &mut fetch).await {
            Ok(Done { value, attempts }) => Ok(Fetched { attempts, ..value }),
            Err(error) => {
                self.give_up(db).await;
                Err(FetchError::refused(error, k))
            }
        }
    }
}

struct Fetch<'s, 'o, 'a> {
    session: &'s mut Session,
    db: &'s Database,
    options: &'o mut FetchOptions<'a>,
    goal: Goal<'o>,
    /// The unreadable items that it has made dead letters.
    aside: Vec<ItemId>,
    plan: Plan,
}

impl Operation for Fetch<'_, '_, '_> {
    type Output = Fetched<Moved>;

    async fn prepare(&mut self, tr: &Transaction) -> Result<Step<Fetched<Moved>>, QueueError> {
        match self.plan(tr).await {
            Err(QueueError::UnreadableItem { id, .. })
                if !self.aside.contains(&id) && self.aside.len() < max_aside() =>
            {
                self.session.put_aside(self.db, &id).await?;
                self.aside.push(id);
                Ok(Step::Again)
            }
            step => step,
        }
    }

    fn committed(&mut self, committed: &TransactionCommitted) -> Option<Fetched<Moved>> {
        let Fetch { session, options, .. } = self;
        let (got, source) = match std::mem::take(&mut self.plan) {
            Plan::Nothing(nothing) => {
                if let Goal::Remove = self.goal {
                    // No earlier take had committed by then, and none will: the items that it read
                    // are gone.
                    session.unresolved.void();
                }
                let watch = nothing.watch.map(|watch| watch.paced(self.db));
                return Some(Fetched { watch, ..nothing });
            }
            Plan::Tidy => return None,
            Plan::Request(step) => {
                session.request_committed(step, options);
                return None;
            }
            Plan::Remove(source) => (Moved::out(session.taken()), source),
            Plan::Lease(leases, source) => {
                // Earlier attempts have not committed, and will not.
                session.unsure.clear();
                (Moved::to(leases), source)
            }
        };
        session.asked.clear();
        session.avoidance.committed();
        session.partitions.committed(|| committed_at(committed));
        options.won(got.last(), source);
        Some(Fetched { got, version: committed_at(committed), ..Fetched::default() })
    }

    fn failed(&mut self, error: FdbError) {
        // Not kept until the next attempt: a lease with suspects holds their place in the
        // quarantine.
        let source = match std::mem::take(&mut self.plan) {
            Plan::Nothing(_) | Plan::Tidy => return,
            Plan::Request(step) => return self.session.request_failed(step, error),
            Plan::Remove(source) => {
                self.session.unresolved.failed(error);
                source
            }
            Plan::Lease(_, source) => {
                if !maybe_committed(error) {
                    self.session.forget_last_attempt();
                }
                source
            }
        };
        let lost = error.code() == NOT_COMMITTED;
        let session = &mut *self.session;
        session.partitions.failed(lost && source != Source::Others, &mut session.rng);
        if lost {
            session.avoidance.conflicted(&mut session.rng);
            self.options.lost(source);
        }
    }
}

impl Fetch<'_, '_, '_> {
    /// Fills the transaction of an attempt.
    async fn plan(&mut self, tr: &Transaction) -> Result<Step<Fetched<Moved>>, QueueError> {
        let Fetch { session, options, goal, .. } = self;
        let began = session.history.as_ref().map(VersionHistory::now);
        match *goal {
            Goal::Remove => {
                session.resolve(tr).await?;
                if !session.recovered.is_empty() {
                    let got = Moved::out(session.take_recovered(options.k));
                    return Ok(Step::End(Fetched { got, recovered: true, ..Fetched::default() }));
                }
            }
            Goal::Lease(_) => {
                if let Some(lease) = session.find_unsure(tr).await? {
                    let got = Moved::to(vec![lease]);
                    return Ok(Step::End(Fetched { got, recovered: true, ..Fetched::default() }));
                }
            }
        }
        self.plan = match (session.choose(tr, options, *goal).await?, *goal) {
            (Chosen::Waits(key), _) => return Ok(Step::Wait(key)),
            (Chosen::Steps(step), _) => Plan::Request(step),
            (Chosen::Tidied, _) => Plan::Tidy,
            // The watch reads `npush` (or `nactive`), so in a transaction that writes it would conflict with every
            // push. Only a fetch that finds nothing, and so writes nothing, makes one.
            (Chosen::Empty(look_again_in), _) => {
                let watch = session.watch_empty(tr, options).await?;
                Plan::Nothing(Fetched { watch, look_again_in, ..Fetched::default() })
            }
            (Chosen::Full(look_again_in, row), _) => {
                let watch = options.watch.then(|| Watch::new(tr.watch(&row)));
                Plan::Nothing(Fetched { watch, is_full: true, look_again_in, ..Fetched::default() })
            }
            (Chosen::Rows(rows, seen), Goal::Remove) => {
                session.remove(tr, &rows).await?;
                Plan::Remove(Source::Queue { seen })
            }
            (Chosen::Rows(rows, seen), Goal::Lease(shares)) => {
                let leases = session.put_leases(tr, shares, rows, began).await?;
                Plan::Lease(leases, Source::Queue { seen })
            }
            (Chosen::Served(id, header, held), Goal::Remove) => {
                session.remove_served(tr, id, header, &held).await?;
                Plan::Remove(Source::Others)
            }
            (Chosen::Served(id, header, held), Goal::Lease(_)) => {
                let leases = session.take_up(tr, id, header, held, began).await?;
                Plan::Lease(leases, Source::Others)
            }
        };
        Ok(Step::Commit)
    }
}
