//! Programs for the tests of `tests/it/schedules`.

use std::num::NonZeroUsize;

use kvqueue::{
    config::ScheduleDefinition,
    database::Store,
    queue::{
        NewItem, Queue, millis, retry,
        schedule::{Calendar, OccurrenceRecord, Outcome, Schedule, ScheduleError, ScheduleView},
    },
};
use serde_json::{Value, json};

use crate::support::{argument, database};

/// As many records as are kept.
const RECORDS: NonZeroUsize = NonZeroUsize::new(1_000).unwrap();

/// Prints the schedules of the queue `q` as JSON, by name, with their histories in the order of their records.
pub(crate) fn show() {
    let (store, queue) = open();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let shown = runtime.block_on(retry::run(&store.db, &Default::default(), |tr| {
        let queue = &queue;
        async move {
            let shown = async {
                let mut shown = serde_json::Map::new();
                for view in queue.schedules_after(&tr, None, RECORDS).await? {
                    let history = queue.schedule_history(&tr, &view.name, None, RECORDS).await?;
                    shown.insert(view.name.clone(), schedule(view, &history));
                }
                Ok(Value::Object(shown))
            };
            let shown = shown.await;
            (tr, shown)
        }
    }));
    println!("{}", shown.unwrap().value);
}

fn schedule(view: ScheduleView, history: &[OccurrenceRecord]) -> Value {
    let (schedule, state) = (view.schedule.unwrap(), view.state.unwrap());
    json!({
        "owner": schedule.owner,
        "definition": ScheduleDefinition::from(&schedule),
        "occurrences": state.occurrences,
        "history": history.iter().rev().map(record).collect::<Vec<_>>(),
    })
}

fn record(record: &OccurrenceRecord) -> Value {
    let OccurrenceRecord { from, to, count, outcome, .. } = record;
    let what = match outcome {
        Outcome::Fired { .. } => "fired".to_owned(),
        other => format!("{other:?}"),
    };
    let (from, to) = (millis(*from), millis(*to));
    json!({ "from": from, "to": to, "count": count, "outcome": what, "id": outcome.id().map(ToString::to_string) })
}

/// Stores a schedule in the queue `q`, made at run time. Arguments: its name; by how many hours the clock is ahead.
pub(crate) fn put() {
    let (store, queue) = open();
    let hours: u64 = argument(1).map_or(0, |hours| hours.parse().unwrap());
    let now = std::time::SystemTime::now() + std::time::Duration::from_hours(hours);
    let hourly = Calendar::every(std::time::Duration::from_hours(1)).unwrap();
    let schedule = Schedule::new(argument(0).unwrap(), hourly, NewItem::new("by hand"));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let put: Result<(), ScheduleError> = runtime.block_on(async {
        let tr = store.db.create_trx().unwrap();
        queue.put_schedule(&tr, &schedule, now).await?;
        tr.commit().await.unwrap();
        Ok(())
    });
    put.unwrap();
}

fn open() -> (Store, Queue) {
    let (database, prefix) = database();
    (Store::open(&database).unwrap(), Queue::new(prefix.as_bytes(), b"q").unwrap())
}
