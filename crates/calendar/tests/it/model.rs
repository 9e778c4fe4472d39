//! The calendar against slow models: one walks through every second of a zone, one through every day.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use kvqueue_calendar::Calendar;
use proptest::prelude::*;
use proptest::sample::select;

use crate::support::written;

/// The seconds of a day.
const DAY: i64 = 86_400;
/// No change of an offset sets a clock back by more seconds.
const LONGEST_JUMP: i64 = 26 * 3_600;

/// An element of a field, and the same as text.
#[derive(Debug, Clone)]
enum Element {
    Star,
    Value(u8),
    Range(u8, u8),
    StarStep(u8),
    RangeStep(u8, u8, u8),
    ValueStep(u8, u8),
    Last,
}

impl Element {
    fn matches(&self, value: u8, (first, last): (u8, u8), is_last_day: bool) -> bool {
        let in_range =
            |from: u8, to: u8, step: u8| from <= value && value <= to && (value - from).is_multiple_of(step);
        match *self {
            Element::Star => true,
            Element::Value(one) => value == one,
            Element::Range(from, to) => in_range(from, to, 1),
            Element::StarStep(step) => in_range(first, last, step),
            Element::RangeStep(from, to, step) => in_range(from, to, step),
            Element::ValueStep(from, step) => in_range(from, last, step),
            Element::Last => is_last_day,
        }
    }

    fn text(&self) -> String {
        match self {
            Element::Star => "*".to_owned(),
            Element::Value(value) => value.to_string(),
            Element::Range(from, to) => format!("{from}-{to}"),
            Element::StarStep(step) => format!("*/{step}"),
            Element::RangeStep(from, to, step) => format!("{from}-{to}/{step}"),
            Element::ValueStep(from, step) => format!("{from}/{step}"),
            Element::Last => "L".to_owned(),
        }
    }
}

/// Second, minute, hour, day, month and weekday.
#[derive(Debug, Clone)]
struct Fields([Vec<Element>; 6]);

/// The least and the greatest value of each field.
const BOUNDS: [(u8, u8); 6] = [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];

impl Fields {
    fn text(&self) -> String {
        let field =
            |elements: &Vec<Element>| elements.iter().map(Element::text).collect::<Vec<_>>().join(",");
        self.0.iter().map(field).collect::<Vec<_>>().join(" ")
    }

    fn field_matches(&self, field: usize, value: u8, is_last_day: bool) -> bool {
        self.0[field].iter().any(|element| element.matches(value, BOUNDS[field], is_last_day))
    }

    fn day_matches(&self, date: Date) -> bool {
        let day = self.field_matches(3, date.day() as u8, date.day() == date.days_in_month());
        let weekday = self.field_matches(5, date.weekday().to_sunday_zero_offset() as u8, false);
        let starts_with_star =
            |field: usize| matches!(self.0[field][0], Element::Star | Element::StarStep(_));
        let both = starts_with_star(3) || starts_with_star(5);
        let matches = if both { day && weekday } else { day || weekday };
        matches && self.field_matches(4, date.month() as u8, false)
    }

    /// Whether the number of seconds since 1970 on a clock on the wall matches.
    fn matches(&self, local: i64) -> bool {
        let local = Offset::UTC.to_datetime(Timestamp::from_second(local).unwrap());
        let time = [local.second(), local.minute(), local.hour()];
        (0..3).all(|field| self.field_matches(field, time[field] as u8, false))
            && self.day_matches(local.date())
    }

    fn is_of_every_hour(&self) -> bool {
        (0..24).all(|hour| self.field_matches(2, hour, false))
    }
}

