//! Clocks that differ, and clocks that are set.

use std::pin::pin;
use std::sync::atomic::Ordering;

use fdb_embedded::Fault;
use kvqueue_queue::schedule::{Missed, MissedPolicy, PutEffect};
use kvqueue_queue::{Millis, Queue};

use crate::common::gate::{to_the_end, until_sent};
use crate::common::schedules::{HOUR, MINUTE, every, fired, schedule};
use crate::common::{TestDb, on_database, rules, sweeper_with_clock};

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
        let (clock, mut sweeper) = sweeper_with_clock(&q);
        let Some(gate) = t.close_gate() else { return };
        let swept = {
            let rules = rules();
            let mut sweep = pin!(t.sweep(&mut sweeper, MINUTE, &rules));
            let commit = until_sent(&gate, sweep.as_mut()).await;
            // The database is away for two hours.
            clock.store(2 * HOUR * 1_000, Ordering::Relaxed);
            let _told_to_its_client = commit.pass(Fault::UnknownNotCommitted);
            to_the_end(&gate, sweep).await
        };
        drop(gate);
        let records: Vec<_> = swept.occurrences.iter().map(|(_, record)| record.clone()).collect();
        assert_eq!(fired(&records), [2 * HOUR + MINUTE]);
        assert_eq!((records[0].from, records[0].to, records[0].at), (MINUTE, 2 * HOUR, 2 * HOUR + MINUTE));
    });
}

#[test]
fn a_schedule_that_a_clock_has_moved_years_ahead_goes_on_after_a_pause() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put(&q, &schedule("s", MINUTE), NOON).await;
        t.look(&q, NOON + YEARS).await;
        // Neither another definition nor a look by a right clock moves it back: nothing is to fire twice.
        assert_eq!(t.put(&q, &schedule("s", HOUR), NOON).await, PutEffect::Replaced { calendar: true });
        assert_eq!(t.look(&q, NOON + HOUR).await.next, Some(NOON + 24 * HOUR));
        assert_eq!(t.schedule_state(&q, "s").await.next, Some(NOON + YEARS + HOUR));
        t.run(async |tr| q.pause_schedule(tr, "s", NOON + HOUR).await).await;
        t.run(async |tr| q.resume_schedule(tr, "s", NOON + HOUR).await).await;
        let look = t.look(&q, NOON + 2 * HOUR).await;
        assert_eq!((look.fired(), look.next), (vec![NOON + 2 * HOUR], Some(NOON + 3 * HOUR)));
        fired_once(t, &q).await;
    });
}

#[test]
fn a_resumption_by_a_clock_that_is_behind_takes_nothing_back() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put(&q, &schedule("s", MINUTE), NOON).await;
        t.look(&q, NOON + 30 * MINUTE).await;
        t.run(async |tr| q.pause_schedule(tr, "s", NOON).await).await;
        t.run(async |tr| q.resume_schedule(tr, "s", NOON).await).await;
        assert_eq!(t.look(&q, NOON + 30 * MINUTE).await.fired(), []);
        assert_eq!(t.schedule_state(&q, "s").await.next, Some(NOON + 31 * MINUTE));
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
