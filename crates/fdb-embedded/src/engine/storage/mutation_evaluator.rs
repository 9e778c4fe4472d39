//! What a batch makes of a state, key by key.

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;

use bytes::Bytes;

use super::StorageError;
use crate::engine::memtable::{Memtable, MemtableWriter};
use crate::engine::mutation::Mutation;
use crate::engine::versioned_reader::VersionedReader;
use crate::rows::Direction;

/// Keys that the ranges of a batch may remove one by one. With more, redb removes them all at once, and nobody who reads later has to
/// pass by each.
const MAX_REMOVED: usize = 48;

fn is_point(begin: &[u8], end: &[u8]) -> bool {
    end.strip_prefix(begin) == Some(&[0])
}

/// Can what the mutations remove be listed?
pub fn removes_few_keys(before: VersionedReader<'_>, mutations: &[Mutation]) -> Result<bool, StorageError> {
    let mut removed = 0;
    for mutation in mutations {
        if let Mutation::ClearRange { begin, end } = mutation
            && !is_point(begin, end)
        {
            let _some = before.scan(begin, end, Direction::Forward, &mut |_, _| {
                removed += 1;
                if removed > MAX_REMOVED { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
        }
    }
    Ok(removed <= MAX_REMOVED)
}

/// What a mutation needs of the state below the memtable.
enum PriorState {
    /// The value of an atomic operation's key.
    Value(Option<Bytes>),
    /// The keys of a range.
    Keys(Vec<Bytes>),
}

/// Reads from `below` what the mutations need, in their order: for each range its keys, and for each key that an atomic operation changes
/// and the memtable does not hold its value. These reads may go to the disk, so nobody waits for them: the memtable can be read meanwhile.
fn read_prior(
    below: VersionedReader<'_>,
    memtable: &Memtable,
    mutations: &[Mutation],
) -> Result<VecDeque<(usize, PriorState)>, StorageError> {
    let mut found = VecDeque::new();
    let mut seen = BTreeSet::new();
    let written = memtable.reader();
    for (index, mutation) in mutations.iter().enumerate() {
        match mutation {
            Mutation::ClearRange { begin, end } if !is_point(begin, end) && begin < end => {
                let mut keys = Vec::new();
                let _all = below.scan(begin, end, Direction::Forward, &mut |key, _| {
                    keys.push(Bytes::copy_from_slice(key));
                    ControlFlow::Continue(())
                })?;
                found.push_back((index, PriorState::Keys(keys)));
            }
            Mutation::Atomic { key, .. } if !written.has(key) && seen.insert(key.as_slice()) => {
                found.push_back((index, PriorState::Value(below.get(key)?)));
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Adds to `memtable` what the mutations write in order, as of `version`, and returns the keys. `below` is what was there before the memtable.
pub fn evaluate(
    below: VersionedReader<'_>,
    memtable: &Memtable,
    version: i64,
    mutations: Vec<Mutation>,
) -> Result<Vec<Bytes>, StorageError> {
    let mut found = read_prior(below, memtable, &mutations)?;
    let mut writer = memtable.writer(version);
    let mut keys = Vec::with_capacity(mutations.len());
    for (index, mutation) in mutations.into_iter().enumerate() {
        let there = found.pop_front_if(|(of, _)| *of == index).map(|(_, there)| there);
        let (key, value) = match mutation {
            Mutation::Set { key, value } => (key, Some(value)),
            Mutation::ClearRange { begin, end } if is_point(&begin, &end) => (begin, None),
            Mutation::ClearRange { begin, end } => {
                if let Some(PriorState::Keys(there)) = there {
                    clear(there, &mut writer, &begin, &end, &mut keys);
                }
                continue;
            }
            Mutation::Atomic { op, key, operand } => {
                let new = match (writer.get(&key), &there) {
                    (Some(old), _) => op.apply(old, &operand),
                    (None, Some(PriorState::Value(old))) => op.apply(old.as_deref(), &operand),
                    (None, _) => unreachable!("the first operation on a key has read it"),
                };
                (key, new)
            }
            Mutation::StampedKey { .. } | Mutation::StampedValue { .. } => {
                unreachable!("the committer stamps mutations before it applies them")
            }
        };
        let key = Bytes::from(key);
        keys.push(key.clone());
        writer.put(key, value.map(Bytes::from));
    }
    Ok(keys)
}

/// Removes what is in `[begin, end)`; `below` are the keys that were there before the memtable.
fn clear(
    below: Vec<Bytes>,
    writer: &mut MemtableWriter<'_>,
    begin: &[u8],
    end: &[u8],
    keys: &mut Vec<Bytes>,
) {
    let mut removed = writer.present(begin, end);
    // What was written here is listed, or is gone already.
    removed.extend(below.into_iter().filter(|key| writer.get(key).is_none()));
    removed.iter().for_each(|key| writer.put(key.clone(), None));
    keys.extend(removed);
}
