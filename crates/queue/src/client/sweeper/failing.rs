//! Chores that failed lately. They are skipped for a while, so that they do not delay the others. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use super::plan::Chore;
use crate::keys::agenda::Event;
use crate::model::lease_id::LeaseId;
use crate::model::time::duration;
use crate::ops::look::Seen;

/// How long a failed chore is skipped, in versions: ten seconds.
const PAUSE: u64 = 10_000_000;

/// The most that is kept in mind. What fails beyond that is tried again at once.
const MAX_FAILING: usize = 10_000;

/// Chores that failed, and the version until which each is passed over.
#[derive(Debug, Default)]
pub(super) struct Failing(BTreeMap<Chore, u64>);

impl Failing {
    /// A chore failed that had been seen at this version.
    pub(super) fn add(&mut self, chore: Chore, version: u64) {
        if self.0.len() < MAX_FAILING {
            self.0.insert(chore, version.saturating_add(PAUSE));
        }
    }

    /// Whether a lease is passed over.
    pub(super) fn has_lease(&self, id: LeaseId) -> bool {
        self.0.contains_key(&Chore::Return(id))
    }

    /// Forgets what may be tried again at this version, also after versions went back.
    pub(super) fn tick(&mut self, version: u64) {
        self.0.retain(|_, until| *until > version && *until - version <= PAUSE);
    }

    /// Takes out of what was seen what is passed over.
    pub(super) fn pass_over(&self, seen: &mut Seen) {
        let fails = |chore: &Chore| self.0.contains_key(chore);
        for event in Event::ALL.into_iter().filter(|event| fails(&Chore::Due(*event))) {
            seen.times[event] = None;
        }
        if let Some(seldom) = &mut seen.seldom {
            seldom.operation = seldom.operation.filter(|_| !fails(&Chore::Forget));
            seldom.requests &= !fails(&Chore::Dismiss);
            seldom.history = seldom.history.take().filter(|_| !fails(&Chore::ClearEnded));
        }
    }

    /// The version from which on something is tried again.
    pub(super) fn again_from(&self) -> Option<u64> {
        self.0.values().min().copied()
    }

    /// How long it is until then.
    pub(super) fn pause(&self, version: u64) -> Option<Duration> {
        self.again_from().map(|again| duration(again.saturating_sub(version)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::session_id::SessionId;
    use crate::ops::agenda::ByEvent;
    use crate::ops::clocks::Judgement;
    use crate::ops::duty::Scope;
    use crate::ops::look::Seldom;

    #[test]
    fn failed_sweep_work_is_skipped_for_ten_seconds() {
        let lease = LeaseId { session: SessionId([1; 16]), number: 1 };
        let mut failing = Failing::default();
        for (chore, version) in
            [(Chore::Return(lease), 100), (Chore::Due(Event::Ready), 200), (Chore::Forget, 300)]
        {
            failing.add(chore, version);
        }
        let seldom = Seldom { operation: Some(1), requests: true, ..Seldom::default() };
        let seen = Seen {
            version: 300,
            known: None,
            duty: None,
            clock: Judgement::default(),
            times: ByEvent::of(|_| Some(1)),
            scope: Scope::Everything,
            claimed: None,
            seldom: Some(seldom),
        };
        let mut passed = seen;
        failing.pass_over(&mut passed);
        let seldom = passed.seldom.unwrap();
        assert_eq!(passed.times, ByEvent::of(|event| (event != Event::Ready).then_some(1)));
        assert_eq!((seldom.operation, seldom.requests), (None, true));
        assert!(failing.has_lease(lease));
        assert_eq!(failing.pause(300), Some(duration(PAUSE - 200)));
        failing.tick(100 + PAUSE);
        assert!(!failing.has_lease(lease));
        assert_eq!(failing.again_from(), Some(200 + PAUSE));
        // Versions went back.
        failing.tick(0);
        assert_eq!(failing.again_from(), None);
    }
}
