//! How fetches from a keyed queue avoid conflicts.

use crate::model::rng::Rng;
use crate::ops::keyed::lanes::Look;

/// How many keys a fetch chooses from at random after a first conflict. Each further one doubles it.
pub(super) const FIRST_SCATTER: usize = 32;

/// The most keys that a fetch chooses from at random.
pub(super) const MAX_SCATTER: usize = 1_024;

/// After so many fetches without a conflict half as many keys are chosen from.
pub(super) const CALM: u32 = 64;

/// How the session's fetches avoid conflicts.
#[derive(Debug, Default)]
pub(super) struct Avoidance {
    /// From how many keys they choose at random, so that they conflict less with fetches of other processes.
    pub(super) scatter: usize,
    /// Which gate of limited scopes they take.
    pub(super) gate: u64,
    /// Whether they leave keys in the index whose last items they take, so that they conflict less with pushes.
    pub(super) lazy: bool,
    /// Whether the attempt under way takes keys out of the index.
    pub(super) ends_keys: bool,
    /// Whether the attempt under way takes slots of the queue that other sessions may be about to take.
    pub(super) takes_slots_of_others: bool,
    /// Whether they leave such slots alone, unless these stay free: they have lost a race for some.
    pub(super) leaves_slots: bool,
    /// The slots that the last fetch has left alone.
    pub(super) look: Option<Look>,
    /// Fetches without a conflict since it last changed.
    pub(super) calm: u32,
    /// At how many pages of parked keys the fetch under way has looked again, without finding an item.
    pub(super) looks: usize,
}

impl Avoidance {
    pub(super) fn new(rng: &mut Rng) -> Avoidance {
        Avoidance { gate: rng.next(), ..Avoidance::default() }
    }

    /// The attempt under way has conflicted, with a push if it takes keys out of the index; otherwise with another session.
    pub(super) fn conflicted(&mut self, rng: &mut Rng) {
        self.gate = rng.next();
        if self.ends_keys {
            self.lazy = true;
        } else {
            self.leaves_slots |= self.takes_slots_of_others;
            self.scatter = (self.scatter * 2).clamp(FIRST_SCATTER, MAX_SCATTER);
        }
        self.calm = 0;
    }

    pub(super) fn committed(&mut self) {
        self.calm += 1;
        if self.calm >= CALM {
            self.scatter = if self.scatter > FIRST_SCATTER { self.scatter / 2 } else { 0 };
            self.lazy = false;
            self.leaves_slots = false;
            self.look = None;
            self.calm = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::session_id::SessionId;

    #[test]
    fn fetches_scatter_after_conflicts_and_return_to_the_front() {
        let (mut avoidance, mut rng) = (Avoidance::default(), Rng::of(SessionId([7; 16])));
        avoidance.conflicted(&mut rng);
        assert_eq!((avoidance.scatter, avoidance.lazy), (FIRST_SCATTER, false));
        (0..20).for_each(|_| avoidance.conflicted(&mut rng));
        assert_eq!(avoidance.scatter, MAX_SCATTER);
        (0..CALM * 6).for_each(|_| avoidance.committed());
        assert_eq!(avoidance.scatter, 0);
    }

    #[test]
    fn fetches_leave_the_slots_of_others_alone_after_a_conflict_with_another_session() {
        let mut rng = Rng::of(SessionId([7; 16]));
        let mut avoidance =
            Avoidance { takes_slots_of_others: true, ends_keys: true, ..Avoidance::default() };
        // With a push.
        avoidance.conflicted(&mut rng);
        assert!(!avoidance.leaves_slots);
        avoidance.ends_keys = false;
        avoidance.conflicted(&mut rng);
        assert!(avoidance.leaves_slots);
        (0..CALM).for_each(|_| avoidance.committed());
        assert!(!avoidance.leaves_slots);
        let mut avoidance = Avoidance::default();
        avoidance.conflicted(&mut rng);
        assert!(!avoidance.leaves_slots);
    }

    #[test]
    fn fetches_leave_empty_keys_in_the_index_after_conflicts_with_pushes() {
        let mut avoidance = Avoidance { ends_keys: true, ..Avoidance::default() };
        avoidance.conflicted(&mut Rng::of(SessionId([7; 16])));
        assert_eq!((avoidance.scatter, avoidance.lazy), (0, true));
        (0..CALM).for_each(|_| avoidance.committed());
        assert!(!avoidance.lazy);
    }
}
