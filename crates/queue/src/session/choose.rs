//! Which items a take gets: those at the place that its approach names, or what it is served with.

use std::num::NonZeroUsize;

use foundationdb::Transaction;
use futures::FutureExt;
use futures::future::{ready, try_join};

use super::request::{Step, Turn};
use super::{Session, Take};
use crate::approach::{Extent, Place};
use crate::error::QueueError;
use crate::keys::leases::{Header, Held, LeaseId};
use crate::ops::claim::{find, is_full, take, together};
use crate::ops::find::has_keys;
use crate::ops::scan::Row;
use crate::ops::{lease, want};

/// What a transaction can do for a take.
pub(super) enum Chosen {
    /// It removes these rows; and what was seen of the queue.
    Rows(Vec<Row>, Extent),
    /// The take was served; this is its lease.
    Served(LeaseId, Header, Vec<Held>),
    /// There is nothing to take. It has only read.
    Empty,
    /// It has only read, and the take has to wait until this key is there, or for its turn.
    Waits(Vec<u8>),
    /// It is one of several that the take needs.
    Steps(Step),
}

impl Session {
    /// Chooses by the approach of the take, and removes what was chosen. `length` is what a lease is asked for; 0: none.
    pub(super) async fn choose(
        &mut self,
        tr: &Transaction,
        take: &mut Take<'_>,
        length: u64,
    ) -> Result<Chosen, QueueError> {
        match self.turn(tr, take, length).await? {
            Turn::Free if take.approach.is_staged() => self.choose_or_ask(tr, take, length).await,
            Turn::Free => self.choose_at_place(tr, take).await,
            Turn::Own(rows, seen) => Ok(Chosen::Rows(rows, seen)),
            Turn::Served(id, header) => {
                let held = lease::body(self.queue.space(), tr, id, &header).await?;
                Ok(Chosen::Served(id, header, held))
            }
            Turn::Waits(key) => Ok(Chosen::Waits(key)),
            Turn::Steps(step) => Ok(Chosen::Steps(step)),
        }
    }

    async fn choose_at_place(&mut self, tr: &Transaction, take: &mut Take<'_>) -> Result<Chosen, QueueError> {
        // Ends soon: where nothing was, the next place is nearer to the front, and at the latest where there is known to be something.
        loop {
            let place = take.approach.place(take.k.get(), &mut self.rng);
            let found = self.find(tr, take, &place).await?;
            if place.is_front() || !found.0.is_empty() {
                return self.claim(tr, take.k, found, &place);
            }
            take.approach.beyond(found.1);
        }
    }

    /// What there is at a place, and how long the queue is, if the approach wants to know.
    async fn find(
        &self,
        tr: &Transaction,
        take: &Take<'_>,
        place: &Place,
    ) -> Result<(Vec<Row>, Extent), QueueError> {
        try_join(find(self.queue.space(), tr, take.k, place), self.extent(tr, take)).await
    }

    /// Removes those of the rows found that one take gets.
    fn claim(
        &self,
        tr: &Transaction,
        k: NonZeroUsize,
        (mut rows, mut seen): (Vec<Row>, Extent),
        place: &Place,
    ) -> Result<Chosen, QueueError> {
        let space = self.queue.space();
        if seen == Extent::Unknown {
            seen = match is_full(space, &rows, k) {
                true => Extent::Long,
                false if place.is_front() => Extent::Short,
                false => Extent::Unknown,
            };
        }
        rows.truncate(together(space, &rows, k)?);
        take(space, tr, &rows)?;
        Ok(if rows.is_empty() { Chosen::Empty } else { Chosen::Rows(rows, seen) })
    }

    /// How long the queue is, if the approach wants to know.
    pub(super) async fn extent(&self, tr: &Transaction, take: &Take<'_>) -> Result<Extent, QueueError> {
        let Some(reach) = take.approach.reach(take.k.get()) else { return Ok(Extent::Unknown) };
        let is_long = has_keys(tr, &self.queue.space().item_range(), reach).await?;
        Ok(if is_long { Extent::Long } else { Extent::Short })
    }

    /// Chooses the first items; or asks, where this take has lost against another, or others wait to be served.
    async fn choose_or_ask(
        &mut self,
        tr: &Transaction,
        take: &Take<'_>,
        length: u64,
    ) -> Result<Chosen, QueueError> {
        let space = self.queue.space().clone();
        let asks = match take.approach.asks() {
            true => ready(Ok(true)).left_future(),
            false => want::any(&space, tr).right_future(),
        };
        let front = Place::default();
        let (found, asks) = try_join(self.find(tr, take, &front), asks).await?;
        if found.0.is_empty() {
            return Ok(Chosen::Empty);
        }
        if asks {
            self.ask(tr, take, length).await?;
            return Ok(Chosen::Steps(Step::Asks));
        }
        self.claim(tr, take.k, found, &front)
    }
}
