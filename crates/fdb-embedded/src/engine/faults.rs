//! Faults on purpose: commit outcomes that real clusters have and a healthy local disk does not.
//!
//! Off unless a program installs a plan with [`Faults::install`]. A plan meets commits that write, in the order
//! in which the engine takes them; a seeded plan draws from its own generator, so the same seed against the same
//! sequence of commits gives the same faults.

use std::collections::VecDeque;

/// What happens to one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: it is resolved and committed as usual.
    None,
    /// It is committed if it does not conflict, and answered `commit_unknown_result` (1021).
    UnknownCommitted,
    /// It is not committed, and answered `commit_unknown_result` (1021).
    UnknownNotCommitted,
    /// It is not committed, and answered `not_committed` (1020), as after a conflict.
    Conflict,
    /// It is not committed, and answered `transaction_too_old` (1007).
    TooOld,
    /// The disk fails under it: it and its batch are answered `commit_unknown_result` (1021), and the engine takes
    /// no more commits, `io_error` (1510), until the directory is opened again.
    DiskFailure,
}

/// A plan of faults for the commits of one database directory.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    script: VecDeque<Fault>,
    random: Option<SplitMix>,
    /// Probability of each fault per commit, in the order in which they are tried.
    odds: Vec<(Fault, f64)>,
}

impl Faults {
    /// These faults for the next commits, one each; then none.
    pub fn script(faults: impl IntoIterator<Item = Fault>) -> Faults {
        Faults { script: faults.into_iter().collect(), ..Faults::default() }
    }

    /// Random faults from `seed`; add some with the other methods.
    #[must_use]
    pub fn seeded(seed: u64) -> Faults {
        Faults { random: Some(SplitMix(seed)), ..Faults::default() }
    }

    /// Commits that happen and are answered `commit_unknown_result`, with probability `p` each.
    #[must_use]
    pub fn unknown_committed(self, p: f64) -> Faults {
        self.with(Fault::UnknownCommitted, p)
    }

    /// Commits that do not happen and are answered `commit_unknown_result`, with probability `p` each.
    #[must_use]
    pub fn unknown_not_committed(self, p: f64) -> Faults {
        self.with(Fault::UnknownNotCommitted, p)
    }

    /// Commits answered `not_committed`, with probability `p` each.
    #[must_use]
    pub fn conflict(self, p: f64) -> Faults {
        self.with(Fault::Conflict, p)
    }

    /// Commits answered `transaction_too_old`, with probability `p` each.
    #[must_use]
    pub fn too_old(self, p: f64) -> Faults {
        self.with(Fault::TooOld, p)
    }

    fn with(mut self, fault: Fault, p: f64) -> Faults {
        self.odds.push((fault, p));
        self
    }

    /// The fault of the next commit.
    pub(crate) fn next(&mut self) -> Fault {
        if let Some(fault) = self.script.pop_front() {
            return fault;
        }
        let Some(random) = &mut self.random else { return Fault::None };
        let mut draw = random.unit();
        for (fault, p) in &self.odds {
            if draw < *p {
                return *fault;
            }
            draw -= p;
        }
        Fault::None
    }
}

/// `SplitMix64`, by Sebastiano Vigna: a small generator with a full period, good enough to roll dice.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        let high = u32::try_from(self.next() >> 32).expect("32 bits are left");
        f64::from(high) / (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_played_once() {
        let mut faults = Faults::script([Fault::Conflict, Fault::None, Fault::TooOld]);
        let played: Vec<_> = (0..5).map(|_| faults.next()).collect();
        assert_eq!(played, [Fault::Conflict, Fault::None, Fault::TooOld, Fault::None, Fault::None]);
    }

    #[test]
    fn a_seed_gives_the_same_faults_again_and_about_as_many_as_asked_for() {
        let plan = Faults::seeded(7).unknown_committed(0.2).conflict(0.3);
        let (mut first, mut second) = (plan.clone(), plan);
        let mut conflicts = 0;
        for _ in 0..10_000 {
            let fault = first.next();
            assert_eq!(fault, second.next());
            conflicts += i32::from(fault == Fault::Conflict);
        }
        assert!((2_700..3_300).contains(&conflicts), "{conflicts}");
    }
}
