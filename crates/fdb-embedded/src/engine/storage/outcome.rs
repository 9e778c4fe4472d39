//! What a batch makes of a state, key by key.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};
use std::ops::ControlFlow;

use bytes::Bytes;

use super::StorageError;
use crate::engine::delta::Row;
use crate::engine::mutation::Mutation;
use crate::engine::reading::At;
use crate::rows::Direction;

/// Keys that the ranges of a batch may remove one by one. With more, redb removes them all at once, and nobody who reads later has to
/// pass by each.
const MAX_REMOVED: usize = 48;

/// What single keys are to hold: each once, however many transactions of the batch have changed it.
type Points<'m> = BTreeMap<Cow<'m, [u8]>, Option<Cow<'m, [u8]>>>;

/// What the mutations write, applied in order to `before`; `None` if that is too much to be listed.
pub fn outcome(before: At<'_>, mutations: &[Mutation]) -> Result<Option<Vec<Row>>, StorageError> {
    let mut points = Points::new();
    let mut removed = 0;
    for mutation in mutations {
        match mutation {
            Mutation::Set { key, value } => {
                points.insert(Cow::Borrowed(key), Some(Cow::Borrowed(value)));
            }
            Mutation::ClearRange { begin, end } if end.strip_prefix(begin.as_slice()) == Some(&[0]) => {
                points.insert(Cow::Borrowed(begin), None);
            }
            Mutation::ClearRange { begin, end } if begin < end => {
                removed += clear(before, begin, end, &mut points)?;
                if removed > MAX_REMOVED {
                    return Ok(None);
                }
            }
            Mutation::ClearRange { .. } => {}
            Mutation::Atomic { op, key, operand } => {
                let new = match points.get(key.as_slice()) {
                    Some(old) => op.apply(old.as_deref(), operand),
                    None => op.apply(before.get(key)?.as_deref(), operand),
                };
                points.insert(Cow::Borrowed(key), new.map(Cow::Owned));
            }
            Mutation::StampedKey { .. } | Mutation::StampedValue { .. } => {
                unreachable!("the committer stamps mutations before it applies them")
            }
        }
    }
    let bytes = |text: &[u8]| Bytes::copy_from_slice(text);
    Ok(Some(points.iter().map(|(key, value)| (bytes(key), value.as_deref().map(bytes))).collect()))
}

/// Removes what is in `[begin, end)`, and says how many keys of `before` those are, as far as it went.
fn clear<'m>(
    before: At<'_>,
    begin: &'m [u8],
    end: &'m [u8],
    points: &mut Points<'m>,
) -> Result<usize, StorageError> {
    let range = (Included(begin), Excluded(end));
    points.range_mut::<[u8], _>(range).for_each(|(_, value)| *value = None);
    let mut removed = 0;
    let _all = before.scan(begin, end, Direction::Forward, &mut |key, _| {
        points.insert(Cow::Owned(key.to_vec()), None);
        removed += 1;
        if removed > MAX_REMOVED { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(removed)
}
