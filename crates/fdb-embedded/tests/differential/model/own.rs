//! What a transaction has written: the plain list, and what it comes to for a piece of the key space.

use super::Range;
use super::atomic;
use crate::program::Bytes;

/// Code of a plain set in the operations of a key.
pub const SET: u32 = 0;
pub const STAMPED_KEY: u32 = 14;
pub const STAMPED_VALUE: u32 = 15;

/// One entry of the list.
#[derive(Debug, Clone)]
pub enum Write {
    Op {
        code: u32,
        key: Bytes,
        operand: Bytes,
        conflict: bool,
    },
    Clear {
        range: Range,
        conflict: bool,
    },
    Conflict(Range),
    /// Where a key may come to lie whose versionstamp only the commit gives. What was written there before is
    /// on its way already.
    Unreadable(Range),
}

/// What the commit sends, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Clear(Range),
    Op { code: u32, key: Bytes, operand: Bytes },
}

impl Change {
    /// What it adds to the size of a commit.
    pub fn size(&self) -> i64 {
        44 + match self {
            Change::Clear(range) => range.size(),
            Change::Op { key, operand, .. } => i64::try_from(key.len() + operand.len()).unwrap(),
        }
    }
}

/// What a commit sends: changes in order, and the ranges that they write.
#[derive(Debug, Clone, Default)]
pub struct Sent {
    pub changes: Vec<Change>,
    pub writes: Vec<Range>,
}

impl Sent {
    pub fn append(&mut self, other: &mut Sent) {
        self.changes.append(&mut other.changes);
        self.writes.append(&mut other.writes);
    }
}

/// What the list comes to for one key, or a range of keys that it treats alike.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    pub cleared: bool,
    pub unreadable: bool,
    pub conflict: bool,
    /// Operations since the last clear.
    pub ops: Vec<(u32, Bytes)>,
}

impl Cell {
    pub fn is_operation(&self) -> bool {
        !self.ops.is_empty()
    }

    /// Does nothing in the database matter for what is here?
    pub fn is_independent(&self) -> bool {
        self.cleared
            || self.ops.first().is_some_and(|(code, _)| matches!(*code, SET | STAMPED_KEY | STAMPED_VALUE))
    }

    /// Could another transaction's write here change what this one saw?
    pub fn is_spoilable(&self) -> bool {
        if self.is_operation() { !self.is_independent() } else { !self.cleared }
    }

    /// The value over the stored one. Fails as FoundationDB does where an operation would need a value that only
    /// the commit gives.
    pub fn value(&self, stored: Option<&Bytes>) -> Result<Option<Bytes>, i32> {
        let mut value = if self.cleared { None } else { stored.cloned() };
        let mut stamped = false;
        for (code, operand) in &self.ops {
            match *code {
                SET => (value, stamped) = (Some(operand.clone()), false),
                STAMPED_KEY | STAMPED_VALUE => (value, stamped) = (Some(operand.clone()), true),
                _ if stamped => return Err(1000),
                code => value = atomic::apply(code, value.as_deref(), operand),
            }
        }
        Ok(value)
    }
}

/// Codes of operations that may be put together only where their operands are equally long.
const NOT_ASSOCIATIVE: &[u32] = &[2, 7, 8, 12, 13, STAMPED_KEY, STAMPED_VALUE, 18, 20];

impl Cell {
    /// The operations as they are sent, merged if possible.
    fn sent(&self, at: &Range) -> Vec<Change> {
        let mut stack: Vec<(u32, Option<Bytes>)> = Vec::new();
        for (code, operand) in &self.ops {
            let independent = matches!(*code, SET | STAMPED_KEY | STAMPED_VALUE);
            let mut last = stack.last().cloned();
            if last.is_none() && self.cleared && !independent {
                last = Some((SET, None));
                stack.push((SET, None));
            }
            let together = match last {
                _ if self.unreadable => None,
                Some((SET, old)) if !independent => {
                    Some((SET, atomic::apply(*code, old.as_deref(), operand)))
                }
                Some((before, Some(old))) if before == *code && *code != 20 => {
                    let may = !NOT_ASSOCIATIVE.contains(code) || old.len() == operand.len();
                    may.then(|| (*code, atomic::apply(*code, Some(&old), operand)))
                }
                _ => None,
            };
            if together.is_some() {
                stack.pop();
            }
            stack.push(together.unwrap_or_else(|| (*code, Some(operand.clone()))));
        }
        let change = |(code, operand): (u32, Option<Bytes>)| match operand {
            Some(operand) => Change::Op { code, key: at.begin.clone(), operand },
            None => Change::Clear(Range::key(&at.begin)),
        };
        stack.into_iter().map(change).collect()
    }
}

