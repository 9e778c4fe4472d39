//! Schedules with a period.

use std::time::Duration;

use kvqueue_calendar::{Calendar, CalendarError, LONGEST_PERIOD, SHORTEST_PERIOD, TimeCount};
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
fn times_are_counted_with_both_ends() {
    let exact = |times| TimeCount { times, is_exact: true };
    let seconds = every(Duration::from_secs(1));
    assert_eq!(seconds.count(0, 0, 1), exact(1));
    assert_eq!(seconds.count(1_000, 3_000, 1), exact(3));
    assert_eq!(seconds.count(1_001, 1_999, 1), exact(0));
    assert_eq!(seconds.count(2, 1, 1), exact(0));
    // Those of a cron expression are counted one by one, up to a bound.
    let minutes = Calendar::cron("* * * * *", "UTC").unwrap();
    assert_eq!(minutes.count(0, 120_000, 3), exact(3));
    assert_eq!(minutes.count(1, 120_000, 3), exact(2));
    assert_eq!(minutes.count(60_001, 60_002, 3), exact(0));
    assert_eq!(minutes.count(2, 1, 3), exact(0));
    assert_eq!(minutes.count(0, 180_000, 3), TimeCount { times: 3, is_exact: false });
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
    fn neighbours_of_a_time_are_a_period_apart(period in 1_000_u64..10_000_000, time: u64, more in 0_u64..100_000_000) {
        let calendar = every(Duration::from_millis(period));
        let (last, next) = (calendar.last_at_or_before(time).unwrap(), calendar.next_after(time));
        for time in [Some(last), next].into_iter().flatten() {
            prop_assert_eq!(time % period, 0);
        }
        prop_assert!(last <= time && time - last < period);
        prop_assert!(next.is_none_or(|next| time < next && next - time <= period));
        prop_assert!(next.is_some() || u64::MAX - time < period);
        let to = (time % 1_000_000_000_000).saturating_add(more);
        let from = time % 1_000_000_000_000;
        let listed = calendar.times_between(from, to).count() as u64 + u64::from(from % period == 0);
        prop_assert_eq!(calendar.count(from, to, 1).times, listed);
    }
}
