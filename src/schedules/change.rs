//! Changing a schedule: the change in the database, and its record in the audit trail.

use std::{cell::Cell, time::SystemTime};

use foundationdb::Transaction;
use kvqueue_queue::{
    ItemId, Queue, QueueError,
    schedule::{PutEffect, Schedule, ScheduleError, ScheduleView},
};

use super::names;
use crate::audit::{AuditStore, Record};

/// What is done about a schedule.
#[derive(Debug)]
pub(crate) enum Change {
    /// It is made, or replaced.
    Put(Box<Schedule>),
    /// It is removed.
    Remove {
        name: String,
        /// Also if a configuration has it, or if this version cannot read it.
        force: bool,
    },
    /// It does not fire until it is resumed.
    Pause { name: String },
    /// It goes on.
    Resume {
        name: String,
        /// It begins now, also if it is not paused: a wrong clock has moved it ahead.
        restart: bool,
    },
}

/// The effect of a change.
#[derive(Debug)]
pub(crate) enum Effect {
    /// The schedule is stored, if it was not stored so before.
    Put(PutEffect),
    /// It is removed, paused or resumed.
    Done,
    /// It is paused already, or it was not paused.
    Same,
    /// Nothing was done.
    Refused(Refusal),
}

/// Why a schedule was not changed or fired. Each caller adds how to mend it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// There is no schedule of this name.
    #[error("there is no such schedule")]
    Gone {
        /// A name that may be meant.
        near: Option<String>,
    },
    /// A configuration has it.
    #[error("it belongs to configuration \"{owner}\"")]
    Configured {
        /// The label of the configuration.
        owner: String,
    },
    /// Its definition or its state was stored by a later version.
    #[error("this version of kvqueue cannot read it")]
    Unreadable,
    /// The queue cannot have it.
    #[error(transparent)]
    Schedule(ScheduleError),
}

/// A change in a transaction that may run more than once.
///
/// If the outcome of a commit is unknown, the transaction runs again. It then finds nothing to change, if that commit has succeeded. So the
/// effect of the earlier attempt is the answer.
pub(crate) struct ScheduleChange {
    change: Change,
    /// By the clock of the caller.
    now: SystemTime,
    earlier: Cell<Option<PutEffect>>,
}

impl ScheduleChange {
    pub(crate) fn new(change: Change, now: SystemTime) -> Self {
        Self { change, now, earlier: Cell::new(None) }
    }

    /// Whether a schedule is stored, for a queue of a certain kind.
    pub(crate) fn adds(&self) -> bool {
        matches!(self.change, Change::Put(_))
    }

    /// The record with the details of this change.
    pub(crate) fn audited(&self, record: Record) -> Record {
        match &self.change {
            Change::Put(schedule) => {
                let record = record.with("schedule", schedule.name.as_str());
                let record = record.with(
                    if schedule.calendar.period().is_some() { "every" } else { "cron" },
                    schedule.calendar.to_string(),
                );
                match schedule.calendar.zone() {
                    Some(zone) => record.with("zone", zone),
                    None => record,
                }
            }
            Change::Remove { name, force } => record.with("schedule", name.as_str()).with("force", *force),
            Change::Pause { name } => record.with("schedule", name.as_str()),
            Change::Resume { name, restart } => {
                let record = record.with("schedule", name.as_str());
                if *restart { record.with("restart", true) } else { record }
            }
        }
    }

    /// Makes the change with its record. What changes nothing has no record. A frozen queue, and one of another kind, is an error.
    pub(crate) async fn write(
        &self,
        tr: &Transaction,
        queue: &Queue,
        audit: &AuditStore,
        record: &Record,
    ) -> Result<Effect, QueueError> {
        queue.check_unfrozen(tr).await?;
        let effect = self.make(tr, queue).await?;
        let is_change = match effect {
            Effect::Put(put) => put != PutEffect::Unchanged,
            Effect::Done => true,
            Effect::Same | Effect::Refused(_) => false,
        };
        if is_change {
            let put = if let Effect::Put(put) = effect { put } else { PutEffect::Unchanged };
            self.earlier.set(Some(self.earlier.get().unwrap_or(put)));
        }
        let Some(earlier) = self.earlier.get() else { return Ok(effect) };
        audit.write(tr, record);
        Ok(if matches!(self.change, Change::Put(_)) { Effect::Put(earlier) } else { Effect::Done })
    }

