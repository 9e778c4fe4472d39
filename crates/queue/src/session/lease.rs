//! Writing the lease of a fetch.

use foundationdb::Transaction;
use foundationdb::options::TransactionOption;

use super::Session;
use crate::error::QueueError;
use crate::item::Item;
use crate::keys::leases::{Header, Held, LeaseId};
use crate::lease::Lease;
use crate::ops::lease::row;
use crate::ops::scan::Row;
use crate::ops::version::now;
use crate::ops::{lease, scan};
use crate::suspects::{Suspicion, Ward};

/// How many attempts of unknown outcome are remembered. Each attempt looks for those before it.
const MAX_UNSURE: usize = 64;

/// A fetch that may have committed.
#[derive(Debug)]
pub(super) struct Unsure {
    pub(super) id: LeaseId,
    items: Vec<Item>,
    held: Vec<Held>,
}

impl Session {
    /// Writes the lease of rows that the transaction removes. `began` is a time before it, by the session's history.
    pub(super) async fn put_lease(
        &mut self,
        tr: &Transaction,
        length: u64,
        rows: Vec<Row>,
        began: Option<u64>,
    ) -> Result<Lease, QueueError> {
        let space = self.queue.space().clone();
        let items = scan::items(&space, tr, &rows).await?;
        let held = lease::hold(rows);
        let id = LeaseId { session: self.id, number: self.next_attempt() };
        let deadline = now(tr).await?.saturating_add(length);
        let header = lease::put(&space, tr, id, (deadline, length), &held);
        Ok(self.hold(tr, id, &header, items, held)?.changed_since(began))
    }

    /// Takes over a lease that another session has written for this one. Its time begins now, and so does the attempt.
    pub(super) async fn take_up(
        &mut self,
        tr: &Transaction,
        id: LeaseId,
        header: Header,
        held: Vec<Held>,
        began: Option<u64>,
    ) -> Result<Lease, QueueError> {
        let space = self.queue.space().clone();
        let rows: Vec<Row> = held.iter().map(row).collect();
        let items = scan::items(&space, tr, &rows).await?;
        let deadline = now(tr).await?.saturating_add(header.length);
        let header = Header { served: false, deadline, ..header };
        lease::update(&space, tr, id, &header);
        Ok(self.hold(tr, id, &header, items, held)?.changed_since(began))
    }

    /// The lease that a transaction makes if it commits.
    fn hold(
        &mut self,
        tr: &Transaction,
        id: LeaseId,
        header: &Header,
        items: Vec<Item>,
        held: Vec<Held>,
    ) -> Result<Lease, QueueError> {
        let space = self.queue.space().clone();
        // If a power failure undoes the lease, its items are ready, as after its end. So it need not be on the disk before they
        // are handled; their outcomes are written after it. A cluster ignores the option.
        tr.set_option(TransactionOption::DurabilityRisky)?;
        lease::fence(&space, tr, self.id)?;
        if self.unsure.len() == MAX_UNSURE {
            self.unsure.pop_front();
        }
        self.unsure.push_back(Unsure { id, items: items.clone(), held: held.clone() });
        let ward = self.ward.take().or_else(|| self.enter(&items));
        Ok(Lease::new(space, id, header, items, held, ward).with_history(self.history.as_ref()))
    }

    /// Enters the suspects among the items into the quarantine, if it is empty.
    fn enter(&self, items: &[Item]) -> Option<Ward> {
        let crashes = items.iter().filter_map(|item| item.meta.as_ref()).map(|meta| meta.crashes).max();
        let suspicion = Suspicion::of(crashes.unwrap_or(0));
        (suspicion > Suspicion::None).then(|| self.quarantine.enter(&self.queue.space().ready, suspicion))?
    }

    /// The lease of an earlier fetch of unknown outcome, if that has committed and the lease is not lost.
    pub(super) async fn find_unsure(&mut self, tr: &Transaction) -> Result<Option<Lease>, QueueError> {
        for at in 0..self.unsure.len() {
            let id = self.unsure[at].id;
            let header = lease::header(self.queue.space(), tr, id).await?;
            // A lease that another session wrote for this one is not taken up yet.
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
