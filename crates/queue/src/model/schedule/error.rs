//! Why a schedule cannot be stored or changed.

use std::time::Duration;

use super::{MAX_MOST, MAX_SCHEDULES};
use crate::model::error::{PushError, QueueError};

/// A schedule cannot be stored or changed. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// A text or the payload is too short or too long.
    #[error("{what} of a schedule has {len} bytes, {least} to {most} are possible; change it")]
    Length {
        /// Which of them.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The shortest possible in bytes.
        least: usize,
        /// The longest possible in bytes.
        most: usize,
    },
    /// The item has a field that the schedule sets itself, or that it cannot have.
    #[error("the item of a schedule has {what}; leave it out")]
    ForeignField {
        /// Which one.
        what: &'static str,
    },
    /// The item has an attribute that the schedule sets itself.
    #[error(
        "the item of a schedule has the attribute `{name}`, which the schedule sets; give it another name"
    )]
    ReservedAttribute {
        /// The attribute's name.
        name: &'static str,
    },
    /// The maximum of missed occurrences is out of range.
    #[error("the maximum of missed occurrences is {most}, 1 to {MAX_MOST} are possible")]
    Maximum {
        /// The maximum.
        most: u32,
    },
    /// A time is too long, or has a fraction of a millisecond.
    #[error("{what} of a schedule is {time:?}, whole milliseconds up to {most:?} are possible; change it")]
    Time {
        /// Which of them.
        what: &'static str,
        /// The time.
        time: Duration,
        /// The longest possible.
        most: Duration,
    },
    /// Items that may not overlap cannot all fire after an outage.
    #[error(
        "all missed occurrences of a schedule are to fire, and its items may not overlap; let the newest one fire (once), or let them overlap (allow)"
    )]
    AllWithoutOverlap,
    /// The stored definition cannot be read, so it cannot be replaced.
    #[error(
        "cannot read the stored definition of schedule \"{name}\"; upgrade kvqueue, or remove the schedule first"
    )]
    Unreadable {
        /// The schedule's name.
        name: String,
    },
    /// The queue has as many schedules as possible.
    #[error("cannot add a schedule: the queue has {MAX_SCHEDULES}, which is as many as possible; remove one")]
    TooMany,
    /// The schedule belongs to another configuration, or was made at run time.
    #[error(
        "cannot replace schedule \"{name}\": it {}; choose another name, or remove it first",
        owner.as_ref().map_or_else(|| "was made at run time".to_owned(), |owner| format!("belongs to configuration \"{owner}\""))
    )]
    OtherOwner {
        /// The schedule's name.
        name: String,
        /// The label of the configuration; `None`: it was made at run time.
        owner: Option<String>,
    },
    /// The item cannot be pushed to the queue.
    #[error("cannot push the item of a schedule")]
    Item(#[from] PushError),
    /// The database refused, the queue is frozen, or a record cannot be read.
    #[error("cannot read or change the schedules of a queue")]
    Queue(#[from] QueueError),
}
