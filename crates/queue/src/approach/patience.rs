//! Waiting a little where several processes work off a queue that is nearly empty.
//!
//! Spreading does not help there: all want the same few items, and each push wakes them all. But where a queue is short one
//! process keeps up with it. So whoever loses a race holds back, longer each time, and whoever wins does not: soon one process takes
//! at once and the others come to look now and then. Should it be busy, they win, and do not hold back any more.

use std::time::Duration;

/// The longest wait. It is also the most that a process which holds back adds to an item's way, should the others stop.
const LONGEST: f64 = 250_000.0;
/// The first wait after a race was lost.
const FIRST: f64 = 500.0;
/// What a race that was won leaves of the wait.
const WON: f64 = 0.9;

/// How long a process waits before it takes from a queue that was short. It begins with not at all.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Patience {
    micros: f64,
}

impl Patience {
    /// A take of a short queue lost against another.
    pub(crate) fn lost(&mut self) {
        self.micros = (self.micros * 2.0).clamp(FIRST, LONGEST);
    }

    /// A take found items, and lost against nobody.
    pub(crate) fn won(&mut self) {
        self.micros *= WON;
        if self.micros < FIRST / 2.0 {
            self.micros = 0.0;
        }
    }

    /// How long to wait before the next take from a queue that was short or empty: between half of it and all.
    pub(crate) fn wait(&self, random: u64) -> Duration {
        let share = 0.5 + (random % 500) as f64 / 1_000.0;
        Duration::from_micros((self.micros * share) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alone_nobody_waits() {
        let mut patience = Patience::default();
        (0..10).for_each(|_| patience.won());
        assert_eq!(patience.wait(0), Duration::ZERO);
    }

    #[test]
    fn races_lost_make_patient_up_to_a_limit_and_races_won_impatient() {
        let mut patience = Patience::default();
        patience.lost();
        assert!(patience.wait(0) <= Duration::from_micros(500));
        (0..20).for_each(|_| patience.lost());
        let waits: Vec<_> = (0..100).map(|random| patience.wait(random * 5).as_millis()).collect();
        assert!(waits.iter().all(|wait| (125..=250).contains(wait)));
        (0..100).for_each(|_| patience.won());
        assert_eq!(patience.wait(0), Duration::ZERO);
    }
}
