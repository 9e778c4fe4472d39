//! What a fetch reads before it serves keys: timers that are due, holds, and what limited scopes have left.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use foundationdb::Transaction;
use futures::future::{try_join, try_join_all};

use super::left::Left;
use super::{Candidate, Choice, MAX_KEYS, MIN_WINDOW, Place, scatter};
use crate::error::QueueError;
use crate::keys::keyed::{Cause, KeyedSpace, scopes};
use crate::ops::keyed::changes::{Parked, first_parked};
use crate::ops::keyed::gates::Slots;
use crate::ops::keyed::{holds, rules};
use crate::rng::Rng;
use crate::time::duration;

impl Choice {
    /// Asks for no more items than the rate of the whole queue allows to start. Returns whether it allows any.
    ///
    /// Keys do not wait for the rate of the queue one by one: consumers do.
    pub(super) async fn obey_the_queue(
        &mut self,
        keyed: &KeyedSpace,
        tr: &Transaction,
    ) -> Result<bool, QueueError> {
        self.paces.learn(keyed, tr, &self.book, std::iter::once(&[][..])).await?;
        self.paces.note_all_known(&[]);
        let Some(starts) = self.paces.starts(&[]) else { return Ok(true) };
        let starts = usize::try_from(starts).unwrap_or(usize::MAX);
        let Some(starts) = NonZeroUsize::new(starts) else { return Ok(false) };
        self.wanted.k = self.wanted.k.min(starts);
        self.wanted.suspects = self.wanted.suspects.min(starts);
        Ok(true)
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
        let most = self.wanted.k.get().max(MIN_WINDOW).min(MAX_KEYS / due.len().max(1)).max(1);
        let parked = due.iter().map(|scope| first_parked(keyed, tr, (Cause::Rate, scope), most, true));
        let parked = try_join_all(parked).await?;
        let mut candidates = Vec::new();
        for (scope, parked) in due.into_iter().zip(parked) {
            self.paces.note_all_known(&scope);
            if parked.len() == most {
                self.behind.push(scope.clone());
            }
            let place = Place::Timed(scope);
            let candidate =
                |it: Parked| Candidate::new(&self.book, (place.clone(), it.row), it.position, it.key);
            candidates.extend(parked.into_iter().map(candidate));
        }
        Ok(candidates)
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
        let most: Vec<_> = new.iter().map(|scope| book.limits(scope).most_running().map(u64::from)).collect();
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
            // The starts of the whole queue are in `wanted.k`.
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
        let opens = self.paces.opens_at(&[]).filter(|_| self.paces.starts(&[]) == Some(0));
        // As long as the queue may start nothing, no timer of a key matters.
        let at = opens.or_else(|| self.paces.next(&self.book))?;
        Some(duration(at.saturating_sub(self.paces.now())))
    }
}
