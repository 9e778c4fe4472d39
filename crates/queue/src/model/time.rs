//! Times of the public signatures, as they are stored and compared.
//!
//! Callers give and get points in time as [`SystemTime`] and spans as [`Duration`]. Rows and codecs hold [`Millis`] and database versions. The
//! functions of this file convert one to the other, and none of them panics.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since the start of 1970, or a span in milliseconds, as rows have them.
pub(crate) type Millis = u64;

/// A time in database versions, 10^6 a second.
pub(crate) fn versions(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// How long this many database versions last.
pub(crate) fn duration(versions: u64) -> Duration {
    Duration::from_micros(versions)
}

/// A point in time as the queue's records have it: in milliseconds since the start of 1970, rounded down.
///
/// A time before 1970 counts as the start of 1970, and one beyond the range of 64 bits as the last one that is possible. Two times of the same millisecond
/// are the same time for a queue.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// use kvqueue_queue::{from_millis, millis};
///
/// assert_eq!(millis(UNIX_EPOCH + Duration::from_micros(1_999)), 1);
/// assert_eq!(millis(UNIX_EPOCH - Duration::from_secs(1)), 0);
/// assert_eq!(from_millis(1), UNIX_EPOCH + Duration::from_millis(1));
/// ```
pub fn millis(time: SystemTime) -> u64 {
    span_millis(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// The point in time that is so many milliseconds after the start of 1970; the reverse of [`millis`].
///
/// Where a [`SystemTime`] cannot be that late, it is the latest one of a whole number of seconds that the platform has.
pub fn from_millis(millis: u64) -> SystemTime {
    let since = Duration::from_millis(millis);
    UNIX_EPOCH.checked_add(since).unwrap_or_else(latest)
}

/// A span as records have it: in milliseconds, rounded down. A longer one than 64 bits can have counts as the longest.
pub(crate) fn span_millis(span: Duration) -> Millis {
    Millis::try_from(span.as_millis()).unwrap_or(Millis::MAX)
}

/// The last second of a [`SystemTime`] that has fewer of them than there are milliseconds in 64 bits.
fn latest() -> SystemTime {
    let seconds = (0..u64::BITS).rev().map(|bit| Duration::from_secs(1 << bit));
    seconds.fold(UNIX_EPOCH, |time, step| time.checked_add(step).unwrap_or(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_records_round_trip() {
        for time in [0, 1, 1_800_000_000_123, Millis::MAX] {
            assert_eq!(millis(from_millis(time)), time);
        }
    }

    #[test]
    fn times_are_rounded_down_to_the_millisecond() {
        assert_eq!(millis(UNIX_EPOCH + Duration::from_nanos(1_999_999)), 1);
        assert_eq!(millis(UNIX_EPOCH + Duration::from_nanos(999_999)), 0);
        assert_eq!(span_millis(Duration::from_micros(1_999)), 1);
    }

    #[test]
    fn times_beyond_the_range_of_records_are_its_ends() {
        assert_eq!(millis(UNIX_EPOCH - Duration::from_secs(1)), 0);
        assert_eq!(millis(UNIX_EPOCH - Duration::from_nanos(1)), 0);
        assert_eq!(millis(latest()), Millis::MAX);
        assert_eq!(latest().checked_add(Duration::from_secs(1)), None);
        assert_eq!(span_millis(Duration::MAX), Millis::MAX);
    }
}
