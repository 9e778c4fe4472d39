//! Schedules of the tests: one fires every so many milliseconds, counted from 1970.

use std::sync::Arc;

use kvqueue_queue::schedule::{
    Calendar, Expression, Look, OccurrenceRecord, Outcome, PutEffect, Schedule, ScheduleError, ScheduleState,
    Scheduler,
};
use kvqueue_queue::{Millis, NewItem, Queue, RetryPolicy};

use super::{TestDb, k};

/// A minute.
pub(crate) const MINUTE: Millis = 60_000;
/// An hour.
pub(crate) const HOUR: Millis = 60 * MINUTE;

/// The calendar of an expression `every`.
pub(crate) struct Every(pub(crate) Millis);

impl Calendar for Every {
    fn next_after(&self, time: Millis) -> Option<Millis> {
        (time / self.0).checked_add(1)?.checked_mul(self.0)
    }

    fn last_at_or_before(&self, time: Millis) -> Option<Millis> {
        Some(time / self.0 * self.0)
    }
}

/// The expression for every so many milliseconds.
pub(crate) fn every(period: Millis) -> Expression {
    Expression { kind: "every".to_owned(), text: period.to_string(), zone: String::new() }
}

/// Reads such expressions, and no others.
pub(crate) fn calendars(expression: &Expression) -> Option<Arc<dyn Calendar>> {
    let period = expression.text.parse().ok().filter(|_| expression.kind == "every")?;
    Some(Arc::new(Every(period)))
}

/// A schedule for every so many milliseconds.
pub(crate) fn schedule(name: &str, period: Millis) -> Schedule {
    Schedule::new(name, every(period), NewItem::new(format!("payload of {name}")))
}

/// The nominal times that were fired, in the order of the records.
pub(crate) fn fired(records: &[OccurrenceRecord]) -> Vec<Millis> {
    let fired = records.iter().filter(|record| matches!(record.outcome, Outcome::Fired { .. }));
    fired.map(|record| record.from).collect()
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
        let calendar = calendars(&schedule.expression).unwrap_or_else(|| Arc::new(Every(MINUTE)));
        let effect = queue.put_schedule(&tr, schedule, now, &*calendar).await?;
        tr.commit().await.unwrap();
        Ok(effect)
    }

    /// The same, which succeeds.
    pub(crate) async fn put(&self, queue: &Queue, schedule: &Schedule, now: Millis) -> PutEffect {
        self.try_put(queue, schedule, now).await.unwrap()
    }

    /// Looks once.
    pub(crate) async fn look(&self, scheduler: &mut Scheduler, now: Millis) -> Look {
        scheduler.look(&self.db, &RetryPolicy::default(), now, &calendars).await.unwrap()
    }

    /// The history of a schedule, the oldest record first.
    pub(crate) async fn schedule_history(&self, queue: &Queue, name: &str) -> Vec<OccurrenceRecord> {
        let mut records = self.run(async |tr| queue.schedule_history(tr, name, None, k(2_000)).await).await;
        records.reverse();
        records
    }

    /// How far a schedule has come.
    pub(crate) async fn schedule_state(&self, queue: &Queue, name: &str) -> ScheduleState {
        self.run(async |tr| queue.schedule(tr, name).await).await.unwrap().state
    }
}
