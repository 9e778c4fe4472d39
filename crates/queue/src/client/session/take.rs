//! Removing items for good, each at most once.

use std::num::NonZeroUsize;

use foundationdb::Transaction;

use super::{FetchOptions, Session, unresolved::Effect};
use crate::keys::leases::{Header, Held};
use crate::model::error::QueueError;
use crate::model::item::Item;
use crate::model::lease_id::LeaseId;
use crate::ops::claim::forget;
use crate::ops::lease::row;
use crate::ops::scan::Row;
use crate::ops::{ended, kinds, lease, scan};
use crate::run::token;
use crate::run::watch::Watch;

impl Session {
    /// The watch of a fetch that found nothing, if its options ask for one. Before it waits, it makes sure that the queue
    /// has no items of another kind.
    pub(super) async fn watch_empty(
        &self,
        tr: &Transaction,
        options: &FetchOptions<'_>,
    ) -> Result<Option<Watch>, QueueError> {
        if !options.watch {
            return Ok(None);
        }
        kinds::check_elsewhere(self.queue.space(), tr).await?;
        Ok(Some(self.queue.watch(tr)))
    }

    /// Ends the items of rows that the transaction removes, notes them, and writes the attempt's number.
    pub(super) async fn remove(&mut self, tr: &Transaction, rows: &[Row]) -> Result<(), QueueError> {
        let space = self.queue.space().clone();
        let items = scan::items(&space, tr, rows).await?;
        rows.iter().try_for_each(|row| forget(&space, tr, &row.id, &row.meta))?;
        ended::taken(&space, tr, rows).await?;
        let attempt = self.next_attempt();
        token::mark(&space, tr, self.id, attempt)?;
        self.unresolved.note(attempt, Effect::Took(items));
        Ok(())
    }

    /// The same for the items that others have put on a lease for this session.
    pub(super) async fn remove_served(
        &mut self,
        tr: &Transaction,
        id: LeaseId,
        mut header: Header,
        held: &[Held],
    ) -> Result<(), QueueError> {
        // Items that were cancelled since have ended.
        let rows: Vec<Row> = header.acknowledged.open().map(|index| row(&held[index])).collect();
        header.acknowledged.fill();
        lease::update(self.queue.space(), tr, id, &header);
        self.remove(tr, &rows).await
    }

    /// The items that the attempt which has just committed removed.
    pub(super) fn taken(&mut self) -> Vec<Item> {
        match self.unresolved.committed() {
            Some(Effect::Took(items)) => items,
            Some(Effect::Pushed(_)) | None => Vec::new(),
        }
    }

    /// Items that an earlier take removed. There may be fewer than that take had asked for: the next take returns the others.
    pub(super) fn take_recovered(&mut self, k: NonZeroUsize) -> Vec<Item> {
        let n = k.get().min(self.recovered.len());
        self.recovered.drain(..n).collect()
    }
}
