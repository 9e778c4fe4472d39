//! Clocks that differ, and clocks that are set.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fdb_embedded::Fault;
use kvqueue_queue::schedule::{Missed, MissedPolicy, PutEffect};
use kvqueue_queue::{Queue, from_millis};

use crate::common::gate::{to_the_end, until_sent};
use crate::common::schedules::{HOUR, MINUTE, every, fired, schedule, scheduler, span};
use crate::common::{Millis, TestDb, on_database, rules};

/// Noon of some day.
const NOON: Millis = 1_800_000_000_000 / HOUR * HOUR;
/// Fourteen years.
const YEARS: Millis = 14 * 365 * 24 * HOUR;

/// What was fired, each time once; in the order of the times.
async fn fired_once(t: &TestDb, q: &Queue) -> Vec<Millis> {
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
        let mut one = schedule("s", MINUTE);
        one.missed = Missed { policy: MissedPolicy::All, ..Missed::default() };
        t.put(&q, &one, NOON).await;
        for second in (0..600).step_by(7) {
            for skew in [0_i64, 25 * 60_000, -25 * 60_000, 7_000] {
                t.look(&q, (NOON + second * 1_000).saturating_add_signed(skew)).await;
            }
        }
        // The fastest clock decides.
        let from = NOON / MINUTE + 1;
        assert_eq!(fired_once(t, &q).await, (from..from + 34).map(|n| n * MINUTE).collect::<Vec<_>>());
    });
}

#[test]
fn a_transaction_that_waits_fires_by_the_time_of_its_last_attempt() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put(&q, &schedule("s", MINUTE), 0).await;
        let clock = AtomicU64::new(MINUTE);
        let now = || from_millis(clock.load(Ordering::Relaxed));
        let (mut sweeper, rules) = (scheduler(&q), rules());
        let Some(gate) = t.close_gate() else { return };
        let swept = {
            let mut sweep = pin!(sweeper.sweep(&t.db, &now, &rules));
            let commit = until_sent(&gate, sweep.as_mut()).await;
            // The database is away for two hours.
            clock.fetch_add(2 * HOUR, Ordering::Relaxed);
            let _told_to_its_client = commit.pass(Fault::UnknownNotCommitted);
            to_the_end(&gate, sweep).await.unwrap()
        };
        drop(gate);
        let records: Vec<_> = swept.occurrences.iter().map(|(_, record)| record.clone()).collect();
        assert_eq!(fired(&records), [2 * HOUR + MINUTE]);
        assert_eq!(span(&records[0]), (MINUTE, 2 * HOUR));
        assert_eq!(records[0].at, from_millis(2 * HOUR + MINUTE));
    });
}

#[test]
fn a_sweep_sleeps_until_the_next_schedule_by_the_time_after_its_look() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put(&q, &schedule("s", HOUR), 1).await;
        // A look that takes 90 minutes: the clock shows them from its second reading on.
        let readings = AtomicU64::new(0);
        let clock = || from_millis(MINUTE + readings.fetch_add(1, Ordering::Relaxed).min(1) * 90 * MINUTE);
        let rules = rules().with_lease(Duration::from_hours(2));
        let swept = scheduler(&q).sweep(&t.db, &clock, &rules).await.unwrap();
        // It has missed the first time by half an hour; the policy is to fire it.
        assert_eq!(swept.occurrences.len(), 1);
        assert_eq!(swept.next, Duration::from_mins(29));
    });
}

#[test]
fn a_schedule_that_a_clock_has_moved_years_ahead_goes_on_when_it_is_restarted() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put(&q, &schedule("s", MINUTE), NOON).await;
        t.look(&q, NOON + YEARS).await;
        // Neither another definition, nor a pause, nor a right clock moves it back: nothing is to fire twice.
        assert_eq!(t.put(&q, &schedule("s", HOUR), NOON).await, PutEffect::Replaced { calendar: true });
        t.run(async |tr| q.pause_schedule(tr, "s", from_millis(NOON)).await).await;
        t.run(async |tr| q.resume_schedule(tr, "s", from_millis(NOON)).await).await;
        assert_eq!(t.look(&q, NOON + HOUR).await.next, Some(NOON + 24 * HOUR));
        assert_eq!(t.schedule_state(&q, "s").await.next, Some(from_millis(NOON + YEARS + HOUR)));
        assert!(t.run(async |tr| q.restart_schedule(tr, "s", from_millis(NOON + HOUR)).await).await);
        assert!(!t.run(async |tr| q.restart_schedule(tr, "none", from_millis(NOON + HOUR)).await).await);
        let look = t.look(&q, NOON + 2 * HOUR).await;
        assert_eq!((look.fired(), look.next), (vec![NOON + 2 * HOUR], Some(NOON + 3 * HOUR)));
        fired_once(t, &q).await;
    });
}

#[test]
fn a_resume_by_a_clock_that_is_behind_takes_nothing_back() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put(&q, &schedule("s", MINUTE), NOON).await;
        t.look(&q, NOON + 300 * MINUTE).await;
        t.run(async |tr| q.pause_schedule(tr, "s", from_millis(NOON)).await).await;
        t.run(async |tr| q.resume_schedule(tr, "s", from_millis(NOON)).await).await;
        assert_eq!(t.look(&q, NOON + 300 * MINUTE).await.fired(), []);
        assert_eq!(t.schedule_state(&q, "s").await.next, Some(from_millis(NOON + 301 * MINUTE)));
    });
}

#[test]
fn a_clock_that_is_hours_behind_fires_nothing_twice() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put(&q, &schedule("s", MINUTE), NOON).await;
        for n in 1..=30 {
            t.look(&q, NOON + n * MINUTE).await;
            t.look(&q, NOON + n * MINUTE - 5 * HOUR).await;
        }
        assert_eq!(fired_once(t, &q).await.len(), 30);
    });
}

#[test]
fn a_schedule_with_a_long_interval_is_looked_at_every_day() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut one = schedule("s", MINUTE);
        one.calendar = every(30 * 24 * HOUR);
        t.put(&q, &one, NOON).await;
        let (mut now, mut looks) = (NOON, 0);
        while t.len(&q).await == 0 {
            now = t.first_row(&q).await.unwrap();
            assert!(t.look(&q, now - 1).await.occurrences.is_empty());
            t.look(&q, now).await;
            looks += 1;
        }
        assert_eq!(fired_once(t, &q).await, [now]);
        assert!((1..=30).contains(&looks), "{looks}");
    });
}
