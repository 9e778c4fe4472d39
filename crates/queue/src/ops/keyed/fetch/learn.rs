//! What a fetch reads before it serves keys: timers that are due, holds, and what limited scopes have left.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use foundationdb::Transaction;
use futures::future::{try_join, try_join_all};

use super::candidate::{Candidate, Place};
use super::left::Left;
use super::running::Running;
use super::{Choice, max_keys, max_parked, min_window, scatter};
use crate::keys::keyed::{Cause, KeyedSpace, scopes};
use crate::model::error::QueueError;
use crate::model::rng::Rng;
use crate::model::time::duration;
use crate::ops::keyed::changes::first_parked;
use crate::ops::keyed::gates::Slots;
use crate::ops::keyed::lanes::{Lanes, QueueSlots};
use crate::ops::keyed::parked::Parked;
use crate::ops::keyed::{holds, lanes, rules};

impl Choice {
    /// Asks for no more items than the rate and the slots of the whole queue allow to start. Returns whether they allow any.
    ///
    /// Keys do not wait for the queue one by one: consumers do.
    pub(super) async fn obey_the_queue(
        &mut self,
        keyed: &KeyedSpace,
        tr: &Transaction,
    ) -> Result<bool, QueueError> {
        self.paces.learn(keyed, tr, &self.book, std::iter::once(&[][..])).await?;
        self.paces.note_all_known(&[]);
        if let Some(most) = self.book.limits(&[]).most_running().map(u64::from) {
            let lanes = match &self.running {
                Running::OfQueue(lanes) => lanes.clone(),
                _ => Lanes::read(keyed, tr).await?,
            };
            self.slots = Some(QueueSlots::new(most, lanes, self.paces.now(), &self.wanted.taker));
        }
        let starts = self.paces.starts(&[]).unwrap_or(u64::MAX);
        let most = self.slots.as_ref().map_or(starts, |slots| slots.free().min(starts));
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let Some(most) = NonZeroUsize::new(most) else { return Ok(false) };
        self.wanted.k = self.wanted.k.min(most);
        self.wanted.suspects = self.wanted.suspects.min(most);
        Ok(true)
    }

    /// Some of the keys that an earlier version has parked under the limit of the whole queue. Nobody parks others, so soon there are none.
    pub(super) async fn read_parked_before(
        &self,
        keyed: &KeyedSpace,
        tr: &Transaction,
    ) -> Result<Vec<Parked>, QueueError> {
        if self.slots.is_none() || !self.keys.is_empty() {
            return Ok(Vec::new());
        }
        first_parked(keyed, tr, (Cause::Slot, &[]), max_parked()).await
    }

    /// Keys that wait for timers which are due.
    pub(super) async fn timed(
        &mut self,
        keyed: &KeyedSpace,
        tr: &Transaction,
        rng: &mut Rng,
    ) -> Result<Vec<Candidate>, QueueError> {
        let mut due = self.paces.due(&self.book);
        due.retain(|scope| !scope.is_empty());
        if self.wanted.scatter > 0 {
            scatter(&mut due, self.left(), rng);
        }
        self.paces.learn(keyed, tr, &self.book, due.iter().map(Vec::as_slice)).await?;
        // However many timers are due, a fetch looks at a bounded number of keys.
        let most = self.wanted.k.get().max(min_window()).min(max_keys() / due.len().max(1)).max(1);
        let parked = due.iter().map(|scope| first_parked(keyed, tr, (Cause::Rate, scope), most));
        let parked = try_join_all(parked).await?;
        let mut candidates = Vec::new();
        for (scope, parked) in due.into_iter().zip(parked) {
            self.paces.note_all_known(&scope);
            if parked.len() == most {
                self.behind.push(scope.clone());
            }
            let place = Place::Timed(scope);
            candidates.extend(parked.into_iter().map(|it| Candidate::parked(&self.book, place.clone(), it)));
        }
        Ok(candidates)
    }

