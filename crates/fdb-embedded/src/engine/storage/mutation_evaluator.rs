//! The mutation evaluator: computes which keys a batch writes and with what values.

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;

use bytes::Bytes;
use mutant::bound;

use super::error::StorageError;
use super::memtable::{Memtable, MemtableWriter};
use super::versioned_reader::VersionedReader;
use crate::engine::atomic::AtomicOp;
use crate::engine::mutation::{Effect, Mutation};
use crate::rows::Direction;

/// The most keys that the range clears of a batch may remove through the memtable. Readers step
/// over each removed key there; redb removes a range at once.
const MAX_REMOVED: usize = 48;

fn is_point(begin: &[u8], end: &[u8]) -> bool {
    end.strip_prefix(begin) == Some(&[0])
}

/// Data from below the memtable that a mutation depends on.
#[derive(Debug)]
enum PriorState {
    /// The old value of an atomic operation's key.
    Value(Option<Bytes>),
    /// The keys in the range of a clear that the memtable does not have.
    Keys(Vec<Bytes>),
}

/// The data that the mutations of a batch depend on, in their order, with the index of each
/// mutation.
#[derive(Debug)]
pub struct Prior(VecDeque<(usize, PriorState)>);

/// Reads the data that `mutations` depend on; `None` if the range clears remove too many keys for
/// the memtable. `below` reads the state before the memtable. Runs before the memtable is locked,
/// because these reads may go to the disk and readers must not wait for that.
pub fn read_prior(
    below: VersionedReader<'_>,
    memtable: &Memtable,
    mutations: &[Mutation],
) -> Result<Option<Prior>, StorageError> {
    let mut found = VecDeque::new();
    let mut seen = BTreeSet::new();
    let written = memtable.reader();
    let (mut removed, most) = (0, bound("memtable-cleared-keys", MAX_REMOVED));
    for (index, mutation) in mutations.iter().enumerate() {
        match mutation {
            Mutation::ClearRange { begin, end } if !is_point(begin, end) && begin < end => {
                let mut keys = Vec::new();
                removed += written.count_present(begin, end, most + 1);
                let _some = below.scan(begin, end, Direction::Forward, &mut |key, _| {
                    // The memtable decides about a key that it has.
                    if !written.has(key) {
                        removed += 1;
                        keys.push(Bytes::copy_from_slice(key));
                    }
                    if removed > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
                if removed > most {
                    return Ok(None);
                }
                found.push_back((index, PriorState::Keys(keys)));
            }
            Mutation::Atomic { key, .. } if !written.has(key) && seen.insert(key.as_slice()) => {
                found.push_back((index, PriorState::Value(below.get(key)?)));
            }
            _ => {}
        }
    }
    Ok(Some(Prior(found)))
}

/// Evaluates `mutations` in order at `version`, adds the results to `memtable`, and returns the
/// written keys.
pub fn evaluate(
    Prior(mut found): Prior,
    memtable: &Memtable,
    version: i64,
    mutations: Vec<Mutation>,
) -> Result<Vec<Bytes>, StorageError> {
    let mut writer = memtable.writer(version);
    let mut keys = Vec::with_capacity(mutations.len());
    for (index, mutation) in mutations.into_iter().enumerate() {
        let there = found.pop_front_if(|(of, _)| *of == index).map(|(_, there)| there);
        let value_after = |op: AtomicOp, key: &[u8], operand: &[u8]| {
            Ok::<_, StorageError>(match (writer.get(key), &there) {
                (Some(old), _) => op.apply(old, operand),
                (None, Some(PriorState::Value(old))) => op.apply(old.as_deref(), operand),
                (None, _) => unreachable!("the first operation on a key has read it"),
            })
        };
        match mutation.effect(value_after)? {
            Effect::Write { key, value } => {
                let key = Bytes::from(key);
                keys.push(key.clone());
                writer.put(key, value.map(Bytes::from));
            }
            Effect::Clear { begin, end } => {
                if let Some(PriorState::Keys(there)) = there {
                    clear(there, &mut writer, &begin, &end, &mut keys);
                }
            }
        }
    }
    Ok(keys)
}

/// Removes the keys of `[begin, end)`. `below` holds the range's keys that the memtable did not have
/// before the batch.
fn clear(
    below: Vec<Bytes>,
    writer: &mut MemtableWriter<'_>,
    begin: &[u8],
    end: &[u8],
    keys: &mut Vec<Bytes>,
) {
    let mut removed = writer.present(begin, end);
    // `removed` already has the keys that the memtable holds.
    removed.extend(below.into_iter().filter(|key| writer.get(key).is_none()));
    removed.iter().for_each(|key| writer.put(key.clone(), None));
    keys.extend(removed);
}
