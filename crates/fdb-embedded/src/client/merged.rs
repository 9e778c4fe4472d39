//! The reads of a transaction: the database at its read version, merged with its own writes.

use std::cell::Cell;
use std::cmp::Ordering;
use std::ops::ControlFlow;

use bytes::Bytes;

use super::system::{self, Epoch, Times};
use super::write_map::{KeyWrites, WriteMap};
use crate::error::{Code, Result};
use crate::link::View;
use crate::range_set::{KeyRange, key_after};
use crate::rows::{Direction, FetchHint, RowVisitor};

/// The rows that a read sees: the database's, and possibly the transaction's own writes.
#[derive(Clone, Copy)]
pub struct Merged<'t> {
    /// The database at the read version, or the error of reading there.
    pub view: Result<&'t View>,
    /// The transaction's own writes, if the read sees them.
    pub writes: Option<&'t WriteMap>,
    /// Converts versions to times for synthetic system keys. Without it, those keys read as stored.
    pub epoch: Option<&'t Epoch>,
    /// About how much of a scan the reader will need.
    pub want: FetchHint,
    /// Set when the database was read.
    pub looked: &'t Cell<bool>,
    /// The end of the fetch, if the walk continues beyond the end of the scan.
    pub ahead: Option<&'t [u8]>,
}

/// Called with each key of a walk. The value is `None` for an own write that leaves the key absent,
/// which selectors still count.
pub type WalkVisitor<'v> = &'v mut dyn FnMut(&[u8], Option<&[u8]>) -> ControlFlow<()>;

/// The end of a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WalkEnd {
    /// At the end of the range.
    Completed,
    /// Where the visitor broke.
    Broken,
    /// At a range that is unreadable before the commit: the edge that the walk reached.
    Unreadable(Vec<u8>),
}

