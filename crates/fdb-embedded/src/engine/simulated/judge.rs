//! Holds what is stored, and what clients saw, against a plain model.

use std::collections::BTreeMap;

use super::record::{Attempt, Outcome, State};
use crate::engine::atomic::AtomicOp;
use crate::engine::mutation::{Mutation, STAMP_LEN, Stamp};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// The database at a version.
struct At {
    version: i64,
    model: Model,
}

/// Judges everything up to now: `log` has the stamps of all commits and their attempts, `rows` the keys of the model.
pub(super) fn judge(state: &State, log: &[(Stamp, u64)], rows: &Rows) {
    let by_id: BTreeMap<u64, &Attempt> = state.attempts.iter().map(|it| (it.id, it)).collect();
    let mut model = Model::new();
    let mut states = vec![At { version: 0, model: Model::new() }];
    for (stamp, id) in log {
        let attempt =
            by_id.get(id).unwrap_or_else(|| panic!("{id:x} is stored, and nobody has committed it"));
        match attempt.outcome {
            Outcome::Committed(told) => {
                assert_eq!(told, *stamp, "{id:x} has another stamp than its client got");
            }
            Outcome::Unknown | Outcome::Pending => {}
            other => panic!("{id:x} is stored, and its client got {other:?}"),
        }
        // It read what it would have read at the moment of its commit.
        compare(attempt, &model, "at its commit");
        attempt.mutations.iter().for_each(|mutation| apply(&mut model, mutation, *stamp));
        let version = version_of(*stamp);
        if states.last().is_some_and(|last| last.version == version) {
            states.pop();
        }
        states.push(At { version, model: model.clone() });
    }
    for attempt in &state.attempts {
        if let Outcome::Committed(stamp) = attempt.outcome {
            assert!(log.contains(&(stamp, attempt.id)), "{:x} was acknowledged, and is lost", attempt.id);
        }
        let seen = states.iter().rev().find(|at| at.version <= attempt.read_version);
        compare(attempt, &seen.expect("it begins with version 0").model, "at its read version");
    }
    for (key, baseline, version) in &state.fired {
        let differs = |at: &At| at.model.get(key).map(Vec::as_slice) != baseline.as_deref();
        let later = states.iter().filter(|at| at.version > *version);
        assert!(later.into_iter().any(differs), "a watch of {key:?} fired without a change of {baseline:?}");
    }
    assert_eq!(&model.into_iter().collect::<Rows>(), rows, "what is stored is not what was committed");
}

fn version_of(Stamp(bytes): Stamp) -> i64 {
    i64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"))
}

fn compare(attempt: &Attempt, model: &Model, when: &str) {
    for (key, value) in &attempt.gets {
        let (got, should) = (value.as_deref(), model.get(key).map(Vec::as_slice));
        assert_eq!(got, should, "{:x} has read {key:?} (left), which {when} was (right)", attempt.id);
    }
    if let Some(rows) = &attempt.scan {
        let should: Rows = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        assert_eq!(*rows, should, "{:x} has read all keys (left), which {when} were (right)", attempt.id);
    }
}

/// What a mutation does, without the engine's code.
fn apply(model: &mut Model, mutation: &Mutation, stamp: Stamp) {
    match mutation {
        Mutation::Set { key, value } => drop(model.insert(key.clone(), value.clone())),
        Mutation::ClearRange { begin, end } => model.retain(|key, _| key < begin || key >= end),
        Mutation::StampedValue { key, .. } => drop(model.insert(key.clone(), stamp.0.to_vec())),
        Mutation::StampedKey { .. } => panic!("only the log has such keys"),
        Mutation::Atomic { op, key, operand } => {
            let number = |bytes: &[u8]| {
                let mut eight = [0; 8];
                let len = bytes.len().min(8);
                eight[..len].copy_from_slice(&bytes[..len]);
                u64::from_le_bytes(eight)
            };
            let (old, new) = (model.get(key).map_or(0, |value| number(value)), number(operand));
            let value = match op {
                AtomicOp::Add => old.wrapping_add(new),
                AtomicOp::Max => old.max(new),
                other => panic!("no client uses {other:?}"),
            };
            model.insert(key.clone(), value.to_le_bytes().to_vec());
        }
    }
}

/// The stamps and attempts in the rows of the log.
pub(super) fn commits(rows: &Rows, prefix: usize) -> Vec<(Stamp, u64)> {
    let parsed = rows.iter().map(|(key, value)| {
        let stamp: [u8; STAMP_LEN] = key[prefix..].try_into().expect("a stamp");
        (Stamp(stamp), u64::from_be_bytes(value[..].try_into().expect("a number")))
    });
    parsed.collect()
}
