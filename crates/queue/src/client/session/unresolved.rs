//! The attempts of a session that may have committed, and their leases.

use std::collections::VecDeque;

use foundationdb::FdbError;

use crate::keys::leases::Held;
use crate::keys::tokens::Token;
use crate::model::item::Item;
use crate::model::lease_id::LeaseId;
use crate::model::pushed::PendingPush;
use crate::run::retry::maybe_committed;

/// How many are remembered. Each is checked by the attempt that follows it, and refused by the database once it is
/// five seconds old; so many attempts with their back-off take longer.
const MAX: usize = 64;

/// A lease of a fetch that may have committed.
#[derive(Debug)]
pub(super) struct Unsure {
    pub(super) id: LeaseId,
    pub(super) items: Vec<Item>,
    pub(super) held: Vec<Held>,
    /// The number of its attempt's first lease.
    pub(super) attempt: u64,
}

/// The effect of an attempt, if it committed.
#[derive(Debug)]
pub(super) enum Effect {
    /// It did this for the push now under way.
    Pushed(PendingPush),
    /// It removed these items.
    Took(Vec<Item>),
}

/// Attempts that may have committed, oldest first. At most one of them did.
#[derive(Debug, Default)]
pub(super) struct Unresolved {
    attempts: VecDeque<(u64, Effect)>,
}

impl Unresolved {
    pub(super) fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    /// Notes an attempt that is about to commit.
    pub(super) fn note(&mut self, attempt: u64, effect: Effect) {
        if self.attempts.len() == MAX {
            self.attempts.pop_front();
        }
        self.attempts.push_back((attempt, effect));
    }

    /// The attempt noted last did commit. None before it did or will.
    pub(super) fn committed(&mut self) -> Option<Effect> {
        let last = self.attempts.pop_back();
        self.attempts.clear();
        last.map(|(_, effect)| effect)
    }

    /// The commit of the attempt noted last ended with an error.
    pub(super) fn failed(&mut self, error: FdbError) {
        if !maybe_committed(error) {
            self.attempts.pop_back();
        }
    }

    /// The slot was read: if it names one of the attempts, that one committed, and no other did or will.
    pub(super) fn resolve(&mut self, token: &Token) -> Option<Effect> {
        let at = self.attempts.iter().position(|(attempt, _)| *attempt == token.attempt)?;
        let resolved = self.attempts.remove(at);
        self.attempts.clear();
        resolved.map(|(_, effect)| effect)
    }

    /// None of them committed or will.
    pub(super) fn void(&mut self) {
        self.attempts.clear();
    }

    /// A new push begins: what an earlier one, given up by its caller, came to is of no interest any more.
    pub(super) fn forget_pushes(&mut self) {
        self.attempts.retain(|(_, effect)| matches!(effect, Effect::Took(_)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(attempt: u64) -> Token {
        Token { attempt, stamp: [0; 10] }
    }

    fn pushed() -> Effect {
        Effect::Pushed(PendingPush::default())
    }

    #[test]
    fn one_token_resolves_all_unknown_attempts() {
        let mut unresolved = Unresolved::default();
        unresolved.note(1, pushed());
        unresolved.note(2, Effect::Took(Vec::new()));
        assert!(unresolved.resolve(&token(3)).is_none());
        assert!(!unresolved.is_empty());
        assert!(matches!(unresolved.resolve(&token(2)), Some(Effect::Took(_))));
        assert!(unresolved.is_empty());
    }

    #[test]
    fn a_commit_voids_earlier_unknown_attempts() {
        let mut unresolved = Unresolved::default();
        unresolved.note(1, Effect::Took(Vec::new()));
        unresolved.note(2, pushed());
        assert!(matches!(unresolved.committed(), Some(Effect::Pushed(_))));
        assert!(unresolved.is_empty());
    }

    #[test]
    fn a_new_push_forgets_unknown_pushes_but_not_takes() {
        let mut unresolved = Unresolved::default();
        unresolved.note(1, pushed());
        unresolved.note(2, Effect::Took(Vec::new()));
        unresolved.forget_pushes();
        assert!(unresolved.resolve(&token(1)).is_none());
        assert!(unresolved.resolve(&token(2)).is_some());
    }

    #[test]
    fn only_the_newest_unknown_attempts_are_kept() {
        let mut unresolved = Unresolved::default();
        for attempt in 1..=MAX as u64 + 1 {
            unresolved.note(attempt, pushed());
        }
        assert!(unresolved.resolve(&token(1)).is_none());
        assert!(unresolved.resolve(&token(2)).is_some());
    }
}
