//! The sweeper's plan, from what it has read. Pure.

use std::time::Duration;

use super::rules::SweepRules;
use crate::keys::agenda::Event;
use crate::model::lease_id::LeaseId;
use crate::model::time::{duration, versions};
use crate::ops::duty::{Lookout, Scope};
use crate::ops::look::{Seen, Seldom};
use crate::ops::times;

/// Something to do, in one transaction or a few.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Chore {
    /// Give back the items of a lease that has run out.
    Return(LeaseId),
    /// Do what is due of this event.
    Due(Event),
    /// Forget old operations.
    Forget,
    /// Note at what time this version was known, so that operations have an age.
    Note(u64),
    /// Clear requests of takes that died in the line.
    Dismiss,
    /// Clear ended items that are too old.
    ClearEnded,
}

/// The plan after a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    /// This is to be done, and then another look.
    Work(Vec<Chore>),
    /// Another sweeper works on the queue: look again in this many versions.
    Wait(u64),
    /// Nothing is to be done before this time has passed.
    Rest(Duration),
}

/// Decides.
pub(super) fn plan(seen: &Seen, lookout: &Lookout, rules: &SweepRules) -> Plan {
    // A look stops at the claim of another sweeper that works. Waiting sweepers come back at different times.
    let claimed = seen.claimed.map(|left| Plan::Wait(left + lookout.share));
    if let Some(wait) = claimed.clone().filter(|_| seen.seldom.is_none()) {
        return wait;
    }
    match chores(seen, lookout, rules) {
        chores if chores.is_empty() => Plan::Rest(rest(seen, lookout, rules)),
        chores => claimed.unwrap_or(Plan::Work(chores)),
    }
}

/// If reading the leases takes several looks, there are at least this many looks in the time of a lease.
const LOOKS: u64 = 16;

/// The version from which on the next look is to be at everything, if there is nothing to do now.
///
/// Leases that do not fit into one look are read page by page, with pauses in between. All pages together take half the time of a lease, so a lease
/// that has run out is found that much later at most; an estimate of their number that is too low by half still leaves a round within one
/// lease.
pub(super) fn all_from_next(seen: &Seen, all_from: u64, rules: &SweepRules) -> u64 {
    if let Scope::Unless(_, again) = seen.scope {
        return again;
    }
    let Some(seldom) = &seen.seldom else { return all_from };
    if seldom.pages > 1 {
        return seen.version.saturating_add(versions(rules.lease) / LOOKS.max(2 * seldom.pages));
    }
    // A lease taken after this look runs out later than this, and others not before theirs.
    let new = seen.version.saturating_add(versions(rules.lease));
    seldom.deadline.map_or(new, |deadline| deadline.saturating_add(1).min(new))
}

fn chores(seen: &Seen, lookout: &Lookout, rules: &SweepRules) -> Vec<Chore> {
    let (now, removes_by) = (lookout.now, seen.clock.removal_time(lookout.now));
    let none = Seldom::default();
    let seldom = seen.seldom.as_ref().unwrap_or(&none);
    let mut chores: Vec<_> = seldom.expired.iter().map(|id| Chore::Return(*id)).collect();
    chores.extend(Event::ALL.into_iter().filter(|event| seen.is_due(*event, lookout)).map(Chore::Due));
    let kept = versions(rules.idempotency_window);
    if let Some(oldest) = seldom.operation {
        if oldest < times::old_before(&seldom.times, seen.version, removes_by, kept) {
            chores.push(Chore::Forget);
        }
        let is_due = |known| times::is_due(&seldom.times, known, seen.version, now, kept);
        if let Some(known) = seen.known.filter(|known| is_due(*known)) {
            chores.push(Chore::Note(known));
        }
    }
    if seldom.requests {
        chores.push(Chore::Dismiss);
    }
    if seldom.history.as_ref().is_some_and(|history| history.is_due(removes_by)) {
        chores.push(Chore::ClearEnded);
    }
    chores
}

/// How long a sweeper waits at least for a version that stands still, as on a quiet cluster for up to two seconds.
const STILL: Duration = Duration::from_millis(500);

