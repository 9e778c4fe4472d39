//! Reads of a transaction: the database at its read version under its own writes.

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::time::SystemTime;

use bytes::Bytes;

use super::system::{self, Epoch, Times};
use super::write_map::{KeyWrites, WriteMap};
use crate::error::{Code, Result};
use crate::link::View;
use crate::range_set::KeyRange;
use crate::rows::{Direction, Visit, Want};

/// What a read sees. Without writes it is the plain snapshot.
#[derive(Clone, Copy)]
pub struct Merged<'t> {
    /// The database at the read version.
    pub view: &'t View,
    /// The transaction's own writes, if the read is to see them.
    pub writes: Option<&'t WriteMap>,
    /// Turns versions into times, for the system keys that are made up.
    pub epoch: &'t Epoch,
    /// About how much of a scan the reader will take.
    pub want: Want,
}

impl Merged<'_> {
    /// The value of one key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let Some(writes) = self.writes else { return self.get_stored(key) };
        if writes.unreadable().contains(key) {
            return Err(Code::ACCESSED_UNREADABLE);
        }
        match writes.get(key) {
            Some(own) => Ok(own.value(|| Ok(self.get_stored(key)?.map(Vec::from)))?.map(Bytes::from)),
            None if writes.cleared().contains(key) => Ok(None),
            None => self.get_stored(key),
        }
    }

    fn times(&self) -> Result<Times> {
        Ok(self.epoch.times(self.view.version()?, SystemTime::now()))
    }

    /// The value without the transaction's writes.
    fn get_stored(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match system::place(key) {
            Some(place) => Ok(place.get(key, self.times()?)),
            None => self.view.get(key),
        }
    }

    /// Visits the rows of `[begin, end)` until the visitor breaks. Fails with `ACCESSED_UNREADABLE` when it gets
    /// to a place whose keys only the commit decides.
    pub fn scan(&self, begin: &[u8], end: &[u8], direction: Direction, visit: Visit<'_>) -> Result<()> {
        if begin >= end {
            return Ok(());
        }
        let Some(writes) = self.writes.filter(|writes| !writes.is_empty()) else {
            return self.scan_base(begin, end, direction, visit).map(drop);
        };
        let mut readable = (begin, end);
        let mut unreadable = writes.unreadable().intersecting(begin, end);
        match direction {
            Direction::Forward => {
                if let Some((from, _)) = unreadable.next() {
                    readable.1 = from.max(begin);
                }
            }
            Direction::Backward => {
                if let Some((_, to)) = unreadable.next_back() {
                    readable.0 = to.min(end);
                }
            }
        }
        let outcome = self.scan_readable(writes, readable.0, readable.1, direction, visit)?;
        if outcome.is_continue() && readable != (begin, end) {
            return Err(Code::ACCESSED_UNREADABLE);
        }
        Ok(())
    }

    /// Visits rows without the transaction's writes: stored ones, and system keys that are made up.
    fn scan_base(
        &self,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<ControlFlow<()>> {
        if !system::is_touched(begin, end) {
            return self.scan_stored(begin, end, direction, visit);
        }
        let mut pieces = system::pieces(begin, end);
        if direction == Direction::Backward {
            pieces.reverse();
        }
        for ((begin, end), place) in &pieces {
            let outcome = match place {
                Some(place) => place.scan((begin, end), self.times()?, direction, visit),
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
        visit: Visit<'_>,
    ) -> Result<ControlFlow<()>> {
        self.view.scan(begin, end, direction, self.want, visit)
    }

    fn scan_readable(
        &self,
        writes: &WriteMap,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<ControlFlow<()>> {
        let mut segments = segments(writes, begin, end);
        if direction == Direction::Backward {
            segments.reverse();
        }
        for ((begin, end), is_cleared) in segments {
            let mut own = writes.range(&begin, &end);
            let mut next_own = move || match direction {
                Direction::Forward => own.next(),
                Direction::Backward => own.next_back(),
            };
            let outcome = if is_cleared {
                merge_rest(next_own(), &mut next_own, visit)
            } else {
                self.merge(&begin, &end, direction, &mut next_own, visit)?
            };
            if outcome.is_break() {
                return Ok(outcome);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Merges stored rows and own writes of a range in which nothing is cleared.
    fn merge<'w>(
        &self,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        next_own: &mut dyn FnMut() -> Option<(&'w [u8], &'w KeyWrites)>,
        visit: Visit<'_>,
    ) -> Result<ControlFlow<()>> {
        let mut own = next_own();
        let outcome = self.scan_base(begin, end, direction, &mut |key, value| {
            while let Some((own_key, writes)) = own {
                let order = match direction {
                    Direction::Forward => own_key.cmp(key),
                    Direction::Backward => key.cmp(own_key),
                };
                if order == Ordering::Greater {
                    break;
                }
                own = next_own();
                let stored = (order == Ordering::Equal).then(|| value.to_vec());
                visit_own(own_key, writes, stored, visit)?;
                if order == Ordering::Equal {
                    return ControlFlow::Continue(());
                }
            }
            visit(key, value)
        })?;
        if outcome.is_break() {
            return Ok(outcome);
        }
        Ok(merge_rest(own, next_own, visit))
    }
}

/// Visits own writes under which nothing is stored.
fn merge_rest<'w>(
    first: Option<(&'w [u8], &'w KeyWrites)>,
    next_own: &mut dyn FnMut() -> Option<(&'w [u8], &'w KeyWrites)>,
    visit: Visit<'_>,
) -> ControlFlow<()> {
    let mut own = first;
    while let Some((key, writes)) = own {
        visit_own(key, writes, None, visit)?;
        own = next_own();
    }
    ControlFlow::Continue(())
}

fn visit_own(key: &[u8], writes: &KeyWrites, stored: Option<Vec<u8>>, visit: Visit<'_>) -> ControlFlow<()> {
    let Ok::<_, std::convert::Infallible>(value) = writes.value(|| Ok(stored));
    match value {
        Some(value) => visit(key, &value),
        None => ControlFlow::Continue(()),
    }
}

/// `[begin, end)` cut where clears begin and end, in key order, and whether each piece is cleared.
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
