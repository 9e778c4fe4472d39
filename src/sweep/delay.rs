//! How long a sweeper waits after something woke it, so that the sweepers of several daemons do not act in step. Pure.

use std::time::Duration;

/// Daemons that wait for the same time, or the same item, act within this of each other. The first one does the work.
const SPREAD: Duration = Duration::from_millis(50);

/// The least pause after an item was put aside. Producers that put many aside wake no sweeper more often.
const GATHER: Duration = Duration::from_millis(20);

/// The pause after a failure; doubled with each one more in a row.
const FIRST: Duration = Duration::from_secs(1);

/// The longest pause after failures.
const LONGEST: Duration = Duration::from_secs(60);

/// The end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Woken {
    /// The time has come.
    Time,
    /// An item was put aside; perhaps for an earlier time.
    Item,
    /// The last sweep failed, or some of it, or the watch was lost. This is the number of failures in a row.
    Failure {
        /// From 1.
        failures: u32,
    },
}

/// How long to wait before the next sweep; `random` is any number. After an item was put aside it is `patience` at least: how
/// long the sweeper leaves work to another one that is on duty.
pub(super) fn before_sweep(woken: Woken, patience: Duration, random: u64) -> Duration {
    match woken {
        Woken::Time => part(SPREAD, random),
        Woken::Item => patience.max(GATHER + part(SPREAD, random)),
        Woken::Failure { failures } => {
            let doublings = failures.saturating_sub(1).min(16);
            let whole = FIRST.saturating_mul(1 << doublings).min(LONGEST);
            whole / 2 + part(whole / 2, random)
        }
    }
}

/// A random part of a time.
fn part(whole: Duration, random: u64) -> Duration {
    whole.mul_f64((random >> 11) as f64 / (1_u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range_with(patience: Duration, woken: Woken) -> (u128, u128) {
        let of = |random| before_sweep(woken, patience, random).as_millis();
        (of(0), of(u64::MAX))
    }

    fn range(woken: Woken) -> (u128, u128) {
        range_with(Duration::ZERO, woken)
    }

    #[test]
    fn a_sweeper_that_stands_by_leaves_new_items_to_the_one_on_duty() {
        let patience = Duration::from_millis(2_500);
        assert_eq!(range_with(patience, Woken::Item), (2_500, 2_500));
        // It has chosen its next look by that already.
        assert_eq!(range_with(patience, Woken::Time), (0, 50));
    }

    #[test]
    fn sweeper_pause_depends_on_the_cause_of_the_wake() {
        assert_eq!(range(Woken::Time), (0, 50));
        assert_eq!(range(Woken::Item), (20, 70));
        let failures = [1, 2, 6, 7, u32::MAX].map(|failures| range(Woken::Failure { failures }));
        assert_eq!(
            failures,
            [(500, 1_000), (1_000, 2_000), (16_000, 32_000), (30_000, 60_000), (30_000, 60_000)]
        );
    }
}
