//! Asking to be served: a session's side of the recipe's high-contention dequeue.
//!
//! A take that lost against another asks: it registers a request in a line. Then it looks again and again whether it was served,
//! and whether it is its turn to serve: the first process serves the line, so that those behind do not conflict with it; and
//! those behind it do, one after the other, if the first does not for a while, since it may be dead. Served means that a lease was written under the id that
//! the request names. So this id tells what became of the request, whatever became of its session's commits:
//!
//! * There is such a lease: it was served, and takes it up.
//! * There is such a request: it waits.
//! * There is neither: it was not registered, or it was dropped, or its lease ran out; and as every attempt to ask is fenced
//!   against the session's next one, it will not be registered later either once that has committed.

use std::num::NonZeroUsize;

use foundationdb::{Database, FdbError, Transaction};

use super::FetchOptions;
use super::Session;
use super::plan::{Chosen, RequestStep};
use crate::keys::leases;
use crate::keys::leases::Header;
use crate::keys::wants::Want;
use crate::model::error::QueueError;
use crate::model::lease_id::LeaseId;
use crate::model::outcome::ItemOutcome;
use crate::model::place::Place;
use crate::model::suspicion::Suspicion;
use crate::ops::acknowledge::{acknowledge, part};
use crate::ops::ready::find;
use crate::ops::serve::{demand, serve};
use crate::ops::{lease, want};
use crate::run::retry::{Retry, maybe_committed};
use crate::run::version::now;

/// How much of what a session has to give back a transaction gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handed {
    /// All there was.
    All,
    /// There is more.
    Part,
}

impl Session {
    /// Looks what became of the session's request, if it may have made one, and goes on with it.
    ///
    /// A request that is not what this take wants is taken back, and so is one where there is nothing to take. `None`: there is no
    /// request, so the take is for itself alone.
    ///
    /// The transaction may serve its own request. Then a lease for the rows is still to be written, under an id of its own: another
    /// session may serve the request with other rows, if this transaction does not commit.
    pub(super) async fn continue_request(
        &mut self,
        tr: &Transaction,
        take: &mut FetchOptions<'_>,
        length: u64,
    ) -> Result<Option<Chosen>, QueueError> {
        if self.asked.ids.is_empty() {
            return Ok(None);
        }
        let space = self.queue.space().clone();
        if let Some((id, header)) = self.find_served(tr).await? {
            let held = lease::body(&space, tr, id, &header, false).await?;
            return Ok(Some(Chosen::Served(id, header, held)));
        }
        let now = now(tr).await?;
        let line = want::line(&space, tr, &self.asked.ids, now).await?;
        let Some(own) = &line.own else { return Ok(None) };
        self.asked.is_only(own.want.lease);
        let serves = line.serves(self.asked.waited(&line, now));
        let mut rows = Vec::new();
        if take.approach.is_staged() && own.want.k <= take.k && own.want.length == length {
            let limit = if serves { demand(&line) } else { NonZeroUsize::MIN };
            rows = find(&space, tr, limit, &Place::default()).await?;
            rows = self.pass_over(tr, limit, rows, false, || Suspicion::Once).await?;
        }
        if rows.is_empty() {
            want::remove(tr, &own.key)?;
            return Ok(Some(Chosen::Steps(RequestStep::Leaves)));
        }
        if !serves {
            return Ok(Some(Chosen::Waits(leases::key(&space.leases, own.want.lease))));
        }
        line.expired.iter().try_for_each(|key| want::remove(tr, key))?;
        let seen = self.extent(tr, take).await?;
        Ok(Some(match serve(&space, tr, &line, rows, now)? {
            Some(rows) => Chosen::Rows(rows, seen),
            None => Chosen::Steps(RequestStep::Serves),
        }))
    }

    /// Asks for what the take wants.
    pub(super) async fn ask(
        &mut self,
        tr: &Transaction,
        take: &FetchOptions<'_>,
        length: u64,
    ) -> Result<(), QueueError> {
        let space = self.queue.space().clone();
        let lease = LeaseId { session: self.id, number: self.next_attempt() };
        let deadline = now(tr).await?.saturating_add(want::LIFE);
        want::ask(&space, tr, &Want { lease, k: take.k, length, deadline, last: space.kind.takes_last() });
        lease::fence(&space, tr, self.id)?;
        self.asked.ids.push(lease);
        Ok(())
    }

    /// A transaction of a request has committed.
    pub(super) fn request_committed(&mut self, step: RequestStep, options: &mut FetchOptions<'_>) {
        match (step, self.asked.ids.last()) {
            (RequestStep::Asks, Some(id)) => self.asked.is_only(*id),
            (RequestStep::Leaves, _) => {
                self.asked.clear();
                options.approach.done();
            }
            (RequestStep::Asks | RequestStep::Serves, _) => {}
        }
    }

    /// The commit of a transaction of a request has failed.
    pub(super) fn request_failed(&mut self, step: RequestStep, error: FdbError) {
        if step == RequestStep::Asks && !maybe_committed(error) {
            self.asked.ids.pop();
        }
    }

    /// Gives back what a take that failed may have got and asked for. What cannot be given back now, the next take finds.
    pub(super) async fn give_up(&mut self, db: &Database) {
        if self.asked.ids.is_empty() {
            return;
        }
        let Ok((_, tr)) = Retry::begin(db, &self.policy) else { return };
        // Not a part of it: a lease that the next take finds must not hold what is ready again.
        let all = self.hand_back(&tr).await.is_ok_and(|handed| handed == Handed::All);
        if all && lease::fence(self.queue.space(), &tr, self.id).is_ok() {
            let committed = tr.commit().await.is_ok();
            if committed {
                self.asked.clear();
                self.unsure.clear();
            }
        }
    }

    /// Releases what attempts of unknown outcome got, or as much of it as goes into a transaction; and with the last of it, takes the
    /// session's request back.
    pub(super) async fn hand_back(&mut self, tr: &Transaction) -> Result<Handed, QueueError> {
        let space = self.queue.space().clone();
        let ids: Vec<LeaseId> =
            self.unsure.iter().map(|unsure| unsure.id).chain(self.asked.ids.iter().copied()).collect();
        for id in ids {
            if let Some(header) = lease::header(&space, tr, id).await? {
                let held = lease::body(&space, tr, id, &header, false).await?;
                let all: Vec<_> =
                    header.acknowledged.open().map(|index| (index, ItemOutcome::Release)).collect();
                let part = part(&space, &held, &all);
                acknowledge(&space, tr, (id, header), &held, &all[..part], None).await?;
                if part < all.len() {
                    return Ok(Handed::Part);
                }
            }
        }
        if !self.asked.ids.is_empty() {
            let line = want::line(&space, tr, &self.asked.ids, 0).await?;
            line.own.iter().try_for_each(|own| want::remove(tr, &own.key))?;
        }
        Ok(Handed::All)
    }

    async fn find_served(&self, tr: &Transaction) -> Result<Option<(LeaseId, Header)>, QueueError> {
        for id in &self.asked.ids {
            if let Some(header) = lease::header(self.queue.space(), tr, *id).await? {
                return Ok(Some((*id, header)));
            }
        }
        Ok(None)
    }
}
