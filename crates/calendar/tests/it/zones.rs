//! Names of zones, and the rules about daylight saving in examples that can be checked by hand.

use jiff::tz::TimeZoneDatabase;
use jiff::{SignedDuration, Timestamp};
use kvqueue_calendar::{Calendar, CalendarError};

use crate::support::{at, cron, next, written};

#[test]
fn zone_is_found_in_any_case_and_named_as_in_the_database() {
    for (name, expected) in [("europe/BERLIN", "Europe/Berlin"), ("utc", "UTC"), ("UTC", "UTC")] {
        assert_eq!(cron("@daily", name).zone(), Some(expected));
    }
}

#[test]
fn unknown_zone_is_refused_with_the_nearest_names() {
    for (name, fix) in [
        ("Europe/Berln", "did you mean Europe/Berlin?"),
        ("berlin", "did you mean Europe/Berlin?"),
        ("new york", "did you mean America/New_York?"),
        ("Europe/Londn", "did you mean Europe/London?"),
        ("+02:00", "write a name of the IANA time zone database, such as Europe/Berlin or UTC"),
        ("", "write a name of the IANA time zone database, such as Europe/Berlin or UTC"),
        ("local", "write a name of the IANA time zone database, such as Europe/Berlin or UTC"),
        ("Etc/Unknown", "write a name of the IANA time zone database, such as Europe/Berlin or UTC"),
    ] {
        let error = Calendar::cron("@daily", name).unwrap_err();
        assert!(matches!(error, CalendarError::UnknownZone { .. }), "{error}");
        assert_eq!(error.to_string(), format!("unknown time zone {name:?}; {fix}"));
    }
}

#[test]
fn no_offset_lasts_for_less_than_the_greatest_change() {
    // A clock that is set back passes what it has shown before the next change. The calendar relies on that.
    let longest_repetition = SignedDuration::from_hours(52);
    let database = TimeZoneDatabase::bundled();
    let end: Timestamp = "2200-01-01T00:00Z".parse().unwrap();
    let mut count = 0;
    for name in database.available() {
        let zone = database.get(name.as_str()).unwrap();
        let changes = zone.following(Timestamp::MIN).map(|change| change.timestamp());
        let changes = changes.take_while(|change| *change < end).collect::<Vec<_>>();
        for pair in changes.windows(2) {
            assert!(pair[1].duration_since(pair[0]) > longest_repetition, "{name}: {pair:?}");
            assert_eq!(pair[0].subsec_nanosecond(), 0, "{name}: {pair:?}");
            count += 1;
        }
    }
    assert!(count > 50_000, "{count}");
}

#[test]
fn skipped_time_fires_once_when_the_clock_has_passed_it() {
    // In Berlin, 02:00 is followed by 03:00 on 2026-03-29, at 01:00 UTC.
    for (expression, times) in [
        ("30 2 * * *", ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]),
        ("0,30 2 * * *", ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]),
        ("*/5 2 * * *", ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]),
        ("0 2,3 * * *", ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]),
        ("30 2 29 3 *", ["2026-03-29T01:00:00Z", "2027-03-29T00:30:00Z"]),
    ] {
        assert_eq!(next(&cron(expression, "Europe/Berlin"), "2026-03-29", 2), times, "{expression}");
    }
}

#[test]
fn repeated_time_fires_at_its_first_occurrence() {
    // In Berlin, 03:00 is followed by 02:00 on 2026-10-25, at 01:00 UTC.
    for (expression, times) in [
        ("30 2 * * *", ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
        ("0,30 2 * * *", ["2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z"]),
        ("0 3 * * *", ["2026-10-25T02:00:00Z", "2026-10-26T02:00:00Z"]),
    ] {
        assert_eq!(next(&cron(expression, "Europe/Berlin"), "2026-10-24T12:00Z", 2), times, "{expression}");
    }
}

#[test]
fn schedule_of_every_hour_goes_on_in_real_time() {
    for change in ["2026-03-28T22:00Z", "2026-10-24T22:00Z"] {
        for (expression, minutes) in [("*/15 * * * *", 15), ("0 * * * *", 60), ("30 0-23 * * *", 60)] {
            let calendar = cron(expression, "Europe/Berlin");
            let times: Vec<u64> = calendar.times_between(at(change), at(change) + 8 * 3_600_000).collect();
            let distances: Vec<u64> = times.windows(2).map(|pair| (pair[1] - pair[0]) / 60_000).collect();
            assert_eq!(distances, vec![minutes; 8 * 60 / minutes as usize - 1], "{expression} near {change}");
        }
    }
}

#[test]
fn schedule_of_every_second_hour_skips_and_repeats_no_run() {
    let calendar = cron("0 */2 * * *", "Europe/Berlin");
    assert_eq!(next(&calendar, "2026-03-28T23:00Z", 2), ["2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"]);
    assert_eq!(next(&calendar, "2026-10-24T22:00Z", 2), ["2026-10-25T00:00:00Z", "2026-10-25T03:00:00Z"]);
}

#[test]
fn newest_time_after_a_gap_is_the_end_of_the_gap() {
    let calendar = cron("30 2 29 3 *", "Europe/Berlin");
    let last = |time| written(calendar.last_at_or_before(at(time)).unwrap());
    assert_eq!(last("2026-03-29T00:59Z"), "2025-03-29T01:30:00Z");
    assert_eq!(last("2026-03-29T01:00Z"), "2026-03-29T01:00:00Z");
    assert_eq!(last("2026-12-01"), "2026-03-29T01:00:00Z");
}

#[test]
fn newest_time_in_a_repeated_hour_is_of_the_first_pass() {
    let calendar = cron("*/20 2 * * *", "Europe/Berlin");
    let last = |time| written(calendar.last_at_or_before(at(time)).unwrap());
    assert_eq!(last("2026-10-25T00:39Z"), "2026-10-25T00:20:00Z");
    for later in ["2026-10-25T00:40Z", "2026-10-25T01:00Z", "2026-10-25T01:30Z", "2026-10-26T00:59Z"] {
        assert_eq!(last(later), "2026-10-25T00:40:00Z", "{later}");
    }
}

#[test]
fn day_that_a_zone_leaves_out_fires_at_the_next_midnight() {
    // Samoa had no 30 December 2011.
    let calendar = cron("0 12 30 12 *", "Pacific/Apia");
    assert_eq!(next(&calendar, "2011-01-01", 2), ["2011-12-30T10:00:00Z", "2012-12-29T22:00:00Z"]);
}
