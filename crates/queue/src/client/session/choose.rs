//! Which items a fetch gets: the ones at the place that its approach names, or the items that
//! another session has leased for it.

use foundationdb::Transaction;
use futures::future::try_join;

use super::plan::{Chosen, RequestStep};
use super::{FetchOptions, Session};
use crate::client::session::options::Goal;
use crate::model::error::QueueError;
use crate::model::place::{Extent, Place};
use crate::model::suspicion::Suspicion;
use crate::ops::claim::{pick, take_picked};
use crate::ops::ready::{find, find_last, is_full};
use crate::ops::scan::Row;
use crate::ops::{jump, want};
use mutant::mutant;

impl Session {
    /// Chooses by the approach of the take, and removes what was chosen.
    pub(super) async fn choose(
        &mut self,
        tr: &Transaction,
        take: &mut FetchOptions<'_>,
        goal: Goal<'_>,
    ) -> Result<Chosen, QueueError> {
        self.ward = None;
        let queue = self.queue.clone();
        if let Some(keyed) = &queue.space().keyed {
            return self.choose_by_key(keyed, tr, take, goal).await;
        }
        take.approach.suit(self.queue.space().kind);
        if let Some(chosen) = self.continue_request(tr, take, goal.length()).await? {
            return Ok(chosen);
        }
        loop {
            if take.last
                && !mutant("fetches-only-the-front")
                && let Some(chosen) = self.choose_last(tr, take, goal).await?
            {
                return Ok(chosen);
            }
            let chosen = self.choose_freely(tr, take, goal).await?;
            // A watch fires at the next push only. So there must not be an item in a partition that the session does not know.
            if !matches!(chosen, Chosen::Empty(_)) || !self.is_division_news(tr).await? {
                return Ok(chosen);
            }
        }
    }

    /// Chooses by partitions, if there are several, and otherwise by the approach of the take.
    async fn choose_freely(
        &mut self,
        tr: &Transaction,
        take: &mut FetchOptions<'_>,
        goal: Goal<'_>,
    ) -> Result<Chosen, QueueError> {
        if self.is_divided(tr).await? {
            self.choose_partition(tr, take, goal).await
        } else if take.approach.is_staged() {
            self.choose_or_ask(tr, take, goal).await
        } else {
            self.choose_at_place(tr, take, goal).await
        }
    }

    /// Removes the last item; `None` if there is none that this fetch may have.
    async fn choose_last(
        &mut self,
        tr: &Transaction,
        take: &FetchOptions<'_>,
        goal: Goal<'_>,
    ) -> Result<Option<Chosen>, QueueError> {
        let Some(row) = find_last(self.queue.space(), tr).await? else { return Ok(None) };
        let chosen = self.claim(tr, take, (vec![row], Extent::Unknown), false, goal)?;
        Ok(chosen.map(|chosen| match chosen {
            // The approach learns nothing from that.
            Chosen::Rows(rows, _) => Chosen::Rows(rows, Extent::Unknown),
            other => other,
        }))
    }

    async fn choose_at_place(
        &mut self,
        tr: &Transaction,
        take: &mut FetchOptions<'_>,
        goal: Goal<'_>,
    ) -> Result<Chosen, QueueError> {
        // Ends soon: where nothing was, the next place is nearer to the front, and at the latest
        // where there is known to be something.
        loop {
            let place = take.approach.place(take.k.get(), &mut self.rng);
            let found = self.find(tr, take, &place, goal.is_lease()).await?;
            if place.is_front() || !found.0.is_empty() {
                match self.claim(tr, take, found, place.is_front(), goal)? {
                    Some(chosen) => return Ok(chosen),
                    None => continue,
                }
            }
            take.approach.beyond(found.1);
        }
    }

    /// The rows at a place that the fetch may have, and how long the queue is, if the approach
    /// needs that.
    async fn find(
        &mut self,
        tr: &Transaction,
        take: &FetchOptions<'_>,
        place: &Place,
        on_lease: bool,
    ) -> Result<(Vec<Row>, Extent), QueueError> {
        let space = self.queue.space().clone();
        let place = &self.jump(tr, place).await?;
        let quarantine = self.quarantine.clone();
        let allows = || if on_lease { quarantine.allows(&space.ready) } else { Suspicion::Often };
        loop {
            let begin = match &self.passed {
                Some(_) => self.beginning(tr, place.clone(), allows()).await?,
                None => place.clone(),
            };
            let (rows, seen) = try_join(find(&space, tr, take.k, &begin), self.extent(tr, take)).await?;
            self.note_size(&rows);
            let rows = self.pass_over(tr, take.k, rows, place.is_front(), allows).await?;
            if !rows.is_empty() || begin == *place {
                return Ok((rows, seen));
            }
            // Something may have become ready before the place where it began.
            self.passed = None;
        }
    }

