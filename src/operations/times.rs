//! Times that requests give.

use jiff::Timestamp;
use kvqueue_queue::Millis;

/// The longest delay and the longest time to live, in milliseconds: ten years.
pub(crate) const LONGEST: u64 = 10 * 365 * 24 * 3_600_000;

/// When it is due, if the request has that. A time in the past means at once.
pub(crate) fn due(delay: Option<u64>, at: Option<&str>, now: Millis) -> Result<Option<Millis>, String> {
    match (delay, at) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err("it has both delay_ms and at; leave one out".to_owned()),
        (Some(delay), None) if delay <= LONGEST => Ok(Some(now.saturating_add(delay))),
        (Some(delay), None) => Err(format!("delay_ms is {delay}, at most {LONGEST} are possible")),
        (None, Some(text)) => {
            let time: Timestamp = text.parse().map_err(|_| {
                format!("at is {text:?}, which is not a time; write it as in \"2030-01-31T08:00:00Z\"")
            })?;
            // Before 1970 is long past, too.
            Ok(Some(Millis::try_from(time.as_millisecond()).unwrap_or(0)))
        }
    }
}
