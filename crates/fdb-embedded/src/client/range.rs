//! Range reads: limits, streaming modes, and what a read conflicts with.

use std::ops::ControlFlow;

use super::merged::Merged;
use super::selector::Selector;
use crate::error::{Code, Result};
use crate::range_set::{KeyRange, key_after};
use crate::rows::{Direction, RowSet, Want};

/// What each row costs beside its key and value, bytes: FoundationDB counts its row structure.
pub(super) const ROW_OVERHEAD: usize = 24;

/// Byte targets of the iterator mode, by iteration; the last stays.
const ITERATOR_BYTES: [usize; 10] =
    [4_096, 6_144, 9_216, 13_824, 20_736, 31_104, 46_656, 69_984, 80_000, 120_000];

/// When a range read stops; `None` is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Rows.
    pub rows: Option<usize>,
    /// Bytes of rows; the row that reaches them is still returned.
    pub bytes: Option<usize>,
}

impl Limits {
    /// The limits that the C API's arguments amount to.
    pub fn new(rows: i32, target_bytes: i32, mode: i32, iteration: i32) -> Result<Limits> {
        let limit = |given: i32| match given {
            0 | -1 => Ok(None),
            1.. => Ok(usize::try_from(given).ok()),
            _ => Err(Code::RANGE_LIMITS_INVALID),
        };
        let (rows, given) = (limit(rows)?, limit(target_bytes)?);
        let by_mode = match mode {
            -2 | 4 => Some(80_000),
            -1 => {
                let step = usize::try_from(iteration).ok().and_then(|i| i.checked_sub(1));
                let step = step.ok_or(Code::CLIENT_INVALID_OPERATION)?;
                Some(ITERATOR_BYTES[step.min(ITERATOR_BYTES.len() - 1)])
            }
            0 if rows.is_none() && given.is_none() => return Err(Code::EXACT_MODE_WITHOUT_LIMITS),
            0 => None,
            1 => Some(256),
            2 => Some(1_000),
            3 => Some(4_096),
            _ => return Err(Code::CLIENT_INVALID_OPERATION),
        };
        let bytes = match (given, by_mode) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Ok(Limits { rows, bytes })
    }

    /// About how much will be read.
    fn want(self) -> Want {
        let most = Want::default();
        let at_most = |limit: Option<usize>, most| {
            limit.and_then(|l| u32::try_from(l).ok()).map_or(most, |l| l.min(most))
        };
        Want { rows: at_most(self.rows, most.rows), bytes: at_most(self.bytes, most.bytes) }
    }
}

/// A range read as asked for.
#[derive(Debug, Clone)]
pub struct RangeRead {
    /// The lower bound.
    pub begin: Selector,
    /// The upper bound.
    pub end: Selector,
    /// When to stop.
    pub limits: Limits,
    /// From which side.
    pub direction: Direction,
}

/// The rows of a range read and what they depended on.
#[derive(Debug)]
pub struct RangeResult {
    /// The rows.
    pub rows: RowSet,
    /// A write in one of these by another transaction could have changed the rows.
    pub conflicts: Vec<KeyRange>,
}

impl RangeRead {
    /// Can the read return nothing whatever the database holds?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.begin.offset >= self.end.offset && self.begin.key >= self.end.key
    }

    /// Reads; keys stay below `max`.
    pub fn run(&self, merged: &Merged<'_>, max: &[u8]) -> Result<RangeResult> {
        let (begin, end) = self.bounds(merged, max)?;
        let rows = read_rows(merged, &begin, end.as_slice().min(max), self.limits, self.direction)?;
        let conflicts = self.conflicts(begin, end, &rows);
        Ok(RangeResult { rows, conflicts })
    }

    /// The keys that the bounds stand for.
    pub(super) fn bounds(&self, merged: &Merged<'_>, max: &[u8]) -> Result<KeyRange> {
        let bound = |selector: &Selector| {
            if selector.is_plain() { Ok(selector.key.clone()) } else { selector.resolve(merged, max) }
        };
        Ok((bound(&self.begin)?, bound(&self.end)?))
    }

    /// The range read, as far as it was read, and what each bound was found by.
    pub(super) fn conflicts(&self, mut begin: Vec<u8>, mut end: Vec<u8>, rows: &RowSet) -> Vec<KeyRange> {
        let bounds = [(&self.begin, &begin), (&self.end, &end)];
        let searched = bounds.into_iter().filter(|(selector, _)| !selector.is_plain());
        let mut conflicts: Vec<KeyRange> =
            searched.map(|(selector, resolved)| selector.conflict_range(resolved)).collect();
        if rows.more
            && let Some((last, _)) = rows.iter().next_back()
        {
            match self.direction {
                Direction::Forward => end = key_after(last),
                Direction::Backward => begin = last.to_vec(),
            }
        }
        conflicts.push((begin, end));
        conflicts
    }
}

/// The rows of `[begin, end)` up to the limits.
pub(super) fn read_rows(
    merged: &Merged<'_>,
    begin: &[u8],
    end: &[u8],
    limits: Limits,
    direction: Direction,
) -> Result<RowSet> {
    let mut rows = RowSet::default();
    let mut bytes = 0;
    let merged = Merged { want: limits.want(), ..*merged };
    merged.scan(begin, end, direction, &mut |key, value| {
        rows.push(key, value);
        bytes += key.len() + value.len() + ROW_OVERHEAD;
        let full = limits.rows.is_some_and(|limit| rows.len() >= limit)
            || limits.bytes.is_some_and(|limit| bytes >= limit);
        rows.more = full;
        if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_streaming_modes() {
        let bytes = |mode, iteration| Limits::new(0, 0, mode, iteration).map(|limits| limits.bytes);
        assert_eq!(bytes(-2, 0), Ok(Some(80_000)));
        assert_eq!(bytes(-1, 1), Ok(Some(4_096)));
        assert_eq!(bytes(-1, 99), Ok(Some(120_000)));
        assert_eq!(bytes(-1, 0), Err(Code::CLIENT_INVALID_OPERATION));
        assert_eq!(bytes(0, 0), Err(Code::EXACT_MODE_WITHOUT_LIMITS));
        assert_eq!(bytes(9, 0), Err(Code::CLIENT_INVALID_OPERATION));
        assert_eq!(Limits::new(-2, 0, 0, 0), Err(Code::RANGE_LIMITS_INVALID));
        assert_eq!(Limits::new(5, 300, 1, 0), Ok(Limits { rows: Some(5), bytes: Some(256) }));
    }
}
