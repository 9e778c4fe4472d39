//! The methods of a queue that make, change and show schedules, in a transaction of the caller's.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use foundationdb::{Database, Transaction};

use super::{Calendar, OccurrenceRecord, Schedule, ScheduleError};
use crate::error::QueueError;
use crate::id::ItemId;
use crate::meta::Millis;
use crate::ops::schedule::change;
use crate::ops::schedule::read::{self, Stored};
use crate::queue::Queue;
use crate::retry::{RetryError, RetryPolicy, run};
use crate::watch::Watch;

/// How many definitions one transaction of [`Queue::remove_schedules_of`] reads.
const PAGE: usize = 100;

/// The effect of [`Queue::put_schedule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutEffect {
    /// There was no schedule of this name.
    Made,
    /// It has another definition now. How far it has come is kept; with another expression it goes on from now.
    Replaced,
    /// It was there, as it is.
    Unchanged,
}

/// How far a schedule has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleState {
    /// The next nominal time, in milliseconds since 1970; `None` if the expression has no more.
    pub next: Option<Millis>,
    /// When the next look at it is due, with its jitter; `None` if it is paused, or there is no next time.
    pub due: Option<Millis>,
    /// How many items it has pushed.
    pub occurrences: u64,
    /// The nominal time of the last item, and its id.
    pub last: Option<(Millis, ItemId)>,
    /// Since when it is paused.
    pub paused: Option<Millis>,
    /// The nominal time of the occurrence that waits for the end of the last item.
    pub waiting: Option<Millis>,
}

/// A schedule as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleView {
    /// Its name.
    pub name: String,
    /// Its definition; `None` if a later version of kvqueue wrote it, and this one cannot read it.
    pub schedule: Option<Schedule>,
    /// How far it has come.
    pub state: ScheduleState,
}

impl ScheduleView {
    fn new(name: String, Stored { schedule, state }: Stored) -> ScheduleView {
        let state = ScheduleState {
            next: state.next,
            due: state.row,
            occurrences: state.occurrences,
            last: state.last.map(|last| (last.nominal, last.id)),
            paused: state.paused,
            waiting: state.waiting.map(|waiting| waiting.nominal),
        };
        ScheduleView { name, schedule, state }
    }
}

impl Queue {
    /// Makes a schedule, or replaces that of its name and owner. It fires for nominal times after `now`, in milliseconds since 1970.
    ///
    /// The same definition changes nothing, so a configuration can be put at each start. Another one keeps what is known: the number of
    /// items, the history, and the next time, unless the expression is another. It may run several times for one commit.
    ///
    /// # Errors
    /// What is wrong with the definition; [`ScheduleError::OtherOwner`]; [`ScheduleError::TooMany`]; [`QueueError::Frozen`]. Nothing was
    /// written.
    pub async fn put_schedule(
        &self,
        tr: &Transaction,
        schedule: &Schedule,
        now: Millis,
        calendar: &dyn Calendar,
    ) -> Result<PutEffect, ScheduleError> {
        schedule.check(self.kind())?;
        change::put(self.space(), tr, schedule, now, calendar).await
    }

    /// Removes a schedule, with its history. Returns whether it was there. Its items stay.
    ///
    /// # Errors
    /// [`QueueError::Frozen`].
    pub async fn remove_schedule(&self, tr: &Transaction, name: &str) -> Result<bool, QueueError> {
        change::remove(self.space(), tr, name).await
    }

    /// Removes the schedules of the configuration `owner` that are not in `keep`, in several transactions. Returns their names. Schedules
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
                let page = self.page_of(&tr, owner, keep, from).await;
                (tr, page)
            });
            let (names, last) = page.await?.value;
            removed.extend(names);
            match last {
                Some(last) => behind = Some(last),
                None => return Ok(removed),
            }
        }
    }

    /// Removes the schedules of a page; returns their names, and the last name of the page.
    async fn page_of(
        &self,
        tr: &Transaction,
        owner: &str,
        keep: &BTreeSet<String>,
        behind: Option<&str>,
    ) -> Result<(Vec<String>, Option<String>), QueueError> {
        let page = read::definitions(&self.space().schedules(), tr, behind, PAGE).await?;
        let mut removed = Vec::new();
        for (name, schedule) in &page {
            let is_of = schedule.as_ref().is_some_and(|schedule| schedule.owner.as_deref() == Some(owner));
            // An owner never changes, so the snapshot read of it is enough.
            if is_of && !keep.contains(name) && change::remove(self.space(), tr, name).await? {
                removed.push(name.clone());
            }
        }
        Ok((removed, page.into_iter().next_back().map(|(name, _)| name)))
    }

    /// Pauses a schedule: it does not fire until it is resumed. `None` if there is none of this name; otherwise whether that is a change.
    ///
    /// # Errors
    /// [`QueueError::Frozen`].
    pub async fn pause_schedule(
        &self,
        tr: &Transaction,
        name: &str,
        now: Millis,
    ) -> Result<Option<bool>, QueueError> {
        change::pause(self.space(), tr, name, now).await
    }

    /// Ends the pause of a schedule, as [`Queue::pause_schedule`] begins it. Occurrences that were due meanwhile are skipped, and recorded.
    /// `calendar` is that of its expression.
    ///
    /// # Errors
    /// [`QueueError::Frozen`].
    pub async fn resume_schedule(
        &self,
        tr: &Transaction,
        name: &str,
        now: Millis,
        calendar: &dyn Calendar,
    ) -> Result<Option<bool>, QueueError> {
        change::resume(self.space(), tr, name, now, calendar).await
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

    /// When a look at the schedules is due next, later than `after` by the caller's clock; `None` if no schedule has a next time. Two
    /// snapshot reads.
    pub async fn next_schedule(&self, tr: &Transaction, after: Millis) -> Result<Option<Millis>, QueueError> {
        read::next_look(&self.space().schedules(), tr, after).await
    }

    /// Watches for changes of schedules by an operator or a configuration, from the moment that `tr` reads at. It does not notice that
    /// schedules fire. Works if `tr` commits, which it can do without having written anything.
    pub fn watch_schedules(&self, tr: &Transaction) -> Watch {
        Watch::new(tr.watch(&self.space().schedules().changes))
    }
}
