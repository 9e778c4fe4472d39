//! A period: times that are the same distance apart.

use std::time::Duration;

use crate::{CalendarError, LONGEST_PERIOD, SHORTEST_PERIOD};

/// The multiples of a length since 1970, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Period {
    length: u64,
}

impl Period {
    pub(crate) fn new(period: Duration) -> Result<Period, CalendarError> {
        let is_allowed = (SHORTEST_PERIOD..=LONGEST_PERIOD).contains(&period);
        match u64::try_from(period.as_millis()) {
            Ok(length) if is_allowed && Duration::from_millis(length) == period => Ok(Period { length }),
            _ => Err(CalendarError::Period { period }),
        }
    }

    pub(crate) fn length(self) -> Duration {
        Duration::from_millis(self.length)
    }

    pub(crate) fn next_after(self, time: u64) -> Option<u64> {
        (time / self.length + 1).checked_mul(self.length)
    }

    pub(crate) fn last_at_or_before(self, time: u64) -> Option<u64> {
        Some(time - time % self.length)
    }

    /// How many times there are from `from` to `to`, both included.
    pub(crate) fn count(self, from: u64, to: u64) -> u64 {
        let up_to = |time: u64| time / self.length + 1;
        up_to(to).saturating_sub(from.checked_sub(1).map_or(0, up_to))
    }
}
