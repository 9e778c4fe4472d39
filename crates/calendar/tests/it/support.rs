//! What the tests share: times as people write them.

use jiff::Timestamp;
use kvqueue_calendar::Calendar;

/// A time such as `2026-03-29T01:00Z` in milliseconds.
pub(crate) fn at(time: &str) -> u64 {
    let text = if time.ends_with('Z') { time.to_owned() } else { format!("{time}T00:00Z") };
    let timestamp: Timestamp = text.parse().unwrap();
    timestamp.as_millisecond().try_into().unwrap()
}

/// Milliseconds as a time such as `2026-03-29T01:00:00Z`.
pub(crate) fn written(time: u64) -> String {
    Timestamp::from_millisecond(time.try_into().unwrap()).unwrap().to_string()
}

pub(crate) fn cron(expression: &str, zone: &str) -> Calendar {
    Calendar::cron(expression, zone).unwrap_or_else(|error| panic!("{expression}: {error}"))
}

/// The first `count` times after `time`.
pub(crate) fn next(calendar: &Calendar, time: &str, count: usize) -> Vec<String> {
    calendar.times_between(at(time), u64::MAX).take(count).map(written).collect()
}
