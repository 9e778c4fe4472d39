//! Range reads: limits, streaming modes and conflict ranges.

use std::ops::ControlFlow;

use mutant::bound;

use super::merged::Merged;
use super::selector::Selector;
use crate::error::{Code, Result};
use crate::range_set::{KeyRange, key_after};
use crate::rows::{Direction, FetchHint, RowSet};

/// Bytes that FoundationDB counts for a row in addition to its key and value.
pub const ROW_OVERHEAD: usize = 24;

/// The end of all stored keys.
const SYSTEM_END: &[u8] = b"\xff\xff";

/// The byte limits of the iterator mode, by iteration. The last one repeats.
const ITERATOR_BYTES: [usize; 10] =
    [4_096, 6_144, 9_216, 13_824, 20_736, 31_104, 46_656, 69_984, 80_000, 120_000];

/// The limits of a range read; `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Rows.
    pub rows: Option<usize>,
    /// Bytes. The row that reaches the limit is still returned.
    pub bytes: Option<usize>,
}

impl Limits {
    /// The limits for the C API's arguments. Negative ones are validated elsewhere.
    pub fn new(rows: i32, target_bytes: i32, mode: i32, iteration: i32) -> Result<Limits> {
        let is_open = |given: i32| matches!(given, 0 | -1);
        let is_unlimited = is_open(rows) && is_open(target_bytes);
        let limit = |given: i32| usize::try_from(given).ok().filter(|limit| *limit > 0);
        let (rows, given) = (limit(rows), limit(target_bytes));
        let by_mode = match mode {
            -2 | 4 => Some(bound("reply-bytes", 80_000)),
            -1 => {
                let step = usize::try_from(iteration).ok().and_then(|i| i.checked_sub(1));
                let step = step.ok_or(Code::CLIENT_INVALID_OPERATION)?;
                Some(ITERATOR_BYTES[step.min(ITERATOR_BYTES.len() - 1)])
            }
            0 if is_unlimited => return Err(Code::EXACT_MODE_WITHOUT_LIMITS),
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
    fn want(self) -> FetchHint {
        let most = FetchHint::default();
        let at_most = |limit: Option<usize>, most| {
            limit.and_then(|l| u32::try_from(l).ok()).map_or(most, |l| l.min(most))
        };
        FetchHint { rows: at_most(self.rows, most.rows), bytes: at_most(self.bytes, most.bytes) }
    }
}

/// The arguments of a range read.
#[derive(Debug, Clone)]
pub struct RangeRead {
    /// The lower bound.
    pub begin: Selector,
    /// The upper bound.
    pub end: Selector,
    /// The limits.
    pub limits: Limits,
    /// The direction of the read.
    pub direction: Direction,
}

/// The result of a range read.
#[derive(Debug, Default)]
pub struct RangeResult {
    /// The rows.
    pub rows: RowSet,
    /// A selector has reached the beginning of all keys.
    pub to_begin: bool,
    /// A selector has reached the end of all keys.
    pub through_end: bool,
}

impl RangeRead {
    /// True if the read cannot return rows, whatever the database contains.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.begin.offset >= self.end.offset && self.begin.key >= self.end.key
    }

    /// Runs the read. Keys stay below `max`.
    pub fn run(&self, merged: &Merged<'_>, max: &[u8]) -> Result<RangeResult> {
        let is_before = self.end.offset <= 1 && self.end.key.is_empty();
        let is_behind = self.begin.offset >= 1 && self.begin.key.as_slice() >= max;
        if self.is_empty() || is_before || is_behind {
            return Ok(RangeResult::default());
        }
        let (begin, end) = (self.begin.position(merged, max)?, self.end.position(merged, max)?);
        let mut found = RangeResult {
            rows: RowSet::default(),
            to_begin: begin.before_begin || end.before_begin,
            through_end: begin.after_end || end.after_end,
        };
        if begin.left >= end.left && begin.key >= end.key {
            return Ok(RangeResult::default());
        }
        if (!begin.is_stuck() && begin.key == max) || (!end.is_stuck() && end.key.is_empty()) {
            return Ok(found);
        }
        let (near, far) = match self.direction {
            Direction::Forward => (&begin, &end),
            Direction::Backward => (&end, &begin),
        };
        if near.is_stuck() || (far.is_stuck() && begin.key > end.key) {
            return Err(Code::ACCESSED_UNREADABLE);
        }
        // If a selector met an unreadable range, the read continues until the bound is known to lie
        // beyond it: as many rows follow as the selector has left to go.
        let (from, to, beyond) = match self.direction {
            Direction::Forward if far.is_stuck() => (begin.key.as_slice(), max, 1 - end.offset),
            Direction::Backward if far.is_stuck() => (&[][..], end.key.as_slice(), begin.offset - 1),
            _ => (begin.key.as_slice(), end.key.as_slice(), 0),
        };
        found.rows = read_beyond(merged, (from, to.min(max)), self.limits, self.direction, beyond)?;
        match self.direction {
            Direction::Forward => found.through_end &= !found.rows.more,
            Direction::Backward => found.to_begin &= !found.rows.more,
        }
        Ok(found)
    }

    /// The range of the read for conflicts, as FoundationDB computes it.
    pub fn conflict(&self, found: &RangeResult, max: &[u8]) -> KeyRange {
        let (begin, end) = (&self.begin, &self.end);
        let is_forward = self.direction == Direction::Forward;
        let (mut from, mut to) =
            (begin.key.clone().min(end.key.clone()), begin.key.clone().max(end.key.clone()));
        if found.rows.more && begin.key < end.key {
            // Rows after the last one cannot change the result.
            match self.direction {
                Direction::Forward if end.offset > 0 => to.clone_from(&begin.key),
                Direction::Backward if begin.offset <= 1 => from.clone_from(&end.key),
                _ => {}
            }
        }
        if found.to_begin && begin.offset <= 0 {
            from.clear();
        }
        if found.through_end && end.offset > 0 {
            to = max.to_vec();
        }
        if let Some((lowest, highest)) = extremes(&found.rows) {
            if (!is_forward || begin.offset <= 0) && lowest < from.as_slice() {
                from = lowest.to_vec();
            }
            if (is_forward || end.offset > 0) && to.as_slice() <= highest {
                to = key_after(highest);
            }
        }
        (from, to)
    }

    /// The same for a transaction without read-your-writes, which FoundationDB computes
    /// differently.
    pub fn plain_conflict(&self, found: &RangeResult) -> KeyRange {
        let (begin, end) = (&self.begin, &self.end);
        let (is_reverse, more) = (self.direction == Direction::Backward, found.rows.more);
        let begins_at_key = (!is_reverse || !more || begin.offset > 1) && begin.offset > 0;
        let ends_at_key = (is_reverse || !more || end.offset <= 0) && end.offset <= 1;
        let mut from = match extremes(&found.rows) {
            _ if found.to_begin => Vec::new(),
            Some((lowest, _)) if !begins_at_key => lowest.to_vec(),
            _ => begin.key.clone(),
        };
        if end.offset > begin.offset && end.key < from {
            from.clone_from(&end.key);
        }
        let mut to = match extremes(&found.rows) {
            _ if found.through_end => SYSTEM_END.to_vec(),
            Some((_, highest)) if !ends_at_key => key_after(highest),
            _ => end.key.clone(),
        };
        if begin.offset < end.offset && begin.key > to {
            to.clone_from(&begin.key);
        }
        (from, to)
    }
}

/// The lowest and the highest key of rows in either direction.
fn extremes(rows: &RowSet) -> Option<(&[u8], &[u8])> {
    let (first, last) = (rows.get(0)?.0, rows.iter().next_back()?.0);
    Some((first.min(last), first.max(last)))
}

impl Selector {
    /// Resolves the selector to a key.
    pub fn resolve(&self, merged: &Merged<'_>, max: &[u8]) -> Result<Vec<u8>> {
        let limits = Limits { rows: Some(1), bytes: None };
        let read = if self.offset > 0 {
            let (begin, end) = (self.clone(), Selector::at(max));
            RangeRead { begin, end, limits, direction: Direction::Forward }
        } else {
            RangeRead { begin: Selector::at(b""), end: self.next(), limits, direction: Direction::Backward }
        };
        let found = read.run(merged, max)?;
        let row = found.rows.get(0).map(|(key, _)| key.to_vec());
        Ok(match self.offset {
            1.. if found.to_begin => Vec::new(),
            1.. if found.through_end => max.to_vec(),
            1.. => row.unwrap_or_else(|| max.to_vec()),
            _ if found.through_end => max.to_vec(),
            _ if found.to_begin => Vec::new(),
            _ => row.unwrap_or_default(),
        })
    }

