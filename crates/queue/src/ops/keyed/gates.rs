//! How fetches of a tenant or key with a limit of running items exclude each other, so that they never exceed it together. The whole queue has [`lanes`](super::lanes).
//!
//! A fetch reads at snapshot isolation how many items of the scope run. Until it commits, others may start some, too. Each scope has *gates*: keys that nobody writes, and that
//! fetches conflict on.
//!
//! - If more than half of the slots are taken, or a fetch starts more than a tenth of the limit, it takes all gates. So no other fetch of the scope commits between its read and its commit.
//! - Otherwise it takes one gate, and excludes only fetches that take the same one, or all. Gate `i`, from 0, is for fetches of at most `most / (10 (i + 1))` items.
//!
//! **Why that is exact.** Let a fetch with one gate commit at a version `c`, and let `v` be the last version before at which at most half of the slots were taken.
//! `v` is not before its read, because it has read that at most half were taken. No fetch with all gates committed since its read. So each fetch that committed since `v` took one gate, and had read no later than `v`. Two of the same
//! gate would exclude each other, so there is one of each gate at most. Together they start `most / 10 x (1 + 1/2 + ... + 1/64)` items at most, which is less than half
//! of `most`. `tests/models/gates.rs` checks the rule in every order of transactions.

use foundationdb::Transaction;
use foundationdb::options::ConflictRangeType;
use mutant::mutant;

use crate::keys::after;
use crate::keys::keyed::KeyedSpace;
use crate::model::error::QueueError;

/// The most gates of a scope.
const GATES: u64 = 64;
/// The part of its limit that the first gate may start.
const PART: u64 = 10;

/// The slots of a scope, as a fetch has found them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slots {
    /// How many items may run.
    pub(crate) most: u64,
    /// How many do, or a few more.
    pub(crate) taken: u64,
}

impl Slots {
    pub(crate) fn free(self) -> u64 {
        self.most.saturating_sub(self.taken)
    }

    /// The slots as they were before `n` more items ran.
    pub(crate) fn before(self, n: u64) -> Slots {
        Slots { taken: self.taken.saturating_sub(n), ..self }
    }

    /// From how many gates a fetch that starts `n` items may choose. `None`: it takes all.
    fn gates(self, n: u64) -> Option<u64> {
        let gates = (self.most / PART).checked_div(n)?.min(GATES);
        (gates > 0 && (self.taken <= self.most / 2 || mutant("one-gate-near-the-limit"))).then_some(gates)
    }
}

/// Excludes other fetches of a scope of which this one starts `n` items. `gate` is any number: the same one takes the same gate.
pub(crate) fn exclude(
    keyed: &KeyedSpace,
    tr: &Transaction,
    scope: &[u8],
    slots: Slots,
    n: u64,
    gate: u64,
) -> Result<(), QueueError> {
    let range = match slots.gates(n) {
        Some(gates) => {
            let gate = keyed.gate_key(scope, gate % gates);
            let end = after(&gate);
            (gate, end)
        }
        None => keyed.gate_range(scope),
    };
    take(tr, &range)
}

/// Takes a range of gates: of this fetch and another one that takes one of the same gates, only one commits.
pub(super) fn take(tr: &Transaction, (begin, end): &(Vec<u8>, Vec<u8>)) -> Result<(), QueueError> {
    if mutant("no-gates") {
        return Ok(());
    }
    tr.add_conflict_range(begin, end, ConflictRangeType::Read)?;
    Ok(tr.add_conflict_range(begin, end, ConflictRangeType::Write)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_fetch_takes_one_gate_as_long_as_half_of_the_slots_are_free() {
        let gates = |most, taken, n| Slots { most, taken }.gates(n);
        assert_eq!(gates(1_000, 500, 1), Some(64));
        assert_eq!(gates(1_000, 501, 1), None);
        assert_eq!(gates(1_000, 0, 100), Some(1));
        assert_eq!(gates(1_000, 0, 101), None);
        assert_eq!(gates(9, 0, 1), None);
        assert_eq!(gates(0, 0, 0), None);
    }

    proptest! {
        #[test]
        fn one_fetch_in_each_gate_starts_half_of_the_limit_at_most(most in 0..1_000_000_u64) {
            let is_open = |gate: u64, n: u64| Slots { most, taken: 0 }.gates(n).is_some_and(|gates| gate < gates);
            let greatest = |gate: u64| {
                let n = most / (PART * (gate + 1));
                assert!(!is_open(gate, n + 1));
                n
            };
            prop_assert!((0..GATES).map(greatest).sum::<u64>() <= most / 2);
        }
    }
}
