//! Reading special keys.

use std::ops::Range;

use bytes::Bytes;

use super::modules::{self, PARTS, Part, PartKind};
use super::{Facts, Rows, SPACE_BEGIN, conflicts, database, tracing};
use crate::client::address;
use crate::client::range::RangeRead;
use crate::client::selector::Selector;
use crate::error::{Code, Result};
use crate::range_set::key_after;
use crate::rows::Direction;
use crate::rows::RowSet;

/// Bytes that a row counts for a byte limit, in addition to its key and value.
const ROW_OVERHEAD: usize = 8;

/// True if a read from `begin` to `end` may show conflict ranges of reads that are in progress.
pub fn shows_reads(begin: &[u8], end: &[u8]) -> bool {
    let near = |keys: Range<Vec<u8>>| begin < keys.end.as_slice() && keys.start.as_slice() <= end;
    PARTS.iter().any(|part| part.kind == PartKind::ReadConflicts && near(part.keys()))
}

/// The value of one special key.
pub fn get(facts: &Facts<'_>, key: &[u8]) -> Result<Option<Bytes>> {
    if key == SPACE_BEGIN {
        return Ok(None);
    }
    let end = key_after(key);
    modules::boundary(key, &end, facts.relaxed)?;
    let rows = rows(facts, &(key.to_vec()..end))?;
    Ok(rows.get(key).map(|value| Bytes::copy_from_slice(value)))
}

/// The rows of a range of special keys.
pub fn range(facts: &Facts<'_>, read: &RangeRead) -> Result<RowSet> {
    if read.is_empty() {
        return Ok(RowSet::default());
    }
    let boundary = modules::boundary(&read.begin.key, &read.end.key, facts.relaxed)?;
    let is_plain = read.begin.is_plain() && read.end.is_plain();
    let wanted = if is_plain { read.begin.key.clone()..read.end.key.clone() } else { boundary.clone() };
    let rows = rows(facts, &wanted)?;
    let (begin, end) = (resolve(&read.begin, &rows, &boundary), resolve(&read.end, &rows, &boundary));
    if begin >= end {
        return Ok(RowSet::default());
    }
    let mut found = rows.range(begin..end);
    let mut result = RowSet::default();
    loop {
        let row = match read.direction {
            Direction::Forward => found.next(),
            Direction::Backward => found.next_back(),
        };
        let Some((key, value)) = row else { return Ok(result) };
        result.push(key, value);
        let bytes = result.byte_len() + result.len() * ROW_OVERHEAD;
        result.more = read.limits.rows.is_some_and(|limit| result.len() >= limit)
            || read.limits.bytes.is_some_and(|limit| bytes >= limit);
        if result.more {
            return Ok(result);
        }
    }
}

/// Resolves a selector among `rows`; outside them, to a bound of the module.
fn resolve(selector: &Selector, rows: &Rows, boundary: &Range<Vec<u8>>) -> Vec<u8> {
    if selector.is_plain() {
        return selector.key.clone();
    }
    let steps = |offset: i64| usize::try_from(offset).unwrap_or(usize::MAX);
    let found = if selector.offset > 1 {
        rows.range(selector.key.clone()..).nth(steps(i64::from(selector.offset) - 1))
    } else {
        rows.range(..selector.key.clone()).nth_back(steps(-i64::from(selector.offset)))
    };
    let clamped = if selector.offset > 1 { &boundary.end } else { &boundary.start };
    found.map_or(clamped, |(key, _)| key).clone()
}

/// All rows of `keys`.
fn rows(facts: &Facts<'_>, keys: &Range<Vec<u8>>) -> Result<Rows> {
    let mut rows = Rows::new();
    for part in PARTS {
        let held = part.keys();
        if held.start < keys.end && keys.start < held.end {
            rows.append(&mut part_rows(facts, part)?);
        }
    }
    rows.retain(|key, _| keys.contains(key));
    Ok(rows)
}

fn part_rows(facts: &Facts<'_>, part: &Part) -> Result<Rows> {
    let begin = part.keys().start;
    let one = |value: Vec<u8>| Rows::from([(begin.clone(), value)]);
    let below = |name: &str, value: Vec<u8>| Rows::from([([&begin, name.as_bytes()].concat(), value)]);
    Ok(match part.kind {
        PartKind::ConflictingKeys => conflicts::rows(&begin, &facts.conflicting),
        PartKind::ReadConflicts => conflicts::rows(&begin, facts.reads.as_ref().map_err(|code| *code)?),
        PartKind::WriteConflicts => conflicts::rows(&begin, &facts.writes),
        PartKind::ErrorMessage => facts.session.error_message().map(one).unwrap_or_default(),
        PartKind::Status => one(database::status(facts.database)),
        PartKind::ClusterFilePath => one(facts.database.url().as_bytes().to_vec()),
        PartKind::ConnectionString => one(address::CONNECTION_STRING.as_bytes().to_vec()),
        PartKind::ClusterId => one(facts.database.cluster_id().into_bytes()),
        PartKind::Coordinators => database::coordinators(&begin),
        PartKind::AutoCoordinators => one(address::ADDRESS.to_bytes().to_vec()),
        PartKind::ProcessClass => below(address::ADDRESS_TEXT, b"unset".to_vec()),
        PartKind::ProcessClassSource => below(address::ADDRESS_TEXT, b"command_line".to_vec()),
        PartKind::Options => facts.session.options(&begin),
        PartKind::Tracing => tracing::rows(&begin, facts.session.trace()),
        PartKind::MinCommitVersion => facts.session.min_commit_version().map(one).unwrap_or_default(),
        PartKind::Absent => Rows::new(),
        PartKind::Failing => return Err(Code::SPECIAL_KEYS_API_FAILURE),
    })
}
