//! Which items a take gets: those at the place that its approach names, or what it is served with.

use foundationdb::Transaction;
use futures::FutureExt;
use futures::future::{ready, try_join};

use super::request::{Step, Turn};
use super::{Session, Take};
use crate::approach::Place;
use crate::error::QueueError;
use crate::keys::leases::{Header, Held, LeaseId};
use crate::ops::claim::{claim, find, is_full, take, together};
use crate::ops::scan::Row;
use crate::ops::{lease, want};

/// What a transaction can do for a take.
pub(super) enum Chosen {
    /// It removes these rows; and whether the queue had as many as the take can get.
    Rows(Vec<Row>, bool),
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
            Turn::Own(rows, full) => Ok(Chosen::Rows(rows, full)),
            Turn::Served(id, header) => {
                let held = lease::body(self.queue.space(), tr, id, &header).await?;
                Ok(Chosen::Served(id, header, held))
            }
            Turn::Waits(key) => Ok(Chosen::Waits(key)),
            Turn::Steps(step) => Ok(Chosen::Steps(step)),
        }
    }

    async fn choose_at_place(&mut self, tr: &Transaction, take: &mut Take<'_>) -> Result<Chosen, QueueError> {
        let space = self.queue.space();
        let place = take.approach.place(take.k.get(), &mut self.rng);
        let (mut rows, mut full) = claim(space, tr, take.k, &place).await?;
        if rows.is_empty() && !place.is_front() {
            take.approach.short();
            (rows, full) = claim(space, tr, take.k, &Place::default()).await?;
        }
        Ok(if rows.is_empty() { Chosen::Empty } else { Chosen::Rows(rows, full) })
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
        let (mut rows, asks) = try_join(find(&space, tr, take.k, &Place::default()), asks).await?;
        if rows.is_empty() {
            return Ok(Chosen::Empty);
        }
        if asks {
            self.ask(tr, take, length).await?;
            return Ok(Chosen::Steps(Step::Asks));
        }
        let full = is_full(&space, &rows, take.k);
        rows.truncate(together(&space, &rows, take.k)?);
        self::take(&space, tr, &rows)?;
        Ok(Chosen::Rows(rows, full))
    }
}