impl Merged<'_> {
    /// The value of a key. With `bypass`, returns values whose versionstamp is not known.
    pub fn get(&self, key: &[u8], bypass: bool) -> Result<Option<Bytes>> {
        let Some(writes) = self.writes else { return self.stored(key) };
        if writes.unreadable().contains(key) && !bypass {
            return Err(Code::ACCESSED_UNREADABLE);
        }
        match writes.get(key) {
            Some(own) => Ok(self.own_value(key, own)?.map(Bytes::from)),
            None if writes.cleared().contains(key) => Ok(None),
            None => self.stored(key),
        }
    }

    fn times(&self, epoch: &Epoch) -> Result<Times> {
        Ok(epoch.times(self.view?.version()?, baton::system_now()))
    }

    /// The value without own writes.
    fn stored(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.looked.set(true);
        match (system::synthetic_range(key), self.epoch) {
            (Some(place), Some(epoch)) => Ok(place.get(key, self.times(epoch)?)),
            _ => self.view?.get(key),
        }
    }

    fn own_value(&self, key: &[u8], own: &KeyWrites) -> Result<Option<Vec<u8>>> {
        let stored = if own.is_dependent() { self.stored(key)? } else { None };
        own.value(stored.map(Vec::from))
    }

    /// Notes that the database was read, unless the transaction itself has written at the beginning
    /// or end of all keys.
    pub fn read_edge(&self, direction: Direction, max: &[u8]) -> Result<()> {
        let is_own = self.writes.is_some_and(|writes| match direction {
            Direction::Forward => writes.cleared().iter().next_back().is_some_and(|(_, end)| end >= max),
            Direction::Backward => writes.dependent_parts(b"", b"\0").is_empty(),
        });
        if !is_own {
            self.looked.set(true);
            self.view?;
        }
        Ok(())
    }

    /// Visits the rows of `[begin, end)` until the visitor breaks. Fails with `ACCESSED_UNREADABLE`
    /// at a range that is unreadable before the commit.
    pub fn scan(&self, begin: &[u8], end: &[u8], direction: Direction, visit: RowVisitor<'_>) -> Result<()> {
        let walked = self.walk(begin, end, direction, &mut |key, value| match value {
            Some(value) => visit(key, value),
            None => ControlFlow::Continue(()),
        })?;
        match walked {
            WalkEnd::Unreadable(_) => Err(Code::ACCESSED_UNREADABLE),
            WalkEnd::Completed | WalkEnd::Broken => Ok(()),
        }
    }

    /// Visits the keys of `[begin, end)` until the visitor breaks or an unreadable range begins.
    pub fn walk(
        &self,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        step: WalkVisitor<'_>,
    ) -> Result<WalkEnd> {
        if begin >= end {
            return Ok(WalkEnd::Completed);
        }
        let Some(writes) = self.writes.filter(|writes| !writes.is_empty()) else {
            let outcome = self.scan_base(begin, end, direction, &mut |key, value| step(key, Some(value)))?;
            return Ok(if outcome.is_break() { WalkEnd::Broken } else { WalkEnd::Completed });
        };
        let mut readable = (begin, end);
        let mut unreadable = writes.unreadable().intersecting(begin, end);
        let met = match direction {
            Direction::Forward => unreadable.next().map(|(from, _)| from.max(begin)),
            Direction::Backward => unreadable.next_back().map(|(_, to)| to.min(end)),
        };
        match (met, direction) {
            (Some(met), Direction::Forward) => readable.1 = met,
            (Some(met), Direction::Backward) => readable.0 = met,
            (None, _) => {}
        }
        let outcome = self.walk_readable(writes, readable.0, readable.1, direction, step)?;
        Ok(match met {
            _ if outcome.is_break() => WalkEnd::Broken,
            Some(met) => WalkEnd::Unreadable(met.to_vec()),
            None => WalkEnd::Completed,
        })
    }

    /// Visits rows without own writes: stored ones and synthetic system keys.
    fn scan_base(
        &self,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        visit: RowVisitor<'_>,
    ) -> Result<ControlFlow<()>> {
        self.looked.set(true);
        let Some(epoch) = self.epoch.filter(|_| system::has_synthetic_keys(begin, end)) else {
            return self.scan_stored(begin, end, direction, visit);
        };
        let mut pieces = system::pieces(begin, end);
        if direction == Direction::Backward {
            pieces.reverse();
        }
        for ((begin, end), place) in &pieces {
            let outcome = match place {
                Some(place) => place.scan((begin, end), self.times(epoch)?, direction, visit),
                None => self.scan_stored(begin, end, direction, visit)?,
            };
            if outcome.is_break() {
                return Ok(outcome);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn scan_stored(
        &self,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        visit: RowVisitor<'_>,
    ) -> Result<ControlFlow<()>> {
        self.looked.set(true);
        self.view?.scan(begin, end, direction, (self.want, self.ahead), visit)
    }

    fn walk_readable(
        &self,
        writes: &WriteMap,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        step: WalkVisitor<'_>,
    ) -> Result<ControlFlow<()>> {
        let mut segments = segments(writes, begin, end);
        let far = match direction {
            Direction::Forward => end,
            Direction::Backward => {
                segments.reverse();
                begin
            }
        };
        let mut gaps = 0;
        for ((begin, end), is_cleared) in segments {
            let mut own = writes.range(&begin, &end);
            let mut next_own = move || match direction {
                Direction::Forward => own.next(),
                Direction::Backward => own.next_back(),
            };
            let outcome = if is_cleared {
                merge_rest(next_own(), &mut next_own, step)?
            } else {
                gaps += 1;
                // If the clears are scattered, the gaps between them are fetched together with the
                // cleared ranges.
                let merged = Merged { ahead: (gaps > 1).then_some(far), ..*self };
                merged.merge((&begin, &end), direction, &mut next_own, step)?
            };
            if outcome.is_break() {
                return Ok(outcome);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Merges stored rows with own writes, in a range without clears. The database is not read
    /// before a key that the transaction has not set itself.
    fn merge<'w>(
        &self,
        (begin, end): (&[u8], &[u8]),
        direction: Direction,
        next_own: &mut dyn FnMut() -> Option<(&'w [u8], &'w KeyWrites)>,
        step: WalkVisitor<'_>,
    ) -> Result<ControlFlow<()>> {
        let (mut begin, mut end) = (begin.to_vec(), end.to_vec());
        let mut own = next_own();
        while let Some((key, writes)) = own.filter(|(_, writes)| !writes.is_dependent()) {
            match direction {
                Direction::Forward if key == begin => begin = key_after(key),
                Direction::Backward if key_after(key) == end => end = key.to_vec(),
                _ => break,
            }
            own = next_own();
            if visit_own(key, writes, None, step)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        if begin >= end {
            return Ok(ControlFlow::Continue(()));
        }
        let mut failure = None;
        let outcome = self.scan_base(&begin, &end, direction, &mut |key, value| {
            let merged = merge_row(key, value, direction, &mut own, next_own, step);
            merged.unwrap_or_else(|code| {
                failure = Some(code);
                ControlFlow::Break(())
            })
        })?;
        match failure {
            Some(code) => Err(code),
            None if outcome.is_break() => Ok(outcome),
            None => merge_rest(own, next_own, step),
        }
    }
}

/// Visits own writes up to a stored row, and the row unless an own write replaces it.
fn merge_row<'w>(
    key: &[u8],
    value: &[u8],
    direction: Direction,
    own: &mut Option<(&'w [u8], &'w KeyWrites)>,
    next_own: &mut dyn FnMut() -> Option<(&'w [u8], &'w KeyWrites)>,
    step: WalkVisitor<'_>,
) -> Result<ControlFlow<()>> {
    while let Some((own_key, writes)) = *own {
        let order = match direction {
            Direction::Forward => own_key.cmp(key),
            Direction::Backward => key.cmp(own_key),
        };
        if order == Ordering::Greater {
            break;
        }
        *own = next_own();
        let stored = (order == Ordering::Equal).then(|| value.to_vec());
        let outcome = visit_own(own_key, writes, stored, step)?;
        if outcome.is_break() || order == Ordering::Equal {
            return Ok(outcome);
        }
    }
    Ok(step(key, Some(value)))
}

/// Visits own writes where no row is stored.
fn merge_rest<'w>(
    first: Option<(&'w [u8], &'w KeyWrites)>,
    next_own: &mut dyn FnMut() -> Option<(&'w [u8], &'w KeyWrites)>,
    step: WalkVisitor<'_>,
) -> Result<ControlFlow<()>> {
    let mut own = first;
    while let Some((key, writes)) = own {
        if visit_own(key, writes, None, step)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        own = next_own();
    }
    Ok(ControlFlow::Continue(()))
}

fn visit_own(
    key: &[u8],
    writes: &KeyWrites,
    stored: Option<Vec<u8>>,
    step: WalkVisitor<'_>,
) -> Result<ControlFlow<()>> {
    Ok(step(key, writes.value(stored)?.as_deref()))
}

/// Splits `[begin, end)` at the edges of clears, in key order. Tells for each part whether it is
/// cleared.
fn segments(writes: &WriteMap, begin: &[u8], end: &[u8]) -> Vec<(KeyRange, bool)> {
    let mut segments = Vec::new();
    let mut at = begin;
    for (from, to) in writes.cleared().intersecting(begin, end) {
        let (from, to) = (from.max(begin), to.min(end));
        if at < from {
            segments.push(((at.to_vec(), from.to_vec()), false));
        }
        segments.push(((from.to_vec(), to.to_vec()), true));
        at = to;
    }
    if at < end {
        segments.push(((at.to_vec(), end.to_vec()), false));
    }
    segments
}
