//! One take for all that conflict.

/// How often a take waits before it serves others, though it does not stand first: who does may be dead.
const PATIENCE: u32 = 4;

/// The state of [`Approach::Staged`](super::Approach::Staged).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Staged {
    /// Whether the take under way has lost against another, so that it asks.
    lost: bool,
    /// How often it has waited for its turn.
    waits: u32,
}

impl Staged {
    pub(super) fn conflicted(&mut self) {
        self.lost = true;
    }

    /// Whether the take under way lost and is to ask.
    pub(super) fn has_lost(&self) -> bool {
        self.lost
    }

    /// Whether the take under way, which has asked, serves the line; `is_next` if it stands first.
    pub(super) fn serves(&self, is_next: bool) -> bool {
        is_next || self.waits >= PATIENCE
    }

    /// The take under way waits for its turn.
    pub(super) fn waited(&mut self) {
        self.waits += 1;
    }

    /// The take under way has taken its request back, and begins anew.
    pub(super) fn left(&mut self) {
        *self = Staged::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_take_asks_once_it_has_lost_and_serves_in_its_turn_or_when_it_has_waited_long() {
        let mut staged = Staged::default();
        assert!(!staged.has_lost());
        staged.conflicted();
        assert!(staged.has_lost() && staged.serves(true) && !staged.serves(false));
        (0..PATIENCE).for_each(|_| staged.waited());
        assert!(staged.serves(false));
        staged.left();
        assert_eq!(staged, Staged::default());
    }
}
