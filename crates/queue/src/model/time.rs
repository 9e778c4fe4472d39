//! Times of the public signatures, as they are stored and compared.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::model::meta::Millis;

/// A time in database versions, 10^6 a second.
pub(crate) fn versions(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// How long this many database versions last.
pub(crate) fn duration(versions: u64) -> Duration {
    Duration::from_micros(versions)
}

/// A time of day as records have it. A time before 1970 counts as its first moment.
pub fn millis(time: SystemTime) -> Millis {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}

/// The time of day that a record has.
pub fn from_millis(millis: Millis) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_records_round_trip() {
        for time in [0, 1, 1_800_000_000_123, Millis::MAX] {
            assert_eq!(millis(from_millis(time)), time);
        }
        assert_eq!(millis(UNIX_EPOCH - Duration::from_secs(1)), 0);
        assert_eq!(millis(UNIX_EPOCH + Duration::from_micros(1_999)), 1);
    }
}