    async fn make(&self, tr: &Transaction, queue: &Queue) -> Result<Effect, QueueError> {
        let (name, force) = match &self.change {
            Change::Put(schedule) => return put(tr, queue, schedule, self.now).await,
            Change::Remove { name, force } => (name, *force),
            Change::Pause { name } | Change::Resume { name, .. } => (name, false),
        };
        let Some(view) = queue.schedule(tr, name).await? else {
            return Ok(Effect::Refused(gone(tr, queue, name).await?));
        };
        if (view.schedule.is_none() || view.state.is_none()) && !force {
            return Ok(Effect::Refused(Refusal::Unreadable));
        }
        let effect = match &self.change {
            Change::Put(_) => unreachable!("it has returned"),
            Change::Remove { .. } => match view.schedule.and_then(|schedule| schedule.owner) {
                Some(owner) if !force => return Ok(Effect::Refused(Refusal::Configured { owner })),
                _ => queue.remove_schedule(tr, name).await?.then_some(true),
            },
            Change::Pause { .. } => queue.pause_schedule(tr, name, self.now).await?,
            Change::Resume { restart: true, .. } => {
                queue.restart_schedule(tr, name, self.now).await?.then_some(true)
            }
            Change::Resume { .. } => queue.resume_schedule(tr, name, self.now).await?,
        };
        Ok(match effect {
            Some(true) => Effect::Done,
            Some(false) => Effect::Same,
            None => Effect::Refused(gone(tr, queue, name).await?),
        })
    }
}

async fn put(
    tr: &Transaction,
    queue: &Queue,
    schedule: &Schedule,
    now: SystemTime,
) -> Result<Effect, QueueError> {
    Ok(match queue.put_schedule(tr, schedule, now).await {
        Ok(effect) => Effect::Put(effect),
        Err(ScheduleError::Queue(error)) => return Err(error),
        Err(ScheduleError::OtherOwner { owner: Some(owner), .. }) => {
            Effect::Refused(Refusal::Configured { owner })
        }
        Err(ScheduleError::Unreadable { .. }) => Effect::Refused(Refusal::Unreadable),
        Err(error) => Effect::Refused(Refusal::Schedule(error)),
    })
}

/// The refusal of a schedule that is not there.
pub(crate) async fn gone(tr: &Transaction, queue: &Queue, name: &str) -> Result<Refusal, QueueError> {
    Ok(Refusal::Gone { near: names::near(tr, queue, name).await? })
}

