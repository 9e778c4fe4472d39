//! Times of schedules for people: in the schedule's time zone, and from now.

use std::time::SystemTime;

use jiff::{tz::TimeZone, tz::TimeZoneDatabase};

use crate::base::{
    json::time,
    times::{between, timestamp, whole_seconds},
};

/// A time on the clock of a zone, or in UTC without one: `2026-11-27 03:00:00 CET`. Whole seconds.
pub(crate) fn local(at: SystemTime, zone: Option<&str>) -> String {
    local_exact(whole_seconds(at), zone)
}

/// The same with a fraction of a second, if there is one.
pub(crate) fn local_exact(at: SystemTime, zone: Option<&str>) -> String {
    // The zones of schedules are in the database that is compiled in.
    let zone = zone.and_then(|zone| TimeZoneDatabase::bundled().get(zone).ok()).unwrap_or(TimeZone::UTC);
    let shown =
        timestamp(at).map(|instant| instant.to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S%.f %Z").to_string());
    // Beyond the calendar.
    shown.unwrap_or_else(|| time(at))
}

/// A time from now: `in 8 h 12 min`, `3 min ago`, `now`.
pub(crate) fn from_now(at: SystemTime, now: SystemTime) -> String {
    match (between(now, at).as_secs(), between(at, now).as_secs()) {
        (0, 0) => "now".to_owned(),
        (seconds, 0) => format!("in {}", span(seconds)),
        (_, seconds) => format!("{} ago", span(seconds)),
    }
}

/// Seconds in their two largest units.
fn span(seconds: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];
    let largest = UNITS.iter().position(|(_, size)| seconds >= *size).unwrap_or(UNITS.len() - 1);
    let (name, size) = UNITS[largest];
    let rest = UNITS.get(largest + 1).map(|(name, size_of)| (name, seconds % size / size_of));
    match rest.filter(|(_, rest)| *rest > 0) {
        Some((smaller, rest)) => format!("{} {name} {rest} {smaller}", seconds / size),
        None => format!("{} {name}", seconds / size),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kvqueue_queue::from_millis;

    use super::*;

    #[test]
    fn times_are_shown_on_the_clock_of_the_zone() {
        let at = from_millis(1_774_738_800_000); // 2026-03-28 23:00 in UTC.
        assert_eq!(local(at, Some("Europe/Berlin")), "2026-03-29 00:00:00 CET");
        assert_eq!(local(at + Duration::from_hours(3), Some("Europe/Berlin")), "2026-03-29 04:00:00 CEST");
        assert_eq!(local(at + Duration::from_millis(1_500), None), "2026-03-28 23:00:01 UTC");
        assert_eq!(local_exact(at + Duration::from_millis(1_500), None), "2026-03-28 23:00:01.5 UTC");
        assert_eq!(local_exact(from_millis(u64::MAX), None), u64::MAX.to_string());
    }

    #[test]
    fn times_from_now_have_their_two_largest_units() {
        let now = 1_000_000_000_u64;
        let shown = |seconds: i64| {
            from_now(from_millis(now.saturating_add_signed(seconds * 1_000)), from_millis(now))
        };
        assert_eq!(shown(0), "now");
        assert_eq!([shown(1), shown(59), shown(60)], ["in 1 s", "in 59 s", "in 1 min"]);
        assert_eq!([shown(-61), shown(-3_600)], ["1 min 1 s ago", "1 h ago"]);
        assert_eq!([shown(90_061), shown(86_400)], ["in 1 d 1 h", "in 1 d"]);
        assert_eq!(from_now(from_millis(now + 999), from_millis(now)), "now");
    }
}
