//! Clocks that differ, and clocks that are set.

use kvqueue_queue::Millis;
use kvqueue_queue::schedule::{Missed, MissedPolicy, Outcome};

use crate::common::schedules::{HOUR, MINUTE, fired, schedule};
use crate::common::{TestDb, on_database};

/// Noon of some day.
const NOON: Millis = 1_800_000_000_000 / HOUR * HOUR;
/// Fourteen years.
const YEARS: Millis = 14 * 365 * 24 * HOUR;

/// What was fired, each time once; in the order of the times.
async fn fired_once(t: &TestDb, q: &kvqueue_queue::Queue) -> Vec<Millis> {
    let mut times = fired(&t.schedule_history(q, "s").await);
    times.sort_unstable();
    let all = times.len();
    times.dedup();
    assert_eq!(times.len(), all, "a nominal time fired twice");
    assert_eq!(t.len(q).await, i64::try_from(all).unwrap());
    times
}

#[test]
fn clocks_that_are_minutes_apart_fire_each_time_once() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put(&q, &schedule("s", MINUTE), NOON).await;
        let skews = [0_i64, 25 * 60_000, -25 * 60_000, 7_000];
        let mut schedulers: Vec<_> = skews.iter().map(|_| Scheduler::new(q.clone())).collect();
        for second in (0..600).step_by(7) {
            for (scheduler, skew) in schedulers.iter_mut().zip(skews) {
                let now = (NOON + second * 1_000).saturating_add_signed(skew);
                t.look(scheduler, now).await;
            }
        }
        let times = fired_once(t, &q).await;
        // The first look of the fastest clock passes over what is missed by it.
        let from = NOON / MINUTE + 25;
        assert_eq!(times, (from..from + 10).map(|n| n * MINUTE).collect::<Vec<_>>());
    });
}

#[test]
fn a_clock_that_was_years_ahead_does_not_silence_a_schedule() {
    on_database(async |t| {
        for policy in [MissedPolicy::Skip, MissedPolicy::Once, MissedPolicy::All] {
            let q = t.queue(format!("{policy:?}"));
            let mut one = schedule("s", MINUTE);
            one.missed = Missed { policy, window: None, most: 3 };
            t.put(&q, &one, NOON).await;
            let (mut wrong, mut right) = (Scheduler::new(q.clone())::new(q.clone()));
            t.look(&q, NOON + MINUTE).await;
            let ahead = t.look(&q, NOON + MINUTE + YEARS).await;
            assert_eq!(ahead.next, Some(NOON + YEARS + 2 * MINUTE));
            // The right clock finds out when to look, and goes on from there.
            let look = t.look(&q, NOON + MINUTE + 1).await;
            assert_eq!((look.occurrences.len(), look.next), (0, Some(NOON + 2 * MINUTE)), "{policy:?}");
            for n in 2..=10 {
                let look = t.look(&q, NOON + n * MINUTE).await;
                assert_eq!(look.next, Some(NOON + (n + 1) * MINUTE), "{policy:?}");
            }
            let times = fired_once(t, &q).await;
            let expected: Vec<_> = (1..=10).map(|n| NOON + n * MINUTE).collect();
            let early: Vec<_> = times.iter().copied().filter(|time| *time < NOON + YEARS / 2).collect();
            assert_eq!(early, expected, "{policy:?}");
            // Both go on, each at its own times.
            t.look(&q, NOON + YEARS + 2 * MINUTE).await;
            t.look(&q, NOON + 11 * MINUTE).await;
            assert_eq!(fired_once(t, &q).await.len(), times.len() + 2, "{policy:?}");
        }
    });
}

#[test]
fn after_an_outage_no_look_fires_what_was_passed_over() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put(&q, &schedule("s", MINUTE), NOON).await;
        t.look(&q, NOON + 24 * HOUR).await;
        for second in 1..60 {
            assert_eq!(t.look(&q, NOON + 24 * HOUR + second * 1_000).await.looked, []);
        }
        // Nor does a clock that is less than an hour behind.
        let mut behind = Scheduler::new(q.clone());
        assert_eq!(t.look(&q, NOON + 23 * HOUR + MINUTE).await.looked, []);
        assert_eq!(fired_once(t, &q).await, [NOON + 24 * HOUR]);
    });
}

#[test]
fn a_clock_that_is_hours_behind_fires_nothing_twice() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put(&q, &schedule("s", MINUTE), NOON).await;
        let (mut right, mut behind) = (Scheduler::new(q.clone())::new(q.clone()));
        for n in 1..=30 {
            t.look(&q, NOON + n * MINUTE).await;
            t.look(&q, NOON + n * MINUTE - 5 * HOUR).await;
        }
        assert_eq!(fired_once(t, &q).await.len(), 30);
    });
}

#[test]
fn a_narrow_gap_does_not_push_a_wide_one_out() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put(&q, &schedule("s", MINUTE), NOON).await;
        let (mut wrong, mut right) = (Scheduler::new(q.clone())::new(q.clone()));
        // Of six outages the first one is a clock that was years ahead.
        let mut now = NOON + YEARS;
        for _ in 0..6 {
            t.look(&q, now).await;
            now += 2 * HOUR;
        }
        let gaps = t.records(&q, "schedule-gap").await.len();
        assert_eq!(gaps, 4);
        t.look(&q, NOON + MINUTE).await;
        let history = t.schedule_history(&q, "s").await;
        assert!(matches!(history.last().unwrap().outcome, Outcome::Fired { .. }));
        assert_eq!(history.last().unwrap().from, NOON + MINUTE);
        fired_once(t, &q).await;
    });
}