/// Whether a schedule can be fired by hand: it is there, and can be read. Returns its last item.
pub(crate) async fn check_firable(
    tr: &Transaction,
    queue: &Queue,
    name: &str,
) -> Result<Result<Option<ItemId>, Refusal>, QueueError> {
    Ok(match queue.schedule(tr, name).await? {
        Some(ScheduleView { schedule: Some(_), state: Some(state), .. }) => Ok(state.last.map(|(_, id)| id)),
        Some(_) => Err(Refusal::Unreadable),
        None => Err(gone(tr, queue, name).await?),
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use foundationdb::RangeOption;
    use kvqueue_queue::{NewItem, schedule::Calendar};

    use super::*;
    use crate::{
        audit::{Action, Cursor, Filter, Who},
        testing::TestDatabase,
    };

    const NOW: SystemTime = UNIX_EPOCH;

    struct Bench {
        db: TestDatabase,
        queue: Queue,
        audit: AuditStore,
    }

    impl Bench {
        fn new() -> Self {
            let queue = Queue::new(b"", b"q").unwrap();
            Self { db: TestDatabase::new().unwrap(), queue, audit: AuditStore::new(b"") }
        }

        /// Makes a change in a transaction of its own.
        async fn make(&self, change: &ScheduleChange) -> Effect {
            let record = Record::new(Action::SCHEDULE_PUT, Who::Operator);
            let tr = self.db.create_trx().unwrap();
            let effect = change.write(&tr, &self.queue, &self.audit, &record).await.unwrap();
            tr.commit().await.unwrap();
            effect
        }

        async fn once(&self, change: Change) -> Effect {
            self.make(&ScheduleChange::new(change, NOW)).await
        }

        async fn records(&self) -> usize {
            let tr = self.db.create_trx().unwrap();
            let all = Filter { queue: None, since: None };
            self.audit.page(&tr, None::<Cursor>, &all, 100).await.unwrap().records.len()
        }
    }

    fn put() -> Change {
        let every = Calendar::every(Duration::from_hours(1)).unwrap();
        Change::Put(Box::new(Schedule::new("s", every, NewItem::new("x"))))
    }

    fn remove(force: bool) -> Change {
        Change::Remove { name: "s".to_owned(), force }
    }

    #[tokio::test]
    async fn a_change_that_runs_again_after_its_commit_has_the_effect_of_the_first_time() {
        let bench = Bench::new();
        let name = || "s".to_owned();
        let resume = |restart| Change::Resume { name: name(), restart };
        for change in [put(), Change::Pause { name: name() }, resume(false), resume(true), remove(false)] {
            let change = ScheduleChange::new(change, NOW);
            for _ in 0..3 {
                let effect = bench.make(&change).await;
                let is_made = matches!(effect, Effect::Put(PutEffect::Created) | Effect::Done);
                assert!(is_made, "{:?}: {effect:?}", change.change);
            }
        }
        assert!(matches!(bench.once(remove(false)).await, Effect::Refused(Refusal::Gone { near: None })));
    }

    #[tokio::test]
    async fn a_change_without_effect_has_no_record() {
        let bench = Bench::new();
        bench.once(put()).await;
        let before = bench.records().await;
        assert!(matches!(bench.once(put()).await, Effect::Put(PutEffect::Unchanged)));
        assert!(matches!(
            bench.once(Change::Resume { name: "s".to_owned(), restart: false }).await,
            Effect::Same
        ));
        assert!(matches!(bench.once(Change::Pause { name: "t".to_owned() }).await, Effect::Refused(_)));
        assert_eq!((before, bench.records().await), (1, 1));
    }

    #[tokio::test]
    async fn a_schedule_that_cannot_be_read_can_only_be_forced_away() {
        let bench = Bench::new();
        bench.once(put()).await;
        let tr = bench.db.create_trx().unwrap();
        let rows = tr.get_range(&RangeOption::from((&b""[..], &b"\xff"[..])), 1, false).await.unwrap();
        let has = |key: &[u8], part: &[u8]| key.windows(part.len()).any(|it| it == part);
        // The definition: the other rows of a schedule have other words.
        let keys: Vec<_> =
            rows.iter().map(|row| row.key()).filter(|key| has(key, b"\x01schedule\x00")).collect();
        assert_eq!(keys.len(), 1, "{keys:?}");
        tr.set(keys[0], b"\xff\xff\xff");
        tr.commit().await.unwrap();
        for change in [put(), Change::Pause { name: "s".to_owned() }, remove(false)] {
            let effect = bench.once(change).await;
            assert!(matches!(effect, Effect::Refused(Refusal::Unreadable)), "{effect:?}");
        }
        let tr = bench.db.create_trx().unwrap();
        let firable = check_firable(&tr, &bench.queue, "s").await.unwrap();
        assert!(matches!(firable, Err(Refusal::Unreadable)));
        drop(tr);
        assert!(matches!(bench.once(remove(true)).await, Effect::Done));
    }
}
