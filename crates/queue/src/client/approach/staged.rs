//! One take for all that conflict.

/// How many takes ask at once after one that lost. Where takes lose, the next ones do too; one that is alone again soon stops.
const ASKS: u32 = 64;

/// The state of [`Approach::Staged`](super::Approach::Staged).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Staged {
    /// How many takes from now on ask at once.
    asks: u32,
}

impl Staged {
    /// The take under way has lost against another, and is to ask, like those after it.
    pub(super) fn conflicted(&mut self) {
        self.asks = ASKS;
    }

    /// Whether the take under way asks without trying the front.
    pub(super) fn asks(&self) -> bool {
        self.asks > 0
    }

    /// The take under way is through.
    pub(super) fn done(&mut self) {
        self.asks = self.asks.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetches_ask_for_a_while_after_a_lost_one() {
        let mut staged = Staged::default();
        assert!(!staged.asks());
        staged.conflicted();
        for _ in 0..ASKS {
            assert!(staged.asks());
            staged.done();
        }
        assert!(!staged.asks());
        staged.done();
        assert_eq!(staged, Staged::default());
    }
}
