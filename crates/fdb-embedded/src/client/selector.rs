//! Key selectors: a key given by its position relative to another.

use std::ops::ControlFlow;

use super::merged::{Merged, WalkEnd};
use crate::error::Result;
use crate::range_set::key_after;
use crate::rows::{Direction, FetchHint};

/// "Find the last key below `key` (or equal, if `or_equal`), then go `offset` keys forward."
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// The key at which the search starts, with `or_equal` included.
    pub key: Vec<u8>,
    /// The number of keys to move; 1 is the first key at or after `key`, 0 the last one before.
    pub offset: i32,
    /// The last byte of `key` was added for "or equal".
    is_widened: bool,
    or_equal: bool,
}

/// The result of following a selector. As in FoundationDB, every key that the transaction has
/// written counts, even if its operation leaves it absent, so the position may not be a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectorPosition {
    /// The bound for reading rows.
    pub key: Vec<u8>,
    /// 1 if the selector was resolved; otherwise the rest of its offset when it met an unreadable
    /// range.
    pub offset: i64,
    /// Like `offset`, but also the rest when there were no more keys.
    pub left: i64,
    /// It has reached the beginning of all keys.
    pub before_begin: bool,
    /// It has reached the end of all keys.
    pub after_end: bool,
}

impl SelectorPosition {
    /// True if the selector met an unreadable range.
    pub fn is_stuck(&self) -> bool {
        self.offset != 1
    }
}

impl Selector {
    /// A selector with the C API's arguments. A key over the length limit is cut one byte beyond
    /// the limit, which does not change its order relative to stored keys.
    #[must_use]
    pub fn new(key: &[u8], or_equal: bool, offset: i32) -> Selector {
        let key = crate::limits::clamp_bound(key);
        let widened = key_after(key);
        // A key that was cut needs no additional byte.
        let is_widened = or_equal && crate::limits::clamp_bound(&widened).len() == widened.len();
        Selector { key: if is_widened { widened } else { key.to_vec() }, offset, is_widened, or_equal }
    }

    /// "At or after `key`".
    pub fn at(key: &[u8]) -> Selector {
        Selector { key: key.to_vec(), offset: 1, is_widened: false, or_equal: false }
    }

    /// The selector for the key after the one that this selects.
    pub(super) fn next(&self) -> Selector {
        Selector { offset: self.offset + 1, ..self.clone() }
    }

    /// The key with "or equal" included, even if it was cut: FoundationDB uses it for the conflict
    /// range of a single key.
    pub(super) fn uncut_key(&self) -> Vec<u8> {
        if self.or_equal && !self.is_widened { key_after(&self.key) } else { self.key.clone() }
    }

    /// The key of the arguments.
    #[must_use]
    pub fn given_key(&self) -> &[u8] {
        &self.key[..self.key.len() - usize::from(self.is_widened)]
    }

    /// True if the selector means "at or after this key", which needs no search.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.offset == 1
    }

    /// Follows the selector among the keys below `max`.
    pub fn position(&self, merged: &Merged<'_>, max: &[u8]) -> Result<SelectorPosition> {
        let offset = i64::from(self.offset);
        let mut place = SelectorPosition {
            key: self.key.clone(),
            offset,
            left: offset,
            before_begin: false,
            after_end: false,
        };
        if self.is_plain() {
            return Ok(place);
        }
        let is_forward = offset > 1;
        let (direction, begin, end) = if is_forward {
            (Direction::Forward, self.key.as_slice(), max)
        } else {
            (Direction::Backward, &[][..], self.key.as_slice().min(max))
        };
        let merged = Merged { want: FetchHint::rows(self.offset.unsigned_abs() as usize + 1), ..*merged };
        if begin >= end {
            merged.read_edge(direction, max)?;
        }
        let mut left = offset;
        let walked = merged.walk(begin, end, direction, &mut |key, _| {
            if !is_forward && key.is_empty() {
                // Both cases end at the beginning.
                return ControlFlow::Break(());
            }
            left += if is_forward { -1 } else { 1 };
            if left != 1 {
                return ControlFlow::Continue(());
            }
            place.key = if is_forward { key_after(key) } else { key.to_vec() };
            ControlFlow::Break(())
        })?;
        place.left = left;
        place.offset = left;
        match walked {
            _ if left == 1 => {}
            WalkEnd::Unreadable(at) => place.key = at,
            WalkEnd::Completed | WalkEnd::Broken => {
                place.offset = 1;
                place.after_end = is_forward;
                place.before_begin = !is_forward;
                place.key = if is_forward { max.to_vec() } else { Vec::new() };
            }
        }
        Ok(place)
    }
}
