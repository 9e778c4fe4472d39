//! Schedules of the tests, and sweeps that fire them.

use std::collections::BTreeSet;
use std::time::Duration;

use foundationdb::tuple::{Bytes, unpack};
use kvqueue_queue::schedule::{
    Calendar, OccurrenceRecord, Outcome, PutEffect, Schedule, ScheduleError, ScheduleState,
};
use kvqueue_queue::session::SessionId;
use kvqueue_queue::{NewItem, Queue, Sweeper, VersionHistory, from_millis, millis};

use super::sweeping::rules;
use super::{TestDb, k};
use crate::common::Millis;

/// A minute.
pub(crate) const MINUTE: Millis = 60_000;
/// An hour.
pub(crate) const HOUR: Millis = 60 * MINUTE;

/// Every so many milliseconds.
pub(crate) fn every(period: Millis) -> Calendar {
    Calendar::every(Duration::from_millis(period)).unwrap()
}

/// A schedule for every so many milliseconds.
pub(crate) fn schedule(name: &str, period: Millis) -> Schedule {
    Schedule::new(name, every(period), NewItem::new(format!("payload of {name}")))
}

/// The nominal times that were fired, in the order of the records.
pub(crate) fn fired<'a>(records: impl IntoIterator<Item = &'a OccurrenceRecord>) -> Vec<Millis> {
    let fired = records.into_iter().filter(|record| matches!(record.outcome, Outcome::Fired { .. }));
    fired.map(|record| millis(record.from)).collect()
}

/// The first and the last nominal time of a record.
pub(crate) fn span(record: &OccurrenceRecord) -> (Millis, Millis) {
    (millis(record.from), millis(record.to))
}

/// A sweeper whose clock stands still. All have the same id, so none waits for the claim of another.
pub(crate) fn scheduler(queue: &Queue) -> Sweeper {
    scheduler_of(queue, SessionId([7; 16]))
}

/// The same with another id.
pub(crate) fn scheduler_of(queue: &Queue, id: SessionId) -> Sweeper {
    Sweeper::with_id(queue.clone(), id, VersionHistory::new(|| Duration::ZERO))
}

/// What a sweep did about schedules.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) occurrences: Vec<(String, OccurrenceRecord)>,
    pub(crate) unusable: BTreeSet<String>,
    /// The time of the first row of schedules that are due.
    pub(crate) next: Option<Millis>,
}

impl Looked {
    /// The nominal times that it fired.
    pub(crate) fn fired(&self) -> Vec<Millis> {
        fired(self.occurrences.iter().map(|(_, record)| record))
    }
}

impl TestDb {
    /// Puts a schedule.
    pub(crate) async fn try_put(
        &self,
        queue: &Queue,
        schedule: &Schedule,
        now: Millis,
    ) -> Result<PutEffect, ScheduleError> {
        let tr = self.db.create_trx().unwrap();
        let effect = queue.put_schedule(&tr, schedule, from_millis(now)).await?;
        tr.commit().await.unwrap();
        Ok(effect)
    }

    /// The same, which succeeds.
    pub(crate) async fn put(&self, queue: &Queue, schedule: &Schedule, now: Millis) -> PutEffect {
        self.try_put(queue, schedule, now).await.unwrap()
    }

    /// Fires what is due at a time, in a sweep in which nothing fails.
    pub(crate) async fn look(&self, queue: &Queue, now: Millis) -> Looked {
        let swept = self.sweep(&mut scheduler(queue), now, &rules()).await;
        let next = self.first_row(queue).await;
        Looked { occurrences: swept.occurrences, unusable: swept.unusable_schedules, next }
    }

    /// The time of the first row of schedules that are due.
    pub(crate) async fn first_row(&self, queue: &Queue) -> Option<Millis> {
        let rows = self.records(queue, "schedule-due").await;
        let (time, _): (u64, Bytes<'_>) = unpack(&rows.first()?.0).unwrap();
        Some(time)
    }

    /// The history of a schedule, the oldest record first.
    pub(crate) async fn schedule_history(&self, queue: &Queue, name: &str) -> Vec<OccurrenceRecord> {
        let mut records = self.run(async |tr| queue.schedule_history(tr, name, None, k(2_000)).await).await;
        records.reverse();
        records
    }

    /// How far a schedule has come.
    pub(crate) async fn schedule_state(&self, queue: &Queue, name: &str) -> ScheduleState {
        self.run(async |tr| queue.schedule(tr, name).await).await.unwrap().state.unwrap()
    }
}
