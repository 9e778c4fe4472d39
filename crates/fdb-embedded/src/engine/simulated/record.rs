//! What the clients read, and the answers that they got, for the judge.

use std::sync::Arc;

use bytes::Bytes;
// Without points at which others go on: nobody waits while it is locked.
use parking_lot::Mutex;

use crate::engine::mutation::{Mutation, Stamp};
use crate::future::Future;

/// Identifies an attempt, over all lives.
pub(super) type AttemptId = u64;

/// A key and what was read there.
pub(super) type Got = (Vec<u8>, Option<Bytes>);

/// The answer that a client got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing: the process ended before.
    Pending,
    /// It only read.
    ReadOnly,
    Committed(Stamp),
    Refused,
    Unknown,
    /// Unknown, and a later read did not find it.
    Absent,
}

/// A transaction.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    pub(super) id: AttemptId,
    pub(super) read_version: i64,
    pub(super) gets: Vec<Got>,
    /// The rows of all keys, if it has read them.
    pub(super) scan: Option<Vec<(Vec<u8>, Vec<u8>)>>,
    pub(super) mutations: Vec<Mutation>,
    pub(super) outcome: Outcome,
}

/// A watch of a live engine.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    pub(super) key: Vec<u8>,
    pub(super) baseline: Option<Bytes>,
    pub(super) version: i64,
    pub(super) future: Arc<Future>,
}

/// How often something happened.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) committed: usize,
    pub(super) refused: usize,
    pub(super) unknown: usize,
    pub(super) absent: usize,
    pub(super) pending: usize,
    pub(super) read_only: usize,
    pub(super) fired: usize,
    pub(super) asleep: usize,
    pub(super) crashes: usize,
    pub(super) failures: usize,
    pub(super) calm_ends: usize,
}

impl Counts {
    fn all(&mut self) -> [&mut usize; 11] {
        [
            &mut self.committed,
            &mut self.refused,
            &mut self.unknown,
            &mut self.absent,
            &mut self.pending,
            &mut self.read_only,
            &mut self.fired,
            &mut self.asleep,
            &mut self.crashes,
            &mut self.failures,
            &mut self.calm_ends,
        ]
    }

    pub(super) fn add(&mut self, other: &Counts) {
        let mut other = *other;
        self.all().into_iter().zip(other.all()).for_each(|(sum, one)| *sum += *one);
    }

    pub(super) fn has_all(&mut self) -> bool {
        self.all().into_iter().all(|count| *count > 0)
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) attempts: Vec<Attempt>,
    /// Watches of this life.
    pub(super) watches: Vec<Watched>,
    /// Watches that fired in a life that ended calmly: the key, the baseline, and the version that was read.
    pub(super) fired: Vec<(Vec<u8>, Option<Bytes>, i64)>,
    /// The newest version that a client knows to be committed.
    pub(super) acknowledged: i64,
    /// The process is gone: what its threads still do counts for nothing.
    pub(super) is_over: bool,
    pub(super) counts: Counts,
}

#[derive(Debug)]
pub(super) struct Record {
    pub(super) seed: u64,
    state: Mutex<State>,
}

impl Record {
    pub(super) fn new(seed: u64) -> Record {
        Record { seed, state: Mutex::default() }
    }

    /// Looks at the state, or changes it, whether the process is gone or not.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock())
    }

    /// Changes the state, unless the process is gone; whether it did.
    pub(super) fn add(&self, work: impl FnOnce(&mut State)) -> bool {
        let mut state = self.state.lock();
        if !state.is_over {
            work(&mut state);
        }
        !state.is_over
    }

    pub(super) fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    /// Notes the answer that a client got.
    pub(super) fn tell(&self, id: AttemptId, outcome: Outcome) {
        let told = self.add(|state| {
            if let Outcome::Committed(Stamp(bytes)) = outcome {
                let version = i64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"));
                state.acknowledged = state.acknowledged.max(version);
            }
            state.attempts.iter_mut().filter(|it| it.id == id).for_each(|it| it.outcome = outcome);
        });
        baton::note(|| format!("{id:x} {outcome:?}{}", if told { "" } else { " after the end" }));
    }

    pub(super) fn counts(&self) -> Counts {
        let state = self.state.lock();
        let mut counts = state.counts;
        for attempt in &state.attempts {
            *match attempt.outcome {
                Outcome::Pending => &mut counts.pending,
                Outcome::ReadOnly => &mut counts.read_only,
                Outcome::Committed(_) => &mut counts.committed,
                Outcome::Refused => &mut counts.refused,
                Outcome::Unknown => &mut counts.unknown,
                Outcome::Absent => &mut counts.absent,
            } += 1;
        }
        counts
    }
}
