//! Clients: many short transactions on a few keys.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::record::{Attempt, AttemptId, Outcome, Record, Watched};
use crate::engine::atomic::AtomicOp;
use crate::engine::mutation::{Mutation, STAMP_LEN};
use crate::engine::{CommitPromise, CommitRequest, CommitResult, Durability, Engine, ReadView};
use crate::error::{Code, Result};
use crate::future::Future;
use crate::range_set::{KeyRange, key_after};
use crate::rows::Direction;

/// The keys of the model.
const KEYS: u64 = 4;
/// The range of these keys.
pub(super) const ALL: (&[u8], &[u8]) = (b"k/", b"k0");
/// Each commit leaves its stamp and its number here.
pub(super) const LOG: (&[u8], &[u8]) = (b"log/", b"log0");

pub(super) struct Client {
    pub(super) engine: Arc<Engine>,
    pub(super) record: Arc<Record>,
    pub(super) number: u64,
    /// How many it runs.
    pub(super) transactions: u64,
    pub(super) random: Rng,
}

fn key(of: u64) -> Vec<u8> {
    format!("k/{of}").into_bytes()
}

/// A commit sets this key too, so that its client can find out about it.
fn marker(id: AttemptId) -> Vec<u8> {
    format!("id/{id:x}").into_bytes()
}

/// The rows of a range.
pub(super) fn rows(view: &ReadView, range: (&[u8], &[u8])) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut rows = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        rows.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    view.scan(range.0, range.1, Direction::Forward, &mut visit).map(|_| rows)
}

impl Client {
    pub(super) fn run(mut self) {
        for n in 0..self.transactions {
            if self.record.is_over() || self.engine.await_end(Duration::ZERO).is_some() {
                return;
            }
            if self.random.u8(0..8) == 0 {
                baton::thread::sleep(Duration::from_micros(self.random.u64(0..3_000)));
            }
            let id = self.number << 32 | n;
            match self.transaction(id) {
                Ok(()) | Err(Code::TRANSACTION_TOO_OLD | Code::FUTURE_VERSION) => {}
                Err(code) => panic!("transaction {id:x} failed with {code:?}"),
            }
        }
    }

    fn transaction(&mut self, id: AttemptId) -> Result<()> {
        let acknowledged = self.record.with(|state| state.acknowledged);
        let view = self.engine.read();
        assert!(view.version >= acknowledged, "a read at {} after a commit at {acknowledged}", view.version);
        let mut attempt = Attempt {
            id,
            read_version: view.version,
            gets: Vec::new(),
            scan: None,
            mutations: Vec::new(),
            outcome: Outcome::Pending,
        };
        for _ in 0..self.random.u8(0..3) {
            let key = key(self.random.u64(0..KEYS));
            let value = view.get(&key)?;
            attempt.gets.push((key, value));
        }
        if self.random.u8(0..4) == 0 {
            attempt.scan = Some(rows(&view, ALL)?);
        }
        drop(view);
        if self.random.u8(0..8) == 0 {
            // Several batches are committed meanwhile.
            baton::thread::sleep(Duration::from_micros(self.random.u64(0..2_000)));
        }
        let watched = self.draw_watch(&attempt);
        if self.random.u8(0..6) == 0 {
            attempt.outcome = Outcome::ReadOnly;
            baton::note(|| format!("{id:x} read {:?} {:?}", attempt.gets, attempt.scan));
            self.record.add(|state| state.attempts.push(attempt));
            watched.into_iter().for_each(|watched| arm(&self.engine, &self.record, watched));
            return Ok(());
        }
        attempt.mutations = self.draw_mutations();
        self.commit(attempt, watched);
        Ok(())
    }

    /// A watch of a key that was read.
    fn draw_watch(&mut self, attempt: &Attempt) -> Option<Watched> {
        let (key, baseline) = attempt.gets.last().filter(|_| self.random.bool())?.clone();
        Some(Watched { key, baseline, version: attempt.read_version, future: Future::pending() })
    }

