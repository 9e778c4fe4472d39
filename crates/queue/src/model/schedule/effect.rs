//! What operations on schedules return.

use std::time::SystemTime;

use super::Schedule;
use crate::model::id::ItemId;

/// The effect of [`Queue::put_schedule`](crate::Queue::put_schedule).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutEffect {
    /// There was no schedule of this name.
    Created,
    /// It has another definition now.
    Replaced {
        /// It fires at other times: what was due by the old calendar, or waited, is skipped and recorded.
        calendar: bool,
    },
    /// It was there, as it is.
    Unchanged,
}

/// The effect of [`Queue::fire_schedule`](crate::Queue::fire_schedule).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ByHand {
    /// The item was pushed.
    Fired {
        /// The item; `None` if it could not be read.
        id: Option<ItemId>,
    },
    /// Nothing was pushed: the last item has not ended, and the schedule's items may not overlap.
    Overlaps,
    /// There is no schedule of this name.
    Gone,
}

/// How far a schedule has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleState {
    /// The next nominal time; `None` if the calendar has no more. It fires later than that by
    /// [`Schedule::offset`], and not at all while it is paused.
    pub next: Option<SystemTime>,
    /// How many items it has pushed.
    pub occurrences: u64,
    /// The nominal time of the last item, and its id.
    pub last: Option<(SystemTime, ItemId)>,
    /// Since when it is paused.
    pub paused: Option<SystemTime>,
    /// The nominal time of the occurrence that waits for the end of the last item.
    pub waiting: Option<SystemTime>,
}

/// A schedule as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleView {
    /// Its name.
    pub name: String,
    /// Its definition; `None` if this version of kvqueue cannot read it.
    pub schedule: Option<Schedule>,
    /// How far it has come; `None` if this version of kvqueue cannot read that.
    pub state: Option<ScheduleState>,
}
