//! Times that requests give.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

use crate::base::times::{after, of_timestamp};

/// The longest delay and the longest time to live, in milliseconds: ten years.
pub(crate) const LONGEST: u64 = 10 * 365 * 24 * 3_600_000;

/// When it is due, if the request has that; `delay` is in milliseconds. A time in the past means at once.
pub(crate) fn due(
    delay: Option<u64>,
    at: Option<&str>,
    now: SystemTime,
) -> Result<Option<SystemTime>, String> {
    match (delay, at) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err("it has both delay_ms and at; leave one out".to_owned()),
        (Some(delay), None) if delay <= LONGEST => Ok(Some(after(now, Duration::from_millis(delay)))),
        (Some(delay), None) => Err(format!("delay_ms is {delay}, at most {LONGEST} are possible")),
        (None, Some(text)) => {
            let time: Timestamp = text.parse().map_err(|_| {
                format!("at is {text:?}, which is not a time; write it as in \"2030-01-31T08:00:00Z\"")
            })?;
            // Before 1970 is long past, too.
            Ok(Some(of_timestamp(time).unwrap_or(UNIX_EPOCH)))
        }
    }
}