    /// Removes those of the rows found that one take gets; `None` if others of this process have
    /// got suspects meanwhile.
    pub(super) fn claim(
        &mut self,
        tr: &Transaction,
        take: &FetchOptions<'_>,
        (rows, mut seen): (Vec<Row>, Extent),
        at_front: bool,
        goal: Goal<'_>,
    ) -> Result<Option<Chosen>, QueueError> {
        let (space, k, on_lease) = (self.queue.space().clone(), take.k, goal.is_lease());
        if seen == Extent::Unknown {
            seen = match is_full(&space, &rows, k) {
                true => Extent::Long,
                false if at_front => Extent::Short,
                false => Extent::Unknown,
            };
        }
        let allows = self.allows(on_lease);
        let (mut picked, mut suspicion) = pick(&space, &rows, k, |_| true, || allows)?;
        if suspicion > Suspicion::None
            && let Some(first) = goal.first().filter(|first| *first < k)
        {
            // The number of suspects in a group depends on what one worker asks for, not on all
            // shares together.
            (picked, suspicion) = pick(&space, &rows, first, |_| true, || allows)?;
        }
        if rows.is_empty() {
            return Ok(Some(Chosen::Empty(None)));
        }
        if on_lease && suspicion > Suspicion::None {
            self.ward = self.quarantine.enter(&space.ready, suspicion);
            if self.ward.is_none() {
                return Ok(None);
            }
        }
        if picked.len == 0 {
            return Ok(None);
        }
        Ok(Some(Chosen::Rows(take_picked(&space, tr, rows, &picked)?, seen)))
    }

    /// Where a jump leads. A take that begins at the front, or goes on behind an item, stays where
    /// it is.
    async fn jump(&self, tr: &Transaction, place: &Place) -> Result<Place, QueueError> {
        match place.skip {
            0 => Ok(place.clone()),
            skip => jump::jump(self.queue.space(), tr, skip, self.row_bytes).await,
        }
    }

    /// Remembers how large the items are.
    fn note_size(&mut self, rows: &[Row]) {
        let key = self.queue.space().ready.len();
        let bytes: usize = rows.iter().map(|row| key + row.id.as_bytes().len() + row.value.len()).sum();
        self.row_bytes = bytes.checked_div(rows.len()).unwrap_or(self.row_bytes);
    }

    /// How long the queue is, if the approach wants to know.
    pub(super) async fn extent(
        &self,
        tr: &Transaction,
        take: &FetchOptions<'_>,
    ) -> Result<Extent, QueueError> {
        let Some(reach) = take.approach.reach(take.k.get()) else { return Ok(Extent::Unknown) };
        let is_long = jump::has_items(self.queue.space(), tr, reach, self.row_bytes).await?;
        Ok(if is_long { Extent::Long } else { Extent::Short })
    }

    /// Chooses the first items; or asks, where this take has lost against another, or others wait
    /// to be served.
    ///
    /// The server of a request does not know which leases the process of this session holds. So the
    /// session does not ask while its process holds suspects, nor for an item that crashed more
    /// than once. Nor does it while it remembers as many requests as it can.
    async fn choose_or_ask(
        &mut self,
        tr: &Transaction,
        take: &mut FetchOptions<'_>,
        goal: Goal<'_>,
    ) -> Result<Chosen, QueueError> {
        let (space, on_lease) = (self.queue.space().clone(), goal.is_lease());
        loop {
            let asks = self.asked.has_room() && (take.approach.asks() || want::any(&space, tr).await?);
            let found = self.find(tr, take, &Place::default(), on_lease).await?;
            if found.0.is_empty() {
                return Ok(Chosen::Empty(None));
            }
            let allows = self.allows(on_lease);
            let (_, suspicion) = pick(&space, &found.0, take.k, |_| true, || allows)?;
            if asks && allows > Suspicion::None && suspicion < Suspicion::Often {
                self.ask(tr, take, goal.length()).await?;
                return Ok(Chosen::Steps(RequestStep::Asks));
            }
            if let Some(chosen) = self.claim(tr, take, found, true, goal)? {
                return Ok(chosen);
            }
        }
    }
}
