//! The sweeper's plan, from what it has read. Pure.

use std::time::Duration;

use super::SweepRules;
use crate::keys::leases::LeaseId;
use crate::meta::Millis;
use crate::ops::look::{Seen, Seldom};
use crate::ops::sweep_right::held_by_another;
use crate::ops::times;
use crate::session::SessionId;
use crate::time::{duration, versions};

/// Something to do, in one transaction or a few.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Chore {
    /// Give back the items of a lease that has run out.
    Return(LeaseId),
    /// Make items ready that are due.
    Promote,
    /// Forget old operations.
    Forget,
    /// Note at what time this version was known, so that operations have an age.
    Note(u64),
    /// Clear requests of takes that died in the line.
    Dismiss,
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

/// Decides. From the version `all_from` on, a look reads everything.
pub(super) fn plan(seen: &Seen, all_from: u64, now: Millis, me: SessionId, rules: &SweepRules) -> Plan {
    let chores = chores(seen, now, rules);
    if chores.is_empty() {
        return Plan::Rest(rest(seen, all_from_next(seen, all_from, rules), now));
    }
    match held_by_another(seen.claim, me, seen.version) {
        Some(versions) => Plan::Wait(versions),
        None => Plan::Work(chores),
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
    let Some(seldom) = &seen.seldom else { return all_from };
    if seldom.pages > 1 {
        return seen.version.saturating_add(versions(rules.lease) / LOOKS.max(2 * seldom.pages));
    }
    // A lease taken after this look runs out later than this, and others not before theirs.
    let new = seen.version.saturating_add(versions(rules.lease));
    seldom.deadline.map_or(new, |deadline| deadline.saturating_add(1).min(new))
}

fn chores(seen: &Seen, now: Millis, rules: &SweepRules) -> Vec<Chore> {
    let none = Seldom::default();
    let seldom = seen.seldom.as_ref().unwrap_or(&none);
    let mut chores: Vec<_> = seldom.expired.iter().map(|id| Chore::Return(*id)).collect();
    if seen.due.is_some_and(|due| due <= now) {
        chores.push(Chore::Promote);
    }
    let kept = versions(rules.idempotency_window);
    if let Some(oldest) = seldom.operation {
        if oldest < times::old_before(&seldom.times, seen.version, now, kept) {
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
    chores
}

/// How long nothing is to be done.
fn rest(seen: &Seen, all_from: u64, now: Millis) -> Duration {
    let look = duration(all_from.saturating_sub(seen.version));
    let due = seen.due.map(|due| Duration::from_millis(due.saturating_sub(now)));
    due.map_or(look, |due| due.min(look))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::claims::Claim;
    use crate::sightings::Sightings;

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
            claim: None,
            due: None,
            seldom: Some(Seldom::default()),
        }
    }

    fn of(seen: &Seen) -> Plan {
        plan(seen, 10_300_000, NOW, ME, &rules())
    }

    #[test]
    fn a_sweeper_without_work_rests_for_a_lease_length() {
        assert_eq!(of(&seen()), Plan::Rest(Duration::from_secs(1)));
        // Leases were looked at before; the time of the next look stands.
        assert_eq!(of(&Seen { seldom: None, ..seen() }), Plan::Rest(Duration::from_millis(300)));
    }

    #[test]
    fn a_sweeper_rests_until_the_first_due_item_or_deadline() {
        assert_eq!(of(&Seen { due: Some(NOW + 20), ..seen() }), Plan::Rest(Duration::from_millis(20)));
        assert_eq!(of(&Seen { due: Some(u64::MAX), ..seen() }), Plan::Rest(Duration::from_secs(1)));
        let seldom = Some(Seldom { deadline: Some(10_000_700), ..Seldom::default() });
        assert_eq!(of(&Seen { seldom, ..seen() }), Plan::Rest(Duration::from_micros(701)));
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
        let seen = Seen { due: Some(NOW), seldom: Some(seldom), ..seen() };
        assert_eq!(
            of(&seen),
            Plan::Work(vec![
                Chore::Return(LEASE),
                Chore::Promote,
                Chore::Forget,
                Chore::Note(KNOWN),
                Chore::Dismiss
            ])
        );
        // Its own claim does not stop it, another's does, one that ran out does not.
        let claimed = |sweeper, until| Seen { claim: Some(Claim { sweeper, until }), ..seen.clone() };
        assert!(matches!(of(&claimed(ME, 10_000_020)), Plan::Work(_)));
        assert_eq!(of(&claimed(OTHER, 10_000_020)), Plan::Wait(20));
        assert!(matches!(of(&claimed(OTHER, 10_000_000)), Plan::Work(_)));
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
        let claim = Some(Claim { sweeper: OTHER, until: 10_000_020 });
        assert!(matches!(of(&Seen { claim, ..seen() }), Plan::Rest(_)));
    }
}
