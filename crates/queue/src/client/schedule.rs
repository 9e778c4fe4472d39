//! The methods of a queue that make, change and show schedules, in a transaction of the caller's.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::{Duration, SystemTime};

use foundationdb::{Database, Transaction};

use crate::client::queue::Queue;
use crate::model::error::QueueError;
use crate::model::retry_error::RetryError;
use crate::model::rng::Rng;
use crate::model::schedule::effect::{ByHand, PutEffect, ScheduleState, ScheduleView};
use crate::model::schedule::{OccurrenceRecord, Schedule, ScheduleError};
use crate::model::session_id::SessionId;
use crate::model::time::{Millis, from_millis, millis};
use crate::ops::schedule::change::{ByHandEffect, fire_by_hand};
use crate::ops::schedule::read::Stored;
use crate::ops::schedule::{change, read};
use crate::run::exactly_once::{Act, Body, Marked};
use crate::run::retry::{RetryPolicy, run};
use mutant::bound;

/// How many definitions [`Queue::remove_schedules_of`] reads at a time.
fn page_schedules() -> usize {
    bound("schedules-page", 100)
}

impl ScheduleView {
    fn new(name: String, Stored { schedule, state }: Stored) -> ScheduleView {
        let state = state.map(|state| ScheduleState {
            next: state.next.map(from_millis),
            occurrences: state.occurrences,
            last: state.last.map(|last| (from_millis(last.nominal), last.id)),
            paused: state.paused.map(from_millis),
            waiting: state.waiting.map(|waiting| from_millis(waiting.nominal)),
        });
        ScheduleView { name, schedule, state }
    }
}

impl Queue {
    /// Makes a schedule, or replaces that of its name and owner. It fires for nominal times after `now`. All times of schedules are
    /// whole [milliseconds](crate::millis).
    ///
    /// The same definition changes nothing, so a configuration can be put at each start. Another one keeps what is known: the number of
    /// items, the history, and the next time, unless the calendar is another. It may run several times for one commit.
    ///
    /// # Errors
    /// What is wrong with the definition; [`ScheduleError::OtherOwner`]; [`ScheduleError::Unreadable`]; [`ScheduleError::TooMany`];
    /// [`QueueError::Frozen`] if something is to be changed. Nothing was written.
    pub async fn put_schedule(
        &self,
        tr: &Transaction,
        schedule: &Schedule,
        now: SystemTime,
    ) -> Result<PutEffect, ScheduleError> {
        schedule.check(self.kind())?;
        schedule.item.check_content_type()?;
        change::put(self.space(), tr, schedule, millis(now)).await
    }

    /// Removes a schedule, with its history. Returns whether it was there. Its items stay.
    ///
    /// # Errors
    /// [`QueueError::Frozen`].
    pub async fn remove_schedule(&self, tr: &Transaction, name: &str) -> Result<bool, QueueError> {
        change::remove(self.space(), tr, name).await
    }

    /// Removes the schedules of the configuration `owner` that are not in `keep`, each in a transaction. Returns their names. Schedules
    /// of other configurations, those made at run time, and those whose definition cannot be read stay.
    ///
    /// # Errors
    /// [`QueueError::Frozen`], or the database's. What was removed before stays removed.
    pub async fn remove_schedules_of(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        owner: &str,
        keep: &BTreeSet<String>,
    ) -> Result<BTreeSet<String>, RetryError> {
        let (mut removed, mut behind) = (BTreeSet::new(), None::<String>);
        loop {
            let from = behind.as_deref();
            let page = run(db, policy, |tr| async move {
                let page = read::page(&self.space().schedules(), &tr, from, page_schedules()).await;
                (tr, page)
            });
            let page = page.await?.value;
            let Some((last, _)) = page.last() else { return Ok(removed) };
            behind = Some(last.clone());
            for (name, stored) in page {
                // A schedule never gets to another configuration.
                let is_of = stored.schedule.is_some_and(|of| of.belongs_to(Some(owner)));
                if is_of && !keep.contains(&name) {
                    let of = name.as_str();
                    let done = run(db, policy, |tr| async move {
                        let was_there = change::remove(self.space(), &tr, of).await;
                        (tr, was_there)
                    });
                    let done = done.await?;
                    // If the outcome of an attempt was unknown, the next one does not find what it has removed.
                    if done.value || done.attempts.unknown > 0 {
                        removed.insert(name);
                    }
                }
            }
        }
    }

    /// Pauses a schedule: it does not fire until it is resumed. `None` if there is none of this name; otherwise whether that is a change.
    ///
    /// # Errors
    /// [`QueueError::Frozen`]; [`QueueError::Unreadable`].
    pub async fn pause_schedule(
        &self,
        tr: &Transaction,
        name: &str,
        now: SystemTime,
    ) -> Result<Option<bool>, QueueError> {
        change::pause(self.space(), tr, name, millis(now)).await
    }

    /// Ends the pause of a schedule, as [`Queue::pause_schedule`] begins it. Occurrences that are due, and one that waits for the end of the
    /// last item, are skipped, and recorded.
    ///
    /// # Errors
    /// [`QueueError::Frozen`]; [`QueueError::Unreadable`].
    pub async fn resume_schedule(
        &self,
        tr: &Transaction,
        name: &str,
        now: SystemTime,
    ) -> Result<Option<bool>, QueueError> {
        change::resume(self.space(), tr, name, millis(now)).await
    }