fn element(first: u8, last: u8) -> impl Strategy<Value = Element> {
    let value = first..=last;
    let pair = (value.clone(), value.clone()).prop_map(|(one, other)| (one.min(other), one.max(other)));
    let step = move |longest: u8| 1..=longest.max(1);
    prop_oneof![
        2 => value.clone().prop_map(Element::Value),
        2 => pair.clone().prop_map(|(from, to)| Element::Range(from, to)),
        1 => step(last - first).prop_map(Element::StarStep),
        1 => pair.prop_flat_map(move |(from, to)| {
            step(to - from).prop_map(move |step| Element::RangeStep(from, to, step))
        }),
        1 => value.prop_flat_map(move |from| step(last - from).prop_map(move |step| Element::ValueStep(from, step))),
    ]
}

fn field(index: usize, stars: u32) -> impl Strategy<Value = Vec<Element>> {
    let (first, last) = BOUNDS[index];
    let mut some = prop::collection::vec(element(first, last), 1..4).boxed();
    if index == 3 {
        some = prop_oneof![
            5 => some.clone(),
            1 => some.prop_map(|mut elements| { elements.push(Element::Last); elements }),
            1 => Just(vec![Element::Last]),
        ]
        .boxed();
    }
    prop_oneof![stars => Just(vec![Element::Star]), 3 => some]
}

/// `stars` is how often each field is `*`, against 3.
fn fields(stars: [u32; 6]) -> impl Strategy<Value = Fields> {
    let [second, minute, hour, day, month, weekday] =
        [0, 1, 2, 3, 4, 5].map(|index| field(index, stars[index]));
    (second, minute, hour, day, month, weekday).prop_map(|(second, minute, hour, day, month, weekday)| {
        Fields([second, minute, hour, day, month, weekday])
    })
}

/// Zones with all kinds of changes: by whole hours, by half hours, by two hours, by a day, and by odd seconds.
const ZONES: [&str; 14] = [
    "UTC",
    "Africa/Casablanca",
    "Africa/Monrovia",
    "America/Caracas",
    "America/New_York",
    "America/Santiago",
    "America/Sao_Paulo",
    "Antarctica/Troll",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Australia/Lord_Howe",
    "Europe/Dublin",
    "Pacific/Apia",
    "Pacific/Chatham",
];

fn zone(name: &str) -> TimeZone {
    TimeZoneDatabase::bundled().get(name).unwrap()
}

/// All changes of the zones from 1970 to 2040, in seconds.
static CHANGES: LazyLock<Vec<(&'static str, i64)>> = LazyLock::new(|| {
    let end = 70 * 365 * 86_400;
    let changes = |name| {
        let zone = zone(name);
        let changes = zone.following(Timestamp::UNIX_EPOCH).map(|change| change.timestamp().as_second());
        changes.take_while(|change| *change < end).map(move |change| (name, change)).collect::<Vec<_>>()
    };
    ZONES.into_iter().flat_map(changes).collect()
});

/// A zone and an instant in seconds, most often near a change of the zone.
fn zone_and_start() -> impl Strategy<Value = (&'static str, i64)> {
    prop_oneof![
        4 => (0..CHANGES.len(), -3 * 3_600..3_600_i64).prop_map(|(index, distance)| {
            let (zone, change) = CHANGES[index];
            (zone, change + distance)
        }),
        1 => (select(ZONES.to_vec()), 300_000..2_000_000_000_i64),
    ]
}

