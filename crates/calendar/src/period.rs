//! A period: times that are the same distance apart.

use std::time::Duration;

use crate::{CalendarError, LONGEST_PERIOD, SHORTEST_PERIOD};

/// Times that are the same distance apart, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Period {
    length: u64,
    /// The first of the times.
    first: u64,
}

impl Period {
    /// The times that are multiples of `period` away from `anchor`, after it and before it.
    pub(crate) fn new(period: Duration, anchor: u64) -> Result<Period, CalendarError> {
        let is_allowed = (SHORTEST_PERIOD..=LONGEST_PERIOD).contains(&period);
        match u64::try_from(period.as_millis()) {
            Ok(length) if is_allowed && Duration::from_millis(length) == period => {
                Ok(Period { length, first: anchor % length })
            }
            _ => Err(CalendarError::Period { period }),
        }
    }

    pub(crate) fn length(self) -> Duration {
        Duration::from_millis(self.length)
    }

    /// The first of the times, which is less than the period.
    pub(crate) fn first(self) -> u64 {
        self.first
    }

    pub(crate) fn next_after(self, time: u64) -> Option<u64> {
        match self.last_at_or_before(time) {
            Some(last) => last.checked_add(self.length),
            None => Some(self.first),
        }
    }

    pub(crate) fn last_at_or_before(self, time: u64) -> Option<u64> {
        Some(time - time.checked_sub(self.first)? % self.length)
    }
}
