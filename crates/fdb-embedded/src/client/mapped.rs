//! Mapped range reads: a range read of an index, and for each row a second read derived by a
//! mapper.

use bytes::Bytes;

use super::mapper::Mapper;
use super::merged::Merged;
use super::range::{Limits, ROW_OVERHEAD, RangeRead, RangeResult, read_rows};
use super::selector::Selector;
use crate::error::{Code, Result};
use crate::range_set::{KeyRange, key_after};
use crate::rows::{Direction, MappedRow, MappedRows, RowSet};

/// The limits of one second read.
const SECONDARY_LIMITS: Limits = Limits { rows: Some(2_000), bytes: Some(10_000_000) };
/// The index rows may use one fifth of a byte limit.
const INDEX_SHARE: usize = 5;
/// A byte limit is checked after each block of this many rows.
const ROWS_AT_ONCE: usize = 10;
/// The most second reads that are fetched from the host together.
const MISSING_AT_ONCE: usize = 256;
/// FoundationDB's servers send at most about this many bytes in a response.
const REPLY_BYTES: usize = 80_000;

/// The rows of a mapped range read, and its conflict ranges.
#[derive(Debug)]
pub struct MappedResult {
    /// The rows.
    pub rows: MappedRows,
    /// Writes of other transactions to these ranges could have changed the rows.
    pub conflicts: Vec<KeyRange>,
}

impl MappedResult {
    /// Bytes of all rows including the index rows, as FoundationDB counts the cost of a read.
    pub fn byte_len(&self) -> usize {
        self.rows.rows.iter().map(|row| cost(row) - ROW_OVERHEAD).sum()
    }
}

/// Reads the index range, and the second range for each row. `merged` must not show writes of the
/// transaction.
pub fn run(read: &RangeRead, mapper: &[u8], merged: &Merged<'_>, max: &[u8]) -> Result<MappedResult> {
    let bound = |selector: &Selector| {
        if selector.is_plain() { Ok(selector.key.clone()) } else { selector.resolve(merged, max) }
    };
    let (begin, end) = (bound(&read.begin)?, bound(&read.end)?);
    let bytes = read.limits.bytes.map(|bytes| bytes.min(REPLY_BYTES));
    let limits = Limits { rows: read.limits.rows, bytes: bytes.map(|bytes| bytes / INDEX_SHARE) };
    let mut index = read_rows(merged, &begin, end.as_slice().min(max), limits, read.direction)?;
    let mut result = MappedResult { rows: MappedRows::default(), conflicts: Vec::new() };
    if begin < end {
        let mapper = Mapper::parse(mapper)?;
        let mut missing = 0;
        let mut left = bytes.map_or(i64::MAX, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
        for (place, (key, value)) in index.iter().enumerate() {
            if place % ROWS_AT_ONCE == 0 && left <= 0 {
                break;
            }
            let (row, conflict) = match secondary(&mapper, key, value, merged) {
                // The missing data of several rows is fetched together.
                Err(Code::MISSING) if missing + 1 < MISSING_AT_ONCE => {
                    missing += 1;
                    continue;
                }
                Err(_) if missing > 0 => return Err(Code::MISSING),
                row => row?,
            };
            left -= i64::try_from(cost(&row)).unwrap_or(i64::MAX);
            result.rows.rows.push(row);
            result.conflicts.push(conflict);
        }
        if missing > 0 {
            return Err(Code::MISSING);
        }
    }
    index.more |= index.truncate(result.rows.rows.len());
    result.rows.more = index.more;
    let found =
        RangeResult { to_begin: begin.is_empty(), through_end: end == max && !index.more, rows: index };
    result.conflicts.push(read.conflict(&found, max));
    Ok(result)
}

/// Reads the second range of one row, and adds its conflict ranges.
fn secondary(
    mapper: &Mapper,
    key: &[u8],
    value: &[u8],
    merged: &Merged<'_>,
) -> Result<(MappedRow, KeyRange)> {
    let begin = mapper.apply(key, value)?;
    let (end, rows) = if mapper.is_range {
        let end = after_prefix(&begin)?;
        let rows = read_rows(merged, &begin, &end, SECONDARY_LIMITS, Direction::Forward)?;
        (end, rows)
    } else {
        let mut rows = RowSet::default();
        if let Some(value) = merged.get(&begin, false)? {
            rows.push(&begin, &value);
        }
        (key_after(&begin), rows)
    };
    let conflict_end = match rows.iter().next_back() {
        Some((last, _)) if rows.more => key_after(last),
        _ => end.clone(),
    };
    let row = MappedRow {
        key: Bytes::copy_from_slice(key),
        value: Bytes::copy_from_slice(value),
        begin: Bytes::copy_from_slice(&begin),
        end: Bytes::from(end),
        rows,
    };
    Ok((row, (begin, conflict_end)))
}

/// The first key that does not start with `prefix`.
fn after_prefix(prefix: &[u8]) -> Result<Vec<u8>> {
    let len = prefix.iter().rposition(|byte| *byte != 0xff).ok_or(Code::KEY_OUTSIDE_LEGAL_RANGE)?;
    let mut after = prefix[..=len].to_vec();
    after[len] += 1;
    Ok(after)
}

/// The bytes of a row that count towards the byte limit.
fn cost(row: &MappedRow) -> usize {
    let index = ROW_OVERHEAD + row.key.len() + row.value.len();
    index + row.rows.byte_len() + row.rows.len() * ROW_OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_row_counts_its_own_bytes_and_those_of_the_rows_it_brings() {
        let mut rows = RowSet::default();
        rows.push(b"data", b"value");
        let [key, value, begin, end] = [&b"index"[..], b"v", b"data", b"datb"].map(Bytes::from_static);
        let row = MappedRow { key, value, begin, end, rows };
        let rows = MappedRows { rows: vec![row.clone(), row], ..MappedRows::default() };
        let result = MappedResult { rows, conflicts: vec![] };
        assert_eq!(result.byte_len(), 2 * (6 + 9 + ROW_OVERHEAD));
    }
}
