//! Which occurrences fire: decided from a mark, the time of now and the calendar alone.
//!
//! So a restart, a machine that slept, an outage of the database and a clock that was set ahead are one case. Times here are nominal:
//! the schedule's offset has been taken off the time of now.

use std::collections::VecDeque;

use kvqueue_calendar::{Calendar, TimeCount};

use super::{MissReason, Missed, MissedPolicy};
use crate::model::time::{Millis, span_millis};

/// How late an occurrence may be looked at without being missed, if no later one is due.
pub(crate) const ON_TIME: Millis = 60_000;

/// How many missed times of a cron expression are counted one by one. If there are more, the record says so.
const COUNTED: u64 = 1_000;

/// Occurrences that follow each other and do not fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) from: Millis,
    pub(crate) to: Millis,
    pub(crate) count: TimeCount,
    pub(crate) reason: MissReason,
}

/// What a look does about the occurrences that are due.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// These are missed, and do not fire. They are before all that fire.
    pub(crate) passed: Vec<Passed>,
    /// These fire, in this order.
    pub(crate) fire: Vec<Millis>,
    /// Up to here every nominal time is accounted for then. More may be due.
    pub(crate) mark: Millis,
}

/// What to do about nominal times behind `after`, up to `now`, of which at most `room` fire, at least one.
pub(crate) fn plan(calendar: &Calendar, missed: &Missed, after: Millis, now: Millis, room: usize) -> Plan {
    let Some(first) = calendar.next_after(after).filter(|first| *first <= now) else {
        return Plan { mark: after, ..Plan::default() };
    };
    let newest = calendar.last_at_or_before(now).filter(|newest| *newest >= first).unwrap_or(first);
    let due = Due { calendar, missed, first, newest, now };
    let (fire, passed) = match missed.policy {
        MissedPolicy::Skip => due.newest_if(due.is_on_time(newest), MissReason::Policy),
        MissedPolicy::Once => {
            due.newest_if(due.is_on_time(newest) || due.is_within(newest), MissReason::Window)
        }
        MissedPolicy::All => due.all(),
    };
    let mut fire = Vec::from(fire);
    fire.truncate(room.max(1));
    let mark = if fire.len() == room.max(1) { *fire.last().expect("at least one fires") } else { newest };
    Plan { passed: passed.into_iter().flatten().collect(), fire, mark }
}

/// The occurrences that are due.
struct Due<'a> {
    calendar: &'a Calendar,
    missed: &'a Missed,
    first: Millis,
    newest: Millis,
    now: Millis,
}

/// The times that fire, and up to two stretches of those before them that do not.
type Chosen = (VecDeque<Millis>, [Option<Passed>; 2]);

impl Due<'_> {
    fn is_on_time(&self, time: Millis) -> bool {
        self.now.saturating_sub(time) <= ON_TIME
    }

    fn is_within(&self, time: Millis) -> bool {
        time >= self.window_start()
    }

    /// The earliest time that is within the window.
    fn window_start(&self) -> Millis {
        self.missed.window.map_or(0, |window| self.now.saturating_sub(span_millis(window)))
    }

    /// The newest fires, or nothing for this reason.
    fn newest_if(&self, fires: bool, reason: MissReason) -> Chosen {
        if fires {
            let before = self.before(self.newest);
            return (
                VecDeque::from([self.newest]),
                [self.passed(self.first, before, MissReason::Policy), None],
            );
        }
        (VecDeque::new(), [self.passed(self.first, Some(self.newest), reason), None])
    }

    /// The newest within the window fire, up to the maximum.
    fn all(&self) -> Chosen {
        let (mut fire, mut time) = (VecDeque::new(), Some(self.newest));
        let most = usize::try_from(self.missed.most).unwrap_or(usize::MAX).max(1);
        while let Some(next) = time.filter(|time| self.is_within(*time) || self.is_on_time(*time)) {
            if fire.len() == most {
                break;
            }
            fire.push_front(next);
            time = self.before(next);
        }
        // What is left is from the first to `time`: of that, the later part may be within the window.
        let within = time.filter(|time| self.is_within(*time)).and_then(|_| {
            let start = self.window_start().max(self.first);
            if start == self.first { Some(start) } else { self.calendar.next_after(start - 1) }
        });
        let passed = match within {
            Some(within) => [
                self.passed(self.first, self.before(within), MissReason::Window),
                self.passed(within, time, MissReason::Maximum),
            ],
            None => [self.passed(self.first, time, MissReason::Window), None],
        };
        (fire, passed)
    }

    /// The occurrence before this one, if it is due too.
    fn before(&self, time: Millis) -> Option<Millis> {
        self.calendar.last_at_or_before(time.checked_sub(1)?).filter(|before| *before >= self.first)
    }

    fn passed(&self, from: Millis, to: Option<Millis>, reason: MissReason) -> Option<Passed> {
        let to = to.filter(|to| *to >= from)?;
        Some(Passed { from, to, count: self.calendar.count(from, to, COUNTED), reason })
    }
}

#[cfg(test)]
mod tests;
