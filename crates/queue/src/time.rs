//! Times of the public signatures, as they are stored and compared.

use std::time::Duration;

/// A time in database versions, 10^6 a second.
pub(crate) fn versions(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// How long so many database versions last.
pub(crate) fn duration(versions: u64) -> Duration {
    Duration::from_micros(versions)
}