    /// Lets a schedule begin at `now` and ends its pause. Returns whether it is there.
    ///
    /// This mends a schedule that a wrong clock has moved far ahead, so that it would not fire for a long time. Nominal times after `now`
    /// that have fired already fire again.
    ///
    /// # Errors
    /// [`QueueError::Frozen`]; [`QueueError::Unreadable`].
    pub async fn restart_schedule(
        &self,
        tr: &Transaction,
        name: &str,
        now: SystemTime,
    ) -> Result<bool, QueueError> {
        change::restart(self.space(), tr, name, millis(now)).await
    }

    /// Pushes an item of a schedule, whether or not the schedule is due or paused, exactly once. Its nominal time is `now`. The schedule goes on as if nothing had happened; but if its items may not overlap, the item counts as the last one. The
    /// item expires after `ttl`, if no attempt has begun by then.
    ///
    /// # Errors
    /// [`QueueError::Frozen`]; [`QueueError::Unreadable`], also if the queue cannot have such an item; and what a push fails with. Nothing was
    /// pushed, unless [`RetryError::is_maybe_committed`] says so.
    pub async fn fire_schedule(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        name: &str,
        now: SystemTime,
        ttl: Option<Duration>,
    ) -> Result<ByHand, RetryError> {
        self.fire_schedule_with_id(db, policy, SessionId::new(), name, now, ttl).await
    }

    /// [`Queue::fire_schedule`] with an id of the caller's, which no session of the queue and no other call has. Simulations use it, so that
    /// a run can be repeated.
    ///
    /// # Errors
    /// Those of [`Queue::fire_schedule`].
    pub async fn fire_schedule_with_id(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        id: SessionId,
        name: &str,
        now: SystemTime,
        ttl: Option<Duration>,
    ) -> Result<ByHand, RetryError> {
        let mut marked = Marked::new(self.space(), id);
        let body = FireByHand { queue: self, name, now: millis(now), ttl, rng: Rng::of(id) };
        let effect = marked.run_adding(db, policy, body).await?;
        // The item is pushed, even if this fails: sweepers clear the mark later.
        let _ = marked.close(db, policy).await;
        let number = match effect {
            ByHandEffect::Fired(number) => number,
            ByHandEffect::Overlaps => return Ok(ByHand::Overlaps),
            ByHandEffect::Gone => return Ok(ByHand::Gone),
        };
        let keys = &self.space().schedules();
        // The database has given the id when the item was committed.
        let record = run(db, policy, |tr| async move {
            let records = read::history(keys, &tr, name, Some(number + 1), 1).await;
            (tr, records)
        });
        // The item is pushed, also if its id cannot be read.
        let record = record.await.ok().and_then(|mut done| done.value.pop());
        let record = record.filter(|record| record.number == number);
        Ok(ByHand::Fired { id: record.and_then(|record| record.outcome.id().cloned()) })
    }

    /// A schedule and how far it has come. Snapshot reads, which conflict with nothing.
    pub async fn schedule(&self, tr: &Transaction, name: &str) -> Result<Option<ScheduleView>, QueueError> {
        let found = read::shown(&self.space().schedules(), tr, name).await?;
        Ok(found.map(|stored| ScheduleView::new(name.to_owned(), stored)))
    }

    /// Schedules in the order of their names: those behind the name `after`, or the first. Up to `k` of them, fewer where their definitions
    /// are large, and none only if there are none. Snapshot reads, which conflict with nothing.
    pub async fn schedules_after(
        &self,
        tr: &Transaction,
        after: Option<&str>,
        k: NonZeroUsize,
    ) -> Result<Vec<ScheduleView>, QueueError> {
        let page = read::page(&self.space().schedules(), tr, after, k.get()).await?;
        Ok(page.into_iter().map(|(name, stored)| ScheduleView::new(name, stored)).collect())
    }

    /// What became of a schedule's occurrences, the newest record first: up to `k` records before the one with the number `before`, or the
    /// newest. The newest 1,000 are kept. A snapshot read, which conflicts with nothing.
    pub async fn schedule_history(
        &self,
        tr: &Transaction,
        name: &str,
        before: Option<u64>,
        k: NonZeroUsize,
    ) -> Result<Vec<OccurrenceRecord>, QueueError> {
        read::history(&self.space().schedules(), tr, name, before, k.get()).await
    }
}

/// The transaction of an item by hand.
struct FireByHand<'a> {
    queue: &'a Queue,
    name: &'a str,
    now: Millis,
    ttl: Option<Duration>,
    rng: Rng,
}

impl Body for FireByHand<'_> {
    type Output = ByHandEffect;

    async fn fill(&mut self, tr: &Transaction) -> Result<Act<ByHandEffect>, QueueError> {
        let at = (self.now, self.ttl);
        let effect = fire_by_hand(self.queue.space(), tr, self.name, at, &mut self.rng).await?;
        Ok(if matches!(effect, ByHandEffect::Fired(_)) { Act::Write(effect) } else { Act::Nothing(effect) })
    }
}
