//! What a batch makes of a state, key by key.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::StorageError;
use crate::engine::delta::{Delta, Writer};
use crate::engine::mutation::Mutation;
use crate::engine::reading::At;
use crate::rows::Direction;

/// Keys that the ranges of a batch may remove one by one. With more, redb removes them all at once, and nobody who reads later has to
/// pass by each.
const MAX_REMOVED: usize = 48;

fn is_point(begin: &[u8], end: &[u8]) -> bool {
    end.strip_prefix(begin) == Some(&[0])
}

/// Can what the mutations remove be listed?
pub fn is_listable(before: At<'_>, mutations: &[Mutation]) -> Result<bool, StorageError> {
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

/// Adds to `delta` what the mutations write in order, as of `version`, and returns the keys. `below` is what was there before the delta.
pub fn write(
    below: At<'_>,
    delta: &Delta,
    version: i64,
    mutations: Vec<Mutation>,
) -> Result<Vec<Bytes>, StorageError> {
    let mut writer = delta.writer(version);
    let mut keys = Vec::with_capacity(mutations.len());
    for mutation in mutations {
        let (key, value) = match mutation {
            Mutation::Set { key, value } => (key, Some(value)),
            Mutation::ClearRange { begin, end } if is_point(&begin, &end) => (begin, None),
            Mutation::ClearRange { begin, end } => {
                if begin < end {
                    clear(below, &mut writer, &begin, &end, &mut keys)?;
                }
                continue;
            }
            Mutation::Atomic { op, key, operand } => {
                let new = match writer.get(&key) {
                    Some(old) => op.apply(old, &operand),
                    None => op.apply(below.get(&key)?.as_deref(), &operand),
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

/// Removes what is in `[begin, end)`.
fn clear(
    below: At<'_>,
    writer: &mut Writer<'_>,
    begin: &[u8],
    end: &[u8],
    keys: &mut Vec<Bytes>,
) -> Result<(), StorageError> {
    let mut removed = writer.present(begin, end);
    let _all = below.scan(begin, end, Direction::Forward, &mut |key, _| {
        // What was written here is listed, or is gone already.
        if writer.get(key).is_none() {
            removed.push(Bytes::copy_from_slice(key));
        }
        ControlFlow::Continue(())
    })?;
    removed.iter().for_each(|key| writer.put(key.clone(), None));
    keys.extend(removed);
    Ok(())
}