    /// The conflict range of a read of the resolved key.
    #[must_use]
    pub fn conflict_range(&self, resolved: &[u8]) -> KeyRange {
        if self.offset >= 1 {
            (self.uncut_key(), key_after(resolved))
        } else {
            (resolved.to_vec(), self.uncut_key())
        }
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
    read_beyond(merged, (begin, end), limits, direction, 0)
}

/// The rows of a range up to the limits. At least `beyond` more rows must follow them.
fn read_beyond(
    merged: &Merged<'_>,
    (begin, end): (&[u8], &[u8]),
    limits: Limits,
    direction: Direction,
    beyond: i64,
) -> Result<RowSet> {
    let mut rows = RowSet::default();
    let (mut bytes, mut behind) = (0, 0);
    let merged = Merged { want: limits.want(), ..*merged };
    merged.scan(begin, end, direction, &mut |key, value| {
        if rows.more {
            behind += 1;
        } else {
            rows.push(key, value);
            bytes += key.len() + value.len() + ROW_OVERHEAD;
            rows.more = limits.rows.is_some_and(|limit| rows.len() >= limit)
                || limits.bytes.is_some_and(|limit| bytes >= limit);
        }
        if rows.more && behind >= beyond { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
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
        assert_eq!(Limits::new(5, 300, 1, 0), Ok(Limits { rows: Some(5), bytes: Some(256) }));
    }
}
