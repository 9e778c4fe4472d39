//! The crate's times near changes of offsets, and over ten years, are those of another implementation.
//!
//! `tests/vectors/vectors.txt` was written by `generate.py` next to it, which asks Python for the local time of every
//! minute. Its first lines explain the format.

use kvqueue_calendar::Calendar;

use crate::support::{at, cron};

const MINUTE: u64 = 60_000;
/// How far from a change times are listed, in minutes. `generate.py` has the same numbers.
const NEAR: i64 = 36 * 60;
const NEAR_FOR_EVERY_HOUR: i64 = 4 * 60;

/// What the lines so far are about.
#[derive(Default)]
struct Place<'a> {
    zone: &'a str,
    /// The years, in minutes since 1970: the first minute, and the one after the last.
    years: (u64, u64),
    /// The line of the change, and its time in minutes since 1970.
    change: (&'a str, u64),
}

#[test]
fn times_are_those_of_another_implementation() {
    let mut place = Place::default();
    let (mut changes, mut totals) = (0, 0);
    for line in include_str!("../vectors/vectors.txt").lines().filter(|line| !line.starts_with('#')) {
        let words = line.split(' ').collect::<Vec<_>>();
        match words[..] {
            ["zone", zone, first, end] => {
                let year = |year: &str| at(&format!("{year}-01-01")) / MINUTE;
                place = Place { zone, years: (year(first), year(end)), ..Place::default() };
            }
            ["change", time, before, after] => {
                place.change = (line, at(time) / MINUTE);
                assert_offsets(&place, before.parse().unwrap(), after.parse().unwrap());
                changes += 1;
            }
            ["total", count, hash, ..] => {
                let expression = words[3..].join(" ");
                assert_total(&place, &expression, (count.parse().unwrap(), hash.parse().unwrap()));
                totals += 1;
            }
            _ => {
                let (expression, times) = line.split_once(':').unwrap();
                assert_near_change(&place, expression, times);
            }
        }
    }
    assert!(changes > 150 && totals > 200, "{changes} changes and {totals} totals were compared");
}

/// What to do if the vectors and the crate have different time zones.
const OUTDATED: &str = "if a country has changed its rules, write the vectors again with generate.py";

/// The time zone database that is compiled in knows the change.
fn assert_offsets(place: &Place, before: i64, after: i64) {
    let zone = jiff::tz::TimeZoneDatabase::bundled().get(place.zone).unwrap();
    let offset = |minute: u64| {
        let instant = jiff::Timestamp::from_second((minute * 60) as i64).unwrap();
        i64::from(zone.to_offset(instant).seconds()) / 60
    };
    let (line, minute) = place.change;
    assert_eq!((offset(minute - 1), offset(minute)), (before, after), "{} {line}; {OUTDATED}", place.zone);
}

/// The times near a change, forwards and backwards.
fn assert_near_change(place: &Place, expression: &str, times: &str) {
    let calendar = cron(expression, place.zone);
    let (line, change) = place.change;
    let context = format!("{expression} in {} near {line}", place.zone);
    let near = if is_of_every_hour(expression) { NEAR_FOR_EVERY_HOUR } else { NEAR };
    let expected: Vec<i64> = times.split_whitespace().map(|time| time.parse().unwrap()).collect();
    let instant = |minutes: i64| change.strict_add_signed(minutes) * MINUTE;
    let minutes = |time: u64| (time / MINUTE) as i64 - change as i64;

    let found = calendar.times_between(instant(-near) - 1, instant(near)).map(minutes).collect::<Vec<_>>();
    assert_eq!(found, expected, "{context}");

    let mut backwards = Vec::new();
    let mut time = calendar.last_at_or_before(instant(near));
    while let Some(last) = time.filter(|last| *last >= instant(-near)) {
        backwards.insert(0, minutes(last));
        time = calendar.last_at_or_before(last - 1);
    }
    assert_eq!(backwards, expected, "{context}, backwards");
}

fn is_of_every_hour(expression: &str) -> bool {
    matches!(expression.split(' ').nth(1), Some("*" | "0-23"))
}

/// All times of the years: how many there are, and their hash.
fn assert_total(place: &Place, expression: &str, expected: (usize, u32)) {
    let calendar: Calendar = cron(expression, place.zone);
    let (first, end) = place.years;
    let (mut count, mut hash) = (0, 0_u32);
    for time in calendar.times_between(first * MINUTE - 1, end * MINUTE - 1) {
        assert_eq!(time % MINUTE, 0);
        count += 1;
        hash = hash.wrapping_mul(1_000_003).wrapping_add((time / MINUTE) as u32);
    }
    assert_eq!((count, hash), expected, "{expression} in {} over all years; {OUTDATED}", place.zone);
}