#[derive(Debug, Clone, Default)]
pub struct Own {
    pub list: Vec<Write>,
}

impl Own {
    /// The cell that begins at `key`.
    pub fn cell(&self, key: &[u8]) -> Cell {
        let mut cell = Cell::default();
        for write in &self.list {
            match write {
                Write::Op { code, key: at, operand, conflict } if at == key => {
                    let stamped = matches!(*code, STAMPED_KEY | STAMPED_VALUE);
                    // What has become unreadable stays so; then nothing may be forgotten.
                    if !cell.unreadable && matches!(*code, SET | STAMPED_VALUE) {
                        cell.ops.clear();
                    }
                    cell.ops.push((*code, operand.clone()));
                    cell.unreadable |= stamped;
                    cell.conflict |= conflict;
                }
                Write::Clear { range, conflict } if range.contains(key) => {
                    let conflict = cell.conflict || *conflict;
                    cell = Cell { cleared: true, conflict, ..Cell::default() };
                }
                Write::Conflict(range) if range.contains(key) => cell.conflict = true,
                Write::Unreadable(range) if range.contains(key) => {
                    cell = Cell { unreadable: true, ..Cell::default() };
                }
                _ => {}
            }
        }
        cell
    }

    /// Every key at which a cell may begin or end.
    pub fn bounds(&self) -> Vec<Bytes> {
        let mut bounds = Vec::new();
        for write in &self.list {
            match write {
                Write::Op { key, .. } => bounds.extend([key.clone(), [key, &[0][..]].concat()]),
                Write::Clear { range, .. } | Write::Conflict(range) | Write::Unreadable(range) => {
                    bounds.extend([range.begin.clone(), range.end.clone()]);
                }
            }
        }
        bounds
    }

    /// What a commit sends of a range.
    pub fn changes(&self, within: &Range) -> Sent {
        let mut bounds = self.bounds();
        bounds.extend([within.begin.clone(), within.end.clone()]);
        bounds.retain(|key| within.begin <= *key && *key <= within.end);
        bounds.sort();
        bounds.dedup();
        let (mut clears, mut ops, mut conflicts) = (Vec::new(), Vec::new(), Vec::new());
        for pair in bounds.windows(2) {
            let range = Range { begin: pair[0].clone(), end: pair[1].clone() };
            let cell = self.cell(&range.begin);
            if cell.conflict {
                conflicts.push(range.clone());
            }
            if cell.cleared && !cell.is_operation() {
                clears.push(range.clone());
            }
            ops.extend(cell.sent(&range));
        }
        let clears = merged(&clears).into_iter().map(Change::Clear);
        Sent { changes: clears.chain(ops).collect(), writes: merged(&conflicts) }
    }

    /// What a commit sends when nothing is put together.
    pub fn plain(&self) -> Sent {
        let mut sent = Sent::default();
        for write in &self.list {
            match write.clone() {
                Write::Op { code, key, operand, conflict } => {
                    sent.writes.extend(conflict.then(|| Range::key(&key)));
                    sent.changes.push(Change::Op { code, key, operand });
                }
                Write::Clear { range, conflict } => {
                    sent.writes.extend(conflict.then(|| range.clone()));
                    sent.changes.push(Change::Clear(range));
                }
                Write::Conflict(range) => sent.writes.push(range),
                Write::Unreadable(_) => {}
            }
        }
        sent
    }
}

/// Ranges in order. Ranges that touch are merged.
pub fn merged(ranges: &[Range]) -> Vec<Range> {
    let mut sorted = ranges.to_vec();
    sorted.sort_by(|a, b| a.begin.cmp(&b.begin));
    let mut merged: Vec<Range> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.begin <= last.end => last.end = last.end.clone().max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}
