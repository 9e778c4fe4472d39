//! Schedules: items that are pushed again and again, at times that a calendar gives.
//!
//! | file | role |
//! |---|---|
//! | `definition` | what is pushed and when, with its limits |
//! | `calendar` | the times of an expression, which the caller reads |
//! | `plan` | which occurrences fire, by what is stored and the time of now: pure |
//! | `record` | what became of an occurrence |
//! | `operations` | methods of `Queue`: put, remove, pause, list |
//! | `scheduler` | looks that fire what is due, each in a transaction that commits exactly once |
//!
//! A process that fires the schedules of a queue looks, and waits until the next look is due or a schedule has been changed:
//!
//! ```no_run
//! # use std::{sync::Arc, time::{Duration, SystemTime}};
//! # use foundationdb::Database;
//! # use futures::future::{Either, select};
//! use kvqueue_queue::schedule::{Calendar, Calendars, Expression, Schedule, Scheduler};
//! use kvqueue_queue::{NewItem, Queue, RetryPolicy, millis, retry};
//!
//! # async fn example(db: &Database, calendars: &dyn Calendars) -> Result<(), Box<dyn std::error::Error>> {
//! let queue = Queue::new(b"", b"reports")?;
//! let policy = RetryPolicy::default();
//!
//! // An operator, or a configuration at its start. The same definition changes nothing.
//! let expression = Expression { kind: "cron".into(), text: "0 7 * * 1-5".into(), zone: "Europe/Berlin".into() };
//! let calendar = calendars.calendar(&expression).ok_or("the expression cannot be read")?;
//! let daily = Schedule::new("daily", expression, NewItem::new("make the report"));
//! let tr = db.create_trx()?;
//! queue.put_schedule(&tr, &daily, millis(SystemTime::now()), &*calendar).await?;
//! tr.commit().await?;
//!
//! // Every daemon.
//! let mut scheduler = Scheduler::new(queue.clone());
//! loop {
//!     // Before the look, so that no change is missed.
//!     let changed = retry::run(db, &policy, |tr| {
//!         let watch = queue.watch_schedules(&tr);
//!         async move { (tr, Ok(watch)) }
//!     });
//!     let changed = changed.await?.value;
//!     let look = scheduler.look(db, &policy, millis(SystemTime::now()), calendars).await?;
//!     for looked in &look.looked {
//!         println!("{}: {:?}", looked.schedule, looked.records);
//!     }
//!     if look.more {
//!         continue;
//!     }
//!     // At most a minute, also if clocks are set.
//!     let now = millis(SystemTime::now());
//!     let wait = look.next.map_or(60_000, |next| next.saturating_sub(now).min(60_000));
//!     let pause = Box::pin(tokio::time::sleep(Duration::from_millis(wait)));
//!     select(changed, pause).await;
//! }
//! # }
//! ```
//!
//! The layer knows nothing of expressions and reads no clock: both come with each call. `docs/KEYSPACE.md` has the records, and
//! `docs/decisions/0040-schedules.md` the reasons.

pub(crate) mod calendar;
mod definition;
mod error;
mod operations;
pub(crate) mod plan;
mod record;
mod scheduler;

pub use calendar::{Calendar, Calendars, TimeCount};
pub use definition::{
    ATTRIBUTES, Expression, MAX_EXPRESSION, MAX_MOST, MAX_SCHEDULE_NAME, MAX_SCHEDULE_PAYLOAD, MAX_SCHEDULES,
    Missed, MissedPolicy, Overlap, Schedule,
};
pub use error::ScheduleError;
pub use operations::{PutEffect, ScheduleState, ScheduleView};
pub use record::{MissReason, OccurrenceRecord, Outcome, SkipReason};
pub use scheduler::{ByHand, Look, Looked, Scheduler};
