//! Schedules with a period.

use std::time::Duration;

use kvqueue_calendar::{Calendar, CalendarError, LONGEST_PERIOD, SHORTEST_PERIOD};
use proptest::prelude::*;

fn every(period: Duration) -> Calendar {
    Calendar::every(period).unwrap()
}

#[test]
fn period_fires_at_its_multiples_since_1970() {
    let five_minutes = every(Duration::from_secs(300));
    assert_eq!(five_minutes.next_after(0), Some(300_000));
    assert_eq!(five_minutes.next_after(299_999), Some(300_000));
    assert_eq!(five_minutes.next_after(300_000), Some(600_000));
    assert_eq!(five_minutes.last_at_or_before(299_999), Some(0));
    assert_eq!(five_minutes.last_at_or_before(300_000), Some(300_000));
    assert_eq!(five_minutes.times_between(0, 900_000).collect::<Vec<_>>(), [300_000, 600_000, 900_000]);
    assert_eq!((five_minutes.to_string(), five_minutes.zone()), ("5m".to_owned(), None));
}

#[test]
fn period_with_an_anchor_fires_at_its_multiples_from_there() {
    let calendar = Calendar::every_from(Duration::from_secs(10), 1_000_003_500).unwrap();
    assert_eq!(calendar.next_after(1_000_003_499), Some(1_000_003_500));
    assert_eq!(calendar.next_after(1_000_003_500), Some(1_000_013_500));
    assert_eq!(calendar.last_at_or_before(1_000_003_499), Some(999_993_500));
    assert_eq!(calendar.next_after(0), Some(3_500));
    assert_eq!(calendar.last_at_or_before(3_499), None);
}

#[test]
fn last_times_before_the_end_of_time_do_not_overflow() {
    let calendar = every(LONGEST_PERIOD);
    let last = calendar.last_at_or_before(u64::MAX).unwrap();
    assert!(u64::MAX - last < LONGEST_PERIOD.as_millis() as u64);
    assert_eq!(calendar.next_after(last), None);
}

#[test]
fn periods_that_are_too_short_too_long_or_too_fine_are_refused() {
    for period in [SHORTEST_PERIOD, LONGEST_PERIOD, Duration::from_millis(1_001)] {
        every(period);
    }
    for period in [
        Duration::ZERO,
        SHORTEST_PERIOD - Duration::from_nanos(1),
        LONGEST_PERIOD + Duration::from_nanos(1),
        Duration::from_nanos(1_000_000_001),
        Duration::MAX,
    ] {
        assert_eq!(Calendar::every(period), Err(CalendarError::Period { period }));
    }
    let error = Calendar::every(Duration::from_millis(10)).unwrap_err().to_string();
    assert_eq!(error, "a schedule cannot have the period 10ms; write 1s to 3650 days, in whole milliseconds");
}

proptest! {
    #[test]
    fn neighbours_of_a_time_are_a_period_apart(period in 1_000_u64..10_000_000, anchor: u64, time: u64) {
        let calendar = Calendar::every_from(Duration::from_millis(period), anchor).unwrap();
        let is_time = |time: u64| u64::try_from((i128::from(time) - i128::from(anchor)).rem_euclid(i128::from(period)));
        let (last, next) = (calendar.last_at_or_before(time), calendar.next_after(time));
        for time in last.into_iter().chain(next) {
            prop_assert_eq!(is_time(time), Ok(0));
        }
        prop_assert!(last.is_none_or(|last| last <= time && time - last < period));
        prop_assert!(last.is_some() || time < period);
        prop_assert!(next.is_none_or(|next| time < next && next - time <= period));
        prop_assert!(next.is_some() || u64::MAX - time < period);
    }
}
