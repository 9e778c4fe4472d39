//! Times of schedules for people: in the schedule's time zone, and from now.

use jiff::{Timestamp, tz::TimeZone, tz::TimeZoneDatabase};
use kvqueue_queue::Millis;

use crate::base::json::time;

/// A time on the clock of a zone, or in UTC without one: `2026-11-27 03:00:00 CET`. Whole seconds.
pub(crate) fn local(at: Millis, zone: Option<&str>) -> String {
    local_exact(at / 1_000 * 1_000, zone)
}

/// The same with a fraction of a second, if there is one.
pub(crate) fn local_exact(at: Millis, zone: Option<&str>) -> String {
    let instant = i64::try_from(at).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
    // The zones of schedules are in the database that is compiled in.
    let zone = zone.and_then(|zone| TimeZoneDatabase::bundled().get(zone).ok()).unwrap_or(TimeZone::UTC);
    let shown = instant.map(|instant| instant.to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S%.f %Z").to_string());
    // Beyond the calendar.
    shown.unwrap_or_else(|| time(at))
}

/// A time from now: `in 8 h 12 min`, `3 min ago`, `now`.
pub(crate) fn from_now(at: Millis, now: Millis) -> String {
    match (at.saturating_sub(now) / 1_000, now.saturating_sub(at) / 1_000) {
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
    use super::*;

    #[test]
    fn times_are_shown_on_the_clock_of_the_zone() {
        let at = 1_774_738_800_000; // 2026-03-28 23:00 in UTC.
        assert_eq!(local(at, Some("Europe/Berlin")), "2026-03-29 00:00:00 CET");
        assert_eq!(local(at + 3 * 3_600_000, Some("Europe/Berlin")), "2026-03-29 04:00:00 CEST");
        assert_eq!(local(at + 1_500, None), "2026-03-28 23:00:01 UTC");
        assert_eq!(local_exact(at + 1_500, None), "2026-03-28 23:00:01.5 UTC");
        assert_eq!(local_exact(u64::MAX, None), u64::MAX.to_string());
    }

    #[test]
    fn times_from_now_have_their_two_largest_units() {
        let now: Millis = 1_000_000_000;
        let shown = |seconds: i64| from_now(now.saturating_add_signed(seconds * 1_000), now);
        assert_eq!(shown(0), "now");
        assert_eq!([shown(1), shown(59), shown(60)], ["in 1 s", "in 59 s", "in 1 min"]);
        assert_eq!([shown(-61), shown(-3_600)], ["1 min 1 s ago", "1 h ago"]);
        assert_eq!([shown(90_061), shown(86_400)], ["in 1 d 1 h", "in 1 d"]);
        assert_eq!(from_now(now + 999, now), "now");
    }
}