/// How long nothing is to be done.
fn rest(seen: &Seen, lookout: &Lookout, rules: &SweepRules) -> Duration {
    let again = match seen.scope {
        Scope::Standby(until) => until,
        _ => all_from_next(seen, lookout.pause.end, rules),
    };
    let stands_still = seen.version == lookout.last && !lookout.looks_always();
    let look =
        duration(again.saturating_sub(seen.version)).max(if stands_still { STILL } else { Duration::ZERO });
    let is_second = lookout.is_second(seen.version, seen.duty);
    let patience = if is_second { duration(lookout.patience()) } else { Duration::ZERO };
    let due = seen
        .times
        .iter()
        .min()
        .map(|due| Duration::from_millis(due.saturating_sub(lookout.now)).saturating_add(patience));
    let answers = seen.clock.settles_in.map(|left| duration(left + 1));
    due.into_iter().chain(answers).fold(look, Duration::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::duty::Duty;
    use crate::model::session_id::SessionId;
    use crate::model::sightings::Sightings;
    use crate::model::time::Millis;
    use crate::ops::agenda::ByEvent;
    use crate::ops::clocks::{Judgement, OwnClock};

    const ME: SessionId = SessionId([1; 16]);
    const OTHER: SessionId = SessionId([2; 16]);
    const NOW: Millis = 5_000;
    const KNOWN: u64 = 9_999_999;
    const LEASE: LeaseId = LeaseId { session: OTHER, number: 1 };

    fn rules() -> SweepRules {
        SweepRules {
            lease: Duration::from_secs(1),
            idempotency_window: Duration::from_micros(500),
            ..SweepRules::default()
        }
    }

    fn times(pairs: &[(u64, Millis)]) -> Sightings {
        let mut times = Sightings::default();
        pairs.iter().for_each(|(version, at)| times.note(*version, *at, 9));
        times
    }

    fn seen() -> Seen {
        Seen {
            version: 10_000_000,
            known: Some(KNOWN),
            duty: None,
            clock: Judgement::default(),
            times: ByEvent::default(),
            scope: Scope::Everything,
            claimed: None,
            seldom: Some(Seldom::default()),
        }
    }

    /// The first times of these events.
    fn first<const N: usize>(times: [(Event, Millis); N]) -> ByEvent<Option<Millis>> {
        let time = |event| times.iter().find(|(of, _)| *of == event).map(|(_, time)| *time);
        ByEvent::of(time)
    }

    fn lookout() -> Lookout {
        Lookout {
            me: ME,
            now: NOW,
            lease: 1_000_000,
            share: 7,
            last: 0,
            takes_over: false,
            pause: 0..10_300_000,
            marks_from: 0,
            clock: OwnClock::default(),
        }
    }

    fn of(seen: &Seen) -> Plan {
        plan(seen, &lookout(), &rules())
    }

    #[test]
    fn a_sweeper_without_work_rests_for_a_lease_length() {
        assert_eq!(of(&seen()), Plan::Rest(Duration::from_secs(1)));
        // Leases were looked at before; the time of the next look stands.
        assert_eq!(
            of(&Seen { scope: Scope::Scheduled, seldom: None, ..seen() }),
            Plan::Rest(Duration::from_millis(300))
        );
        assert_eq!(
            of(&Seen { scope: Scope::Unless(0, 10_400_000), seldom: None, ..seen() }),
            Plan::Rest(Duration::from_millis(400))
        );
    }

    #[test]
    fn a_sweeper_rests_until_the_first_due_item_or_deadline() {
        assert_eq!(
            of(&Seen { times: first([(Event::Ready, NOW + 20)]), ..seen() }),
            Plan::Rest(Duration::from_millis(20))
        );
        assert_eq!(
            of(&Seen { times: first([(Event::Ready, u64::MAX)]), ..seen() }),
            Plan::Rest(Duration::from_secs(1))
        );
        let seldom = Some(Seldom { deadline: Some(10_000_700), ..Seldom::default() });
        assert_eq!(of(&Seen { seldom, ..seen() }), Plan::Rest(Duration::from_micros(701)));
    }

    #[test]
    fn a_sweeper_rests_until_the_first_event_and_does_what_is_due() {
        for event in Event::ALL {
            for other in Event::ALL.into_iter().filter(|other| *other != event) {
                let seen = |time, others| Seen { times: first([(event, time), (other, others)]), ..seen() };
                assert_eq!(of(&seen(NOW + 20, NOW + 30)), Plan::Rest(Duration::from_millis(20)));
                assert_eq!(of(&seen(NOW, NOW + 20)), Plan::Work(vec![Chore::Due(event)]));
                let both = vec![Chore::Due(event.min(other)), Chore::Due(event.max(other))];
                assert_eq!(of(&seen(NOW, NOW)), Plan::Work(both));
            }
        }
    }

    #[test]
    fn a_sweeper_leaves_what_is_due_to_the_one_on_duty() {
        let seen = Seen { times: first([(Event::Batch, NOW)]), ..seen() };
        let other = Some(Duty { sweeper: OTHER, looked: 0, until: 0, idle: None });
        let scheduled = Seen { duty: other, scope: Scope::Scheduled, seldom: None, ..seen };
        assert_eq!(of(&scheduled), Plan::Rest(Duration::from_millis(300)));
    }

    #[test]
    fn a_sweeper_does_not_look_all_the_time_while_versions_stand_still() {
        let waiting = first([(Event::Ready, NOW + 20)]);
        let seen = Seen { scope: Scope::Scheduled, seldom: None, ..seen() };
        let of_last = |last, times| {
            let lookout = Lookout { last, pause: 0..10_000_001, ..lookout() };
            plan(&Seen { times, ..seen.clone() }, &lookout, &rules())
        };
        assert_eq!(of_last(9_999_999, ByEvent::default()), Plan::Rest(Duration::from_micros(1)));
        assert_eq!(of_last(10_000_000, ByEvent::default()), Plan::Rest(STILL));
        // Scheduled items have their time by the clock.
        assert_eq!(of_last(10_000_000, waiting), Plan::Rest(Duration::from_millis(20)));
    }

    #[test]
    fn leases_of_many_pages_are_all_looked_at_within_half_a_lease() {
        let rests = |pages| {
            let seldom = Some(Seldom { pages, deadline: Some(10_000_700), ..Seldom::default() });
            of(&Seen { seldom, ..seen() })
        };
        assert_eq!(rests(1), Plan::Rest(Duration::from_micros(701)));
        assert_eq!(rests(2), Plan::Rest(Duration::from_micros(1_000_000 / 16)));
        assert_eq!(rests(1_000), Plan::Rest(Duration::from_micros(500)));
    }

    #[test]
    fn due_work_is_planned_with_leases_first() {
        let seldom = Seldom {
            expired: vec![LEASE],
            operation: Some(9_999_499),
            times: times(&[(9_999_600, NOW - 1)]),
            requests: true,
            ..Seldom::default()
        };
        let seen = Seen { times: first([(Event::Ready, NOW)]), seldom: Some(seldom), ..seen() };
        assert_eq!(
            of(&seen),
            Plan::Work(vec![
                Chore::Return(LEASE),
                Chore::Due(Event::Ready),
                Chore::Forget,
                Chore::Note(KNOWN),
                Chore::Dismiss
            ])
        );
        assert_eq!(of(&Seen { claimed: Some(20), ..seen }), Plan::Wait(27));
    }

    #[test]
    fn a_second_sweeper_leaves_due_items_to_the_one_on_duty_until_that_is_late() {
        let duty = |sweeper| Some(Duty { sweeper, looked: 0, until: 0, idle: None });
        let of_scope = |scope, sweeper, due| {
            of(&Seen {
                scope,
                duty: duty(sweeper),
                times: first([(Event::Ready, due)]),
                seldom: None,
                ..seen()
            })
        };
        let patience = duration(lookout().patience());
        assert_eq!(of_scope(Scope::Standby(20_000_000), OTHER, NOW), Plan::Rest(patience));
        assert_eq!(of_scope(Scope::Standby(10_000_500), OTHER, NOW), Plan::Rest(Duration::from_micros(500)));
        assert_eq!(of_scope(Scope::Scheduled, OTHER, NOW), Plan::Rest(Duration::from_millis(300)));
        assert_eq!(of_scope(Scope::Scheduled, ME, NOW), Plan::Work(vec![Chore::Due(Event::Ready)]));
        assert_eq!(of_scope(Scope::Everything, OTHER, NOW), Plan::Work(vec![Chore::Due(Event::Ready)]));
    }

    #[test]
    fn young_idempotency_records_are_kept() {
        let of_pair = |operation, pair| {
            let times = times(&[pair]);
            of(&Seen {
                seldom: Some(Seldom { operation: Some(operation), times, ..Seldom::default() }),
                ..seen()
            })
        };
        let just_now = (9_999_990, NOW);
        assert!(matches!(of_pair(9_999_500, just_now), Plan::Rest(_)));
        // Old by versions, which may have jumped; then young by versions, and old by the clock.
        assert!(matches!(of_pair(1, just_now), Plan::Rest(_)));
        assert_eq!(of_pair(9_999_500, (9_999_600, NOW - 1)), Plan::Work(vec![Chore::Note(KNOWN)]));
    }

    #[test]
    fn an_operation_without_a_noted_time_has_one_noted() {
        let seldom = Some(Seldom { operation: Some(1), ..Seldom::default() });
        assert_eq!(of(&Seen { seldom: seldom.clone(), ..seen() }), Plan::Work(vec![Chore::Note(KNOWN)]));
        // But not with a version that may be newer than the time.
        assert!(matches!(of(&Seen { seldom, known: None, ..seen() }), Plan::Rest(_)));
    }

    #[test]
    fn another_sweepers_claim_is_ignored_without_work() {
        let claimed = Seen { claimed: Some(20), ..seen() };
        assert!(matches!(of(&claimed), Plan::Rest(_)));
        // But not if the look has not gone on to see whether there is any.
        assert_eq!(of(&Seen { seldom: None, ..claimed }), Plan::Wait(27));
    }
}
