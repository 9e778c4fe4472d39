//! Faults on purpose: what happens on real clusters, and to disks, and does not on a healthy local one.
//!
//! Off unless a program installs a plan with [`Faults::install`], or whoever starts it asks for one in the environment
//! ([`VARIABLE`]). A plan meets commits that write, in the order in which the engine takes them, and reads; a seeded plan
//! draws from its own generators, one for commits and one for reads, so the same seed against the same sequence gives the same
//! faults.

mod gate;
mod switch;
mod text;

use std::collections::VecDeque;
use std::time::Duration;

use crate::error::Code;

pub(super) use gate::GateQueue;
pub(crate) use gate::is_any_closed as is_any_gate_closed;
pub use gate::{Gate, HeldBackoff, HeldCommit};
pub(super) use switch::InstalledFaults;
pub use text::{FaultPlanError, VARIABLE};

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
    /// The disk takes this much longer: its whole batch waits.
    Slow(Duration),
    /// The disk fails under it before it is written: it and its batch are answered `commit_unknown_result` (1021), and the engine ends.
    /// The process closes the directory, and opens it again.
    DiskFailure,
    /// Its flush fails: it is written, and answered `commit_unknown_result` (1021), with its batch. The engine ends as above, and the next
    /// one that opens the directory finds the commit.
    FlushFailure,
}

/// A plan of faults for one database directory.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    script: VecDeque<Fault>,
    commits: RandomFaults<Fault>,
    reads: RandomFaults<Code>,
}

/// Random events with a probability each.
#[derive(Debug, Clone)]
struct RandomFaults<T> {
    random: Option<SplitMix>,
    /// In the order in which they are tried.
    odds: Vec<(T, f64)>,
}

impl<T> Default for RandomFaults<T> {
    fn default() -> Self {
        RandomFaults { random: None, odds: Vec::new() }
    }
}

impl<T: Copy> RandomFaults<T> {
    fn draw(&mut self) -> Option<T> {
        if self.odds.is_empty() {
            return None;
        }
        let mut draw = self.random.as_mut()?.unit();
        for (event, p) in &self.odds {
            if draw < *p {
                return Some(*event);
            }
            draw -= p;
        }
        None
    }
}

impl Faults {
    /// These faults for the next commits, one each; then none.
    pub fn script(faults: impl IntoIterator<Item = Fault>) -> Faults {
        Faults { script: faults.into_iter().collect(), ..Faults::default() }
    }

    /// Random faults from `seed`; add some with the other methods.
    #[must_use]
    pub fn seeded(seed: u64) -> Faults {
        let mut faults = Faults::default();
        faults.commits.random = Some(SplitMix(seed));
        faults.reads.random = Some(SplitMix(!seed));
        faults
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

    /// Commits that take `delay` longer, with probability `p` each.
    #[must_use]
    pub fn slow(self, p: f64, delay: Duration) -> Faults {
        self.with(Fault::Slow(delay), p)
    }

    /// A disk that fails under a commit, with probability `p` each.
    #[must_use]
    pub fn disk_failure(self, p: f64) -> Faults {
        self.with(Fault::DiskFailure, p)
    }

    /// A flush that fails after a commit was written, with probability `p` each.
    #[must_use]
    pub fn flush_failure(self, p: f64) -> Faults {
        self.with(Fault::FlushFailure, p)
    }

    /// Reads that fail with `transaction_too_old` (1007), with probability `p` each.
    #[must_use]
    pub fn read_too_old(self, p: f64) -> Faults {
        self.with_read(Code::TRANSACTION_TOO_OLD, p)
    }

    /// Reads that fail with `future_version` (1009), with probability `p` each.
    #[must_use]
    pub fn future_version(self, p: f64) -> Faults {
        self.with_read(Code::FUTURE_VERSION, p)
    }

    /// Reads that fail with `process_behind` (1037), with probability `p` each.
    #[must_use]
    pub fn process_behind(self, p: f64) -> Faults {
        self.with_read(Code::PROCESS_BEHIND, p)
    }

    /// Reads that fail with `io_error` (1510), with probability `p` each; the database goes on.
    #[must_use]
    pub fn read_failure(self, p: f64) -> Faults {
        self.with_read(Code::IO_ERROR, p)
    }

    fn with(mut self, fault: Fault, p: f64) -> Faults {
        self.commits.odds.push((fault, p));
        self
    }

    fn with_read(mut self, code: Code, p: f64) -> Faults {
        self.reads.odds.push((code, p));
        self
    }

    /// The fault of the next commit.
    pub(crate) fn next(&mut self) -> Fault {
        self.script.pop_front().or_else(|| self.commits.draw()).unwrap_or(Fault::None)
    }

    /// How the next read fails, if it does.
    pub(crate) fn next_read(&mut self) -> Option<Code> {
        self.reads.draw()
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
            assert_eq!(first.next_read(), None, "no read was to fail");
        }
        assert!((2_700..3_300).contains(&conflicts), "{conflicts}");
    }
}
