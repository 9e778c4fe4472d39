//! Plans against a slow model: a list of all times that are due.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const HOUR: Millis = 3_600_000;
const MINUTE: Millis = 60_000;

fn of(policy: MissedPolicy, window: Option<Millis>, most: u32) -> Missed {
    Missed { policy, window: window.map(Duration::from_millis), most }
}

fn every(period: Millis) -> Calendar {
    Calendar::every(Duration::from_millis(period)).unwrap()
}

fn minutes(missed: &Missed, after: Millis, now: Millis) -> Plan {
    plan(&every(MINUTE), missed, after, now, 100)
}

#[test]
fn nothing_is_due_before_the_next_time() {
    let plan = minutes(&Missed::default(), 5 * MINUTE, 6 * MINUTE - 1);
    assert_eq!(plan, Plan { mark: 5 * MINUTE, ..Plan::default() });
}

#[test]
fn an_occurrence_that_is_due_fires_whatever_the_policy() {
    for policy in [MissedPolicy::Skip, MissedPolicy::Once, MissedPolicy::All] {
        for late in [0, 1, ON_TIME - 1] {
            let plan = minutes(&of(policy, Some(0), 1), 5 * MINUTE, 6 * MINUTE + late);
            assert_eq!(
                (plan.fire, plan.passed, plan.mark),
                (vec![6 * MINUTE], vec![], 6 * MINUTE),
                "{policy:?}"
            );
        }
    }
}

#[test]
fn of_a_year_of_missed_seconds_one_fires_and_one_stretch_is_recorded() {
    let now = 365 * 24 * HOUR;
    let plan = plan(&every(1_000), &Missed::default(), 0, now, 100);
    assert_eq!((plan.fire, plan.mark, plan.passed.len()), (vec![now], now, 1));
    let passed = plan.passed[0];
    assert_eq!((passed.from, passed.to, passed.reason), (1_000, now - 1_000, MissReason::Policy));
    assert_eq!(passed.count, TimeCount { times: now / 1_000 - 1, is_exact: true });
}

#[test]
fn a_late_occurrence_fires_by_its_policy() {
    let late = |missed| {
        let now = 10 * HOUR + 2 * MINUTE;
        let plan = plan(&every(HOUR), &missed, 9 * HOUR, now, 100);
        (plan.fire.len(), plan.passed.first().map(|passed| passed.reason))
    };
    assert_eq!(late(of(MissedPolicy::Skip, None, 1)), (0, Some(MissReason::Policy)));
    assert_eq!(late(of(MissedPolicy::Once, None, 1)), (1, None));
    assert_eq!(late(of(MissedPolicy::Once, Some(MINUTE), 1)), (0, Some(MissReason::Window)));
    assert_eq!(late(of(MissedPolicy::All, Some(MINUTE), 1)), (0, Some(MissReason::Window)));
    assert_eq!(late(of(MissedPolicy::All, Some(2 * MINUTE), 1)), (1, None));
}

#[test]
fn all_fire_within_window_and_maximum_in_pages() {
    let missed = of(MissedPolicy::All, Some(10 * MINUTE), 5);
    let now = HOUR;
    let plan = |after, room| plan(&every(MINUTE), &missed, after, now, room);
    let whole = plan(0, 100);
    assert_eq!(whole.fire, [56, 57, 58, 59, 60].map(|n| n * MINUTE));
    let passed: Vec<_> = whole.passed.iter().map(|p| (p.from / MINUTE, p.to / MINUTE, p.reason)).collect();
    assert_eq!(passed, [(1, 49, MissReason::Window), (50, 55, MissReason::Maximum)]);
    let first = plan(0, 2);
    assert_eq!((first.fire.as_slice(), first.mark), (&[56, 57].map(|n| n * MINUTE)[..], 57 * MINUTE));
    let rest = plan(first.mark, 100);
    assert_eq!(
        (rest.fire, rest.passed, rest.mark),
        ([58, 59, 60].map(|n| n * MINUTE).to_vec(), vec![], 60 * MINUTE)
    );
}

proptest! {
    #[test]
    fn every_due_occurrence_is_accounted_for_once(
        period in 1_000..200_000_u64, after in 0..10_000_000_u64, gone in 0..3_000_000_u64,
        policy in 0..3_usize, window in prop::option::of(0..2_000_000_u64), most in 1..50_u32, room in 1..60_usize,
    ) {
        let policy = [MissedPolicy::Skip, MissedPolicy::Once, MissedPolicy::All][policy];
        let missed = of(policy, window, most);
        let now = after + gone;
        let due: Vec<Millis> = (after / period + 1..).map(|n| n * period).take_while(|time| *time <= now).collect();
        let plan = plan(&every(period), &missed, after, now, room);

        // What is passed and what fires are the due times up to the mark, each once and in order.
        let mut accounted: Vec<Millis> = Vec::new();
        for passed in &plan.passed {
            let times: Vec<_> = due.iter().copied().filter(|time| (passed.from..=passed.to).contains(time)).collect();
            prop_assert_eq!((times.first(), times.last()), (Some(&passed.from), Some(&passed.to)));
            if passed.count.is_exact {
                prop_assert_eq!(passed.count.times, times.len() as u64);
            }
            accounted.extend(times);
        }
        accounted.extend(&plan.fire);
        let expected: Vec<_> = due.iter().copied().filter(|time| *time <= plan.mark).collect();
        prop_assert_eq!(accounted, expected);
        prop_assert!(plan.fire.len() == room || plan.mark == due.last().copied().unwrap_or(after));
        prop_assert!(plan.fire.len() <= room);

        // And what fires is what the policy says.
        let Some(newest) = due.last().copied() else { return Ok(()) };
        let on_time = now - newest <= ON_TIME;
        let within = |time: Millis| window.is_none_or(|window| now - time <= window);
        match policy {
            MissedPolicy::Skip => prop_assert_eq!(plan.fire.len(), usize::from(on_time)),
            MissedPolicy::Once => prop_assert_eq!(plan.fire.len(), usize::from(on_time || within(newest))),
            MissedPolicy::All => {
                let fire: Vec<_> = due.iter().rev().copied()
                    .take_while(|time| within(*time) || now - time <= ON_TIME)
                    .take(most as usize).collect();
                let fire: Vec<_> = fire.into_iter().rev().take(room).collect();
                prop_assert_eq!(plan.fire, fire);
            }
        }
    }
}
