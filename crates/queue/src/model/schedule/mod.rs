//! Schedules: items that are pushed again and again, at the times of a [`Calendar`].
//!
//! An operator or a configuration stores a schedule ([`Queue::put_schedule`](crate::Queue::put_schedule)). The
//! [sweeper](crate::Sweeper) that is on duty fires it: it pushes the items that are due, and records what became of each nominal
//! time.
//!
//! ```no_run
//! # use std::time::SystemTime;
//! use kvqueue_queue::schedule::{Calendar, Schedule};
//! use kvqueue_queue::{NewItem, Queue};
//!
//! # async fn example(db: &foundationdb::Database) -> Result<(), Box<dyn std::error::Error>> {
//! let queue = Queue::new(b"", b"reports")?;
//! let mornings = Calendar::cron("0 7 * * 1-5", "Europe/Berlin")?;
//! let daily = Schedule::new("daily", mornings, NewItem::new("make the report"));
//! let tr = db.create_trx()?;
//! queue.put_schedule(&tr, &daily, SystemTime::now()).await?;
//! tr.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! `docs/KEYSPACE.md` has the records, and `docs/decisions/0040-schedules.md` the reasons.

pub(crate) mod definition;
pub(crate) mod effect;
mod error;
mod owner;
pub(crate) mod plan;
mod record;

pub use crate::model::schedule::effect::{ByHand, PutEffect, ScheduleState, ScheduleView};
pub use definition::{
    ATTRIBUTES, MAX_JITTER, MAX_MOST, MAX_OWNER, MAX_SCHEDULE_NAME, MAX_SCHEDULE_PAYLOAD, MAX_SCHEDULES,
    MAX_WINDOW, Missed, MissedPolicy, Overlap, Schedule,
};
pub use error::ScheduleError;
pub use kvqueue_calendar::{Calendar, CalendarError};
pub use record::{MissReason, OccurrenceRecord, Outcome, SkipReason};