    /// Keys that wait for a fetch which may have their next items, as this one may.
    pub(super) fn suspects(&self, mut parked: Vec<Parked>, rng: &mut Rng) -> Vec<Candidate> {
        if self.wanted.scatter > 0 {
            scatter(&mut parked, self.left(), rng);
        }
        let candidate = |it: Parked| Candidate::parked(&self.book, Place::Suspect(it.cause), it);
        parked.into_iter().map(candidate).collect()
    }

    /// Reads what the scopes of these keys have left, and which of the keys are held.
    pub(super) async fn learn(
        &mut self,
        keyed: &KeyedSpace,
        tr: &Transaction,
        page: &mut [Candidate],
    ) -> Result<(), QueueError> {
        self.learn_left(keyed, tr, page).await?;
        self.learn_holds(keyed, tr, page).await
    }

    async fn learn_left(
        &mut self,
        keyed: &KeyedSpace,
        tr: &Transaction,
        page: &[Candidate],
    ) -> Result<(), QueueError> {
        let all: BTreeSet<&[u8]> = page.iter().flat_map(|candidate| scopes(&candidate.key)).collect();
        let new: Vec<&[u8]> = all.into_iter().filter(|scope| !self.left.contains_key(*scope)).collect();
        let Choice { paces, book, running, .. } = self;
        let k = self.wanted.k.get() as u64;
        // The slots and the starts of the whole queue are in `wanted.k`.
        let most = |scope: &[u8]| book.limits(scope).most_running().filter(|_| !scope.is_empty());
        let most: Vec<_> = new.iter().map(|scope| most(scope).map(u64::from)).collect();
        let is_unknown = |(scope, most): (&&[u8], &Option<u64>)| {
            most.is_some_and(|most| running.of(scope, most, k).is_none())
        };
        if new.iter().zip(&most).any(is_unknown) {
            running.learn(keyed, tr, k).await?;
        }
        let running = new.iter().zip(most).map(async |(scope, most)| {
            let Some(most) = most else { return Ok(None) };
            let taken = match running.of(scope, most, k) {
                Some(taken) => taken,
                None => rules::running(keyed, tr, scope).await?,
            };
            Ok::<_, QueueError>(Some(Slots { most, taken }))
        });
        let learn = paces.learn(keyed, tr, book, new.iter().copied());
        let ((), slots) = try_join(learn, try_join_all(running)).await?;
        let left = new.iter().zip(slots).map(|(scope, slots)| {
            let starts = paces.starts(scope).filter(|_| !scope.is_empty());
            (scope.to_vec(), Left { slots, starts })
        });
        self.left.extend(left.filter(|(_, left)| left.is_limited()));
        Ok(())
    }

    /// Only ordered keys are held.
    async fn learn_holds(
        &self,
        keyed: &KeyedSpace,
        tr: &Transaction,
        page: &mut [Candidate],
    ) -> Result<(), QueueError> {
        let mut ordered: Vec<_> = page.iter_mut().filter(|key| key.limits.is_ordered()).collect();
        if ordered.is_empty() || !self.has_holds {
            return Ok(());
        }
        let read = ordered.iter_mut().map(async |candidate| {
            candidate.hold = holds::first(keyed, tr, &candidate.key).await?;
            Ok::<_, QueueError>(())
        });
        try_join_all(read).await.map(drop)
    }

    /// After which time a fetch that has found nothing may find something though nothing has changed. `None`: not before a change.
    pub(crate) fn look_again_in(&self) -> Option<Duration> {
        // Another session looks at parked keys again, unless it has stopped.
        let pause = self.pending.as_ref().map(|_| duration(rules::pause() as u64));
        pause.into_iter().chain(self.may_start_in()).min()
    }

    fn may_start_in(&self) -> Option<Duration> {
        if self.full().is_some() {
            // The end of an item wakes idle consumers. No row changes when a slot stays free.
            let leaves_some = self.slots.as_ref().is_some_and(QueueSlots::leaves_some);
            return leaves_some.then(|| duration(lanes::idle_after()));
        }
        let opens = self.paces.opens_at(&[]).filter(|_| self.paces.starts(&[]) == Some(0));
        // As long as the queue may start nothing, no timer of a key matters.
        let at = opens.or_else(|| self.paces.next(&self.book))?;
        Some(duration(at.saturating_sub(self.paces.now())))
    }
}
