//! A plan of faults.
//!
//! It applies to commits that write, in the order in which the engine resolves them, and to reads. A seeded plan has
//! one generator for each of the two, so that the same seed and the same sequence give the same faults.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;

use super::Fault;
use crate::error::Code;

/// A plan of faults for one database directory.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    script: VecDeque<Fault>,
    pub(super) commits: RandomFaults<Fault>,
    pub(super) reads: RandomFaults<Code>,
}

/// Random faults, with a probability for each.
#[derive(Debug, Clone)]
pub(super) struct RandomFaults<T> {
    random: Option<Rng>,
    /// In the order of trial.
    pub(super) odds: Vec<(T, f64)>,
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
        let mut draw = self.random.as_mut()?.f64();
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
    /// Exactly these faults for the next commits; then none.
    pub fn script(faults: impl IntoIterator<Item = Fault>) -> Faults {
        Faults { script: faults.into_iter().collect(), ..Faults::default() }
    }

    /// Random faults from `seed`. The other methods add their probabilities.
    #[must_use]
    pub fn seeded(seed: u64) -> Faults {
        let mut faults = Faults::default();
        faults.commits.random = Some(Rng::with_seed(seed));
        faults.reads.random = Some(Rng::with_seed(!seed));
        faults
    }

    /// Adds [`Fault::UnknownCommitted`] with probability `p`.
    #[must_use]
    pub fn unknown_committed(self, p: f64) -> Faults {
        self.with(Fault::UnknownCommitted, p)
    }

    /// Adds [`Fault::UnknownNotCommitted`] with probability `p`.
    #[must_use]
    pub fn unknown_not_committed(self, p: f64) -> Faults {
        self.with(Fault::UnknownNotCommitted, p)
    }

    /// Adds [`Fault::Conflict`] with probability `p`.
    #[must_use]
    pub fn conflict(self, p: f64) -> Faults {
        self.with(Fault::Conflict, p)
    }

    /// Adds [`Fault::TooOld`] with probability `p`.
    #[must_use]
    pub fn too_old(self, p: f64) -> Faults {
        self.with(Fault::TooOld, p)
    }

    /// Adds [`Fault::Slow`] with probability `p`.
    #[must_use]
    pub fn slow(self, p: f64, delay: Duration) -> Faults {
        self.with(Fault::Slow(delay), p)
    }

    /// Adds [`Fault::DiskFailure`] with probability `p`.
    #[must_use]
    pub fn disk_failure(self, p: f64) -> Faults {
        self.with(Fault::DiskFailure, p)
    }

    /// Adds [`Fault::FlushFailure`] with probability `p`.
    #[must_use]
    pub fn flush_failure(self, p: f64) -> Faults {
        self.with(Fault::FlushFailure, p)
    }

    /// Makes reads fail with `transaction_too_old` (1007), with probability `p`.
    #[must_use]
    pub fn read_too_old(self, p: f64) -> Faults {
        self.with_read(Code::TRANSACTION_TOO_OLD, p)
    }

    /// Makes reads fail with `future_version` (1009), with probability `p`.
    #[must_use]
    pub fn future_version(self, p: f64) -> Faults {
        self.with_read(Code::FUTURE_VERSION, p)
    }

    /// Makes reads fail with `process_behind` (1037), with probability `p`.
    #[must_use]
    pub fn process_behind(self, p: f64) -> Faults {
        self.with_read(Code::PROCESS_BEHIND, p)
    }

    /// Makes reads fail with `io_error` (1510), with probability `p`. The database continues.
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

    /// The fault for the next commit.
    pub(crate) fn next(&mut self) -> Fault {
        self.script.pop_front().or_else(|| self.commits.draw()).unwrap_or(Fault::None)
    }

    /// The error for the next read, if it is to fail.
    pub(crate) fn next_read(&mut self) -> Option<Code> {
        self.reads.draw()
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