/// The times in `seconds` from `start`, found second by second: a clock that shows local times. A schedule of every hour
/// fires when the clock shows a matching time, any other when the clock passes a matching time that it has not shown.
fn walk(fields: &Fields, zone: &TimeZone, start: i64, seconds: i64) -> Vec<u64> {
    let local = |second: i64| {
        let instant = Timestamp::from_second(second).unwrap();
        second + i64::from(zone.to_offset(instant).seconds())
    };
    let mut shown = (start - LONGEST_JUMP..start).map(local).max().unwrap();
    let mut times = Vec::new();
    for second in start..=start + seconds {
        let now = local(second);
        let fires = if fields.is_of_every_hour() {
            fields.matches(now)
        } else {
            (shown + 1..=now).any(|passed| fields.matches(passed))
        };
        shown = shown.max(now);
        if fires {
            times.push(second as u64 * 1_000);
        }
    }
    times
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn times_near_changes_are_those_of_a_clock_on_the_wall(
        fields in fields([1, 6, 4, 20, 20, 20]),
        (name, start) in zone_and_start(),
        probes in prop::collection::vec(0_u64..4 * 3_600_000, 8),
    ) {
        let Ok(calendar) = Calendar::cron(&fields.text(), name) else { return Ok(()) };
        prop_assume!(start > 300_000);
        let length = 4 * 3_600;
        let expected = walk(&fields, &zone(name), start, length);
        let (from, to) = (start as u64 * 1_000, (start + length) as u64 * 1_000);
        let context = format!("{} in {name} from {}", fields.text(), written(from));
        prop_assert_eq!(&calendar.times_between(from - 1, to).collect::<Vec<_>>(), &expected, "{}", context);
        for probe in probes.into_iter().map(|probe| from + probe).chain([from, to]) {
            let next = calendar.next_after(probe).filter(|next| *next <= to);
            prop_assert_eq!(next, expected.iter().copied().find(|time| *time > probe), "{} after {}", context, probe);
            let last = calendar.last_at_or_before(probe).filter(|last| *last >= from);
            prop_assert_eq!(last, expected.iter().copied().rfind(|time| *time <= probe), "{} at {}", context, probe);
        }
    }

    #[test]
    fn days_are_those_of_a_walk_through_a_calendar(fields in fields([0, 0, 0, 2, 3, 3]), start in 0_i64..40_000) {
        let date = |day: i64| Offset::UTC.to_datetime(Timestamp::from_second(day * DAY).unwrap()).date();
        let Ok(calendar) = Calendar::cron(&fields.text(), "UTC") else {
            prop_assert!((0..400 * 366).all(|day| !fields.day_matches(date(day))), "{} was refused", fields.text());
            return Ok(());
        };
        let end = start + 3_000;
        let expected: Vec<i64> = (start..end).filter(|day| fields.day_matches(date(*day))).collect();
        let mut found = Vec::new();
        let mut time = (start * DAY * 1_000) as u64;
        while let Some(next) = calendar.next_after(time.saturating_sub(1)) {
            let day = next as i64 / 1_000 / DAY;
            if day >= end {
                break;
            }
            found.push(day);
            time = ((day + 1) * DAY * 1_000) as u64;
            let last = calendar.last_at_or_before(time - 1).unwrap();
            prop_assert!(next <= last && last < time, "{}: {} is on another day", fields.text(), written(last));
        }
        prop_assert_eq!(found, expected, "{}", fields.text());
    }

    #[test]
    fn next_and_last_time_are_inverse(
        fields in fields([1, 2, 3, 6, 6, 6]),
        (name, start) in zone_and_start(),
        offset in 0_u64..1_000,
    ) {
        let Ok(calendar) = Calendar::cron(&fields.text(), name) else { return Ok(()) };
        let time = start.max(0) as u64 * 1_000 + offset;
        let next = calendar.next_after(time).unwrap();
        prop_assert!(next > time);
        prop_assert_eq!(calendar.last_at_or_before(next), Some(next));
        let last = calendar.last_at_or_before(time);
        prop_assert_eq!(calendar.last_at_or_before(next - 1), last);
        if let Some(last) = last {
            prop_assert!(last <= time);
            prop_assert_eq!(calendar.next_after(last), Some(next));
            prop_assert!(last == 0 || calendar.next_after(last - 1) == Some(last));
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[0-9*/,?LlWw# @a-zA-Z-]{0,40}|\\PC{0,40}") {
        if let Ok(calendar) = Calendar::cron(&text, "UTC") {
            prop_assert!(calendar.next_after(0).is_some());
            prop_assert_eq!(calendar.to_string(), text);
        }
    }
}