    fn draw_mutations(&mut self) -> Vec<Mutation> {
        (0..self.random.u8(1..4))
            .map(|_| {
                let (key, n) = (key(self.random.u64(0..KEYS)), self.random.u64(0..4));
                match self.random.u8(0..8) {
                    0 => Mutation::ClearRange { begin: key, end: super::client::key(KEYS) },
                    1 => Mutation::ClearRange { end: key_after(&key), begin: key },
                    2 | 3 => {
                        let op = [AtomicOp::Add, AtomicOp::Max][usize::from(self.random.bool())];
                        Mutation::Atomic { op, key, operand: n.to_le_bytes().to_vec() }
                    }
                    4 => Mutation::StampedValue { key, value: vec![0; STAMP_LEN], offset: 0 },
                    _ => Mutation::Set { key, value: n.to_le_bytes().to_vec() },
                }
            })
            .collect()
    }

    fn commit(&mut self, attempt: Attempt, watched: Option<Watched>) {
        let id = attempt.id;
        let mut mutations = attempt.mutations.clone();
        let stamped = [LOG.0, &[0; STAMP_LEN]].concat();
        mutations.push(Mutation::StampedKey {
            key: stamped,
            offset: LOG.0.len(),
            value: id.to_be_bytes().to_vec(),
        });
        mutations.push(Mutation::Set { key: marker(id), value: Vec::new() });
        baton::note(|| {
            format!(
                "{id:x} at {} {:?} {:?} commits {:?}",
                attempt.read_version, attempt.gets, attempt.scan, attempt.mutations
            )
        });
        let request = CommitRequest {
            read_version: attempt.read_version,
            reads: read_ranges(&attempt),
            report_conflicts: false,
            writes: mutations
                .iter()
                .filter(|it| !matches!(it, Mutation::StampedKey { .. }))
                .map(Mutation::write_range)
                .collect(),
            mutations,
            durability: Durability::Flushed,
            fault: None,
            promise: CommitPromise::new(|_| ()),
        };
        if !self.record.add(|state| state.attempts.push(attempt)) {
            return;
        }
        // Half of the watches are armed on the committer's thread, as by a client's callback.
        let (here, there) = if self.random.bool() { (watched, None) } else { (None, watched) };
        let result = self.answer(request, id, there);
        here.into_iter().for_each(|watched| arm(&self.engine, &self.record, watched));
        if result == Err(Code::COMMIT_UNKNOWN_RESULT) {
            self.look_for(id);
        }
    }

    /// Commits, and waits for the answer.
    fn answer(
        &self,
        mut request: CommitRequest,
        id: AttemptId,
        watched: Option<Watched>,
    ) -> std::result::Result<(), Code> {
        let (sender, receiver) = baton::mpsc::sync_channel(1);
        let (record, engine) = (Arc::clone(&self.record), Arc::downgrade(&self.engine));
        request.promise = CommitPromise::new(move |result: CommitResult| {
            let outcome = match &result {
                Ok(committed) => Outcome::Committed(committed.stamp()),
                Err(failure) if failure.code == Code::COMMIT_UNKNOWN_RESULT => Outcome::Unknown,
                Err(_) => Outcome::Refused,
            };
            record.tell(id, outcome);
            if let (Some(watched), Some(engine)) = (watched, engine.upgrade()) {
                arm(&engine, &record, watched);
            }
            sender.send(result.map(drop).map_err(|failure| failure.code)).expect("the client waits");
        });
        self.engine.commit(request);
        receiver.recv().expect("every commit is answered")
    }

    /// Finds out whether a commit of unknown outcome is there.
    fn look_for(&self, id: AttemptId) {
        // An engine that has failed answers no read. The next life decides.
        if let Ok(None) = self.engine.read().get(&marker(id)) {
            self.record.tell(id, Outcome::Absent);
        }
    }
}

fn arm(engine: &Engine, record: &Record, watched: Watched) {
    baton::note(|| format!("watches {:?} from {:?}", watched.key, watched.baseline));
    if record.add(|state| state.watches.push(watched.clone())) {
        engine.arm(&watched.key, watched.baseline, &watched.future);
    }
}

/// What the commit conflicts with: disjoint, in key order.
fn read_ranges(attempt: &Attempt) -> Vec<KeyRange> {
    if attempt.scan.is_some() {
        return vec![(ALL.0.to_vec(), ALL.1.to_vec())];
    }
    let mut keys: Vec<_> = attempt.gets.iter().map(|(key, _)| key.clone()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter().map(|key| (key.clone(), key_after(&key))).collect()
}
