//! Which local times an expression matches, in UTC.

use crate::support::{at, cron, next, written};

/// The next times of an expression after the beginning of 2026, a Thursday.
fn times(expression: &str, count: usize) -> Vec<String> {
    next(&cron(expression, "UTC"), "2026-01-01", count)
}

#[test]
fn five_fields_fire_at_second_zero() {
    assert_eq!(times("30 3 * * *", 2), ["2026-01-01T03:30:00Z", "2026-01-02T03:30:00Z"]);
    assert_eq!(times("* * * * *", 2), ["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]);
}

#[test]
fn six_fields_begin_with_the_second() {
    assert_eq!(times("15 30 3 * * *", 2), ["2026-01-01T03:30:15Z", "2026-01-02T03:30:15Z"]);
    assert_eq!(
        times("*/20 * * * * *", 3),
        ["2026-01-01T00:00:20Z", "2026-01-01T00:00:40Z", "2026-01-01T00:01:00Z"]
    );
}

#[test]
fn lists_ranges_and_steps_are_read() {
    for (expression, minutes) in [
        ("5,10,59 * * * *", vec![5, 10, 59]),
        ("10-12 * * * *", vec![10, 11, 12]),
        ("*/20 * * * *", vec![0, 20, 40]),
        ("10-30/10 * * * *", vec![10, 20, 30]),
        ("10-31/10,7 * * * *", vec![7, 10, 20, 30]),
        ("50/4 * * * *", vec![50, 54, 58]),
        ("05,5,5-5 * * * *", vec![5]),
        ("*,3 * * * *", (0..60).collect()),
    ] {
        let hour = at("2026-01-01T05:00Z");
        let calendar = cron(expression, "UTC");
        let found: Vec<u64> =
            calendar.times_between(hour - 1, hour + 3_599_999).map(|time| (time - hour) / 60_000).collect();
        assert_eq!(found, minutes, "{expression}");
    }
}

#[test]
fn names_and_numbers_of_months_and_weekdays_mean_the_same() {
    for (named, numbered) in [
        ("0 0 * JAN,mar *", "0 0 * 1,3 *"),
        ("0 0 * Oct-DEC *", "0 0 * 10-12 *"),
        ("0 0 * JAN-DEC/3 *", "0 0 * 1-12/3 *"),
        ("0 0 * * MON-FRI", "0 0 * * 1-5"),
        ("0 0 * * fri-sun", "0 0 * * 0,5,6"),
        ("0 0 * * SUN-TUE", "0 0 * * 7,1,2"),
        ("0 0 * * SUN", "0 0 * * 7"),
        ("0 0 * * SUN", "0 0 * * 0"),
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("0 0 * * sat-0", "0 0 * * 6-7"),
    ] {
        assert_eq!(times(named, 30), times(numbered, 30), "{named}");
    }
    assert_eq!(times("0 0 * * SUN", 1), ["2026-01-04T00:00:00Z"]);
    assert_eq!(times("0 0 * * 1", 1), ["2026-01-05T00:00:00Z"]);
}

#[test]
fn names_of_expressions_stand_for_five_fields() {
    for (name, expression) in [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * SUN"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        (" @Daily ", "0 0 * * *"),
    ] {
        assert_eq!(times(name, 40), times(expression, 40), "{name}");
    }
}

#[test]
fn last_day_of_the_month_follows_its_length() {
    assert_eq!(
        times("0 0 L * *", 4),
        ["2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z", "2026-04-30T00:00:00Z"]
    );
    assert_eq!(
        times("0 0 1,l 2 *", 3),
        ["2026-02-01T00:00:00Z", "2026-02-28T00:00:00Z", "2027-02-01T00:00:00Z"]
    );
    assert_eq!(
        written(cron("0 0 L 2 *", "UTC").next_after(at("2028-02-02")).unwrap()),
        "2028-02-29T00:00:00Z"
    );
}

#[test]
fn day_or_weekday_matches_if_neither_begins_with_a_star() {
    // The 13th of January 2026 is a Tuesday.
    let either =
        ["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z", "2026-01-13T00:00:00Z", "2026-01-16T00:00:00Z"];
    assert_eq!(times("0 0 13 * FRI", 4), either);
    // 1-31 is every day, but it has no star.
    assert_eq!(times("0 0 1-31 * FRI", 2), ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"]);
}

#[test]
fn day_and_weekday_both_match_if_one_begins_with_a_star() {
    let fridays = ["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z"];
    assert_eq!(times("0 0 * * FRI", 2), fridays);
    assert_eq!(times("0 0 ? * FRI", 2), fridays);
    assert_eq!(times("0 0 13 * ?", 2), ["2026-01-13T00:00:00Z", "2026-02-13T00:00:00Z"]);
    // Fridays with an odd number, and the 13th if it is a Sunday, Tuesday, Thursday or Saturday.
    assert_eq!(times("0 0 */2 * FRI", 2), ["2026-01-09T00:00:00Z", "2026-01-23T00:00:00Z"]);
    assert_eq!(times("0 0 13 * */2", 2), ["2026-01-13T00:00:00Z", "2026-06-13T00:00:00Z"]);
}

#[test]
fn rare_days_are_found_across_centuries() {
    assert_eq!(times("0 0 29 2 *", 2), ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]);
    // 29 February on a Saturday or Sunday. The year 2100 is no leap year.
    let weekends = cron("0 0 29 2 */6", "UTC");
    assert_eq!(next(&weekends, "2026-01-01", 2), ["2032-02-29T00:00:00Z", "2048-02-29T00:00:00Z"]);
    assert_eq!(next(&weekends, "2089-01-01", 2), ["2116-02-29T00:00:00Z", "2128-02-29T00:00:00Z"]);
    assert_eq!(weekends.last_at_or_before(at("2116-02-28")).map(written).unwrap(), "2088-02-29T00:00:00Z");
}

#[test]
fn the_time_itself_is_not_after_itself() {
    let calendar = cron("0 3 * * *", "UTC");
    let three = at("2026-01-01T03:00Z");
    let day = 86_400_000;
    assert_eq!(calendar.next_after(three - 1), Some(three));
    assert_eq!(calendar.next_after(three), Some(three + day));
    assert_eq!(calendar.next_after(three + 1), Some(three + day));
    assert_eq!(calendar.last_at_or_before(three - 1), Some(three - day));
    assert_eq!(calendar.last_at_or_before(three), Some(three));
    assert_eq!(calendar.last_at_or_before(three + 1), Some(three));
}

#[test]
fn times_between_leaves_out_its_start_and_has_its_end() {
    let calendar = cron("0 * * * *", "UTC");
    let (midnight, hour) = (at("2026-01-01"), 3_600_000);
    let times = calendar.times_between(midnight, midnight + 2 * hour).collect::<Vec<_>>();
    assert_eq!(times, [midnight + hour, midnight + 2 * hour]);
    assert_eq!(calendar.times_between(midnight, midnight + hour - 1).count(), 0);
    assert_eq!(calendar.times_between(midnight, midnight - hour).count(), 0);
}

#[test]
fn calendar_ends_where_the_time_library_ends() {
    let calendar = cron("0 0 1 1 *", "Europe/Berlin");
    assert_eq!(calendar.next_after(u64::MAX), None);
    assert_eq!(calendar.next_after(at("9998-12-31T23:00Z")), None);
    assert_eq!(calendar.last_at_or_before(u64::MAX).map(written).unwrap(), "9998-12-31T23:00:00Z");
    assert_eq!(
        cron("* * * * * *", "UTC").last_at_or_before(u64::MAX).map(written).unwrap(),
        "9999-12-30T22:00:00Z"
    );
}

#[test]
fn calendar_begins_in_1970() {
    let calendar = cron("0 0 2 1 *", "UTC");
    let second_of_january = 86_400_000;
    assert_eq!(calendar.next_after(0), Some(second_of_january));
    assert_eq!(calendar.last_at_or_before(second_of_january - 1), None);
    // Midnight in Berlin is an hour before 1970 in UTC.
    assert_eq!(cron("0 0 1 1 *", "Europe/Berlin").last_at_or_before(86_400_000), None);
    assert_eq!(cron("0 1 1 1 *", "Europe/Berlin").last_at_or_before(86_400_000), Some(0));
    assert_eq!(cron("* * * * *", "UTC").last_at_or_before(0), Some(0));
}

#[test]
fn display_shows_the_text_of_the_user() {
    for expression in ["0  3 * * mon", "@Daily", " */5 0-3,7 ? JAN Mon"] {
        assert_eq!(cron(expression, "UTC").to_string(), expression);
    }
}

#[test]
fn a_year_of_seconds_needs_no_walk_to_its_end() {
    let calendar = cron("* * * * * *", "America/New_York");
    let (start, end) = (at("2026-01-01"), at("2027-01-01"));
    assert_eq!(calendar.last_at_or_before(end), Some(end));
    assert_eq!(calendar.next_after(end), Some(end + 1_000));
    let day = calendar.times_between(start, start + 86_400_000).collect::<Vec<_>>();
    assert_eq!(day, (1..=86_400).map(|second| start + second * 1_000).collect::<Vec<_>>());
}
