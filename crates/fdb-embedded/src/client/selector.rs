//! Key selectors: a key named by its place relative to another.

use std::ops::ControlFlow;

use super::merged::{Merged, Walked};
use crate::error::Result;
use crate::range_set::key_after;
use crate::rows::{Direction, FetchHint};

/// "Find the last key below `key` (or equal, if `or_equal`), then go `offset` keys forward."
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// The key that the search starts at. After [`Selector::new`], `or_equal` is already worked into it.
    pub key: Vec<u8>,
    /// Keys to move; 1 is the first key at or after `key`, 0 the last before it.
    pub offset: i32,
    /// The last byte of `key` stands for "or equal".
    is_widened: bool,
    or_equal: bool,
}

/// How far a selector leads. As in FoundationDB it counts every key that the transaction has written, also one that an
/// operation of its own leaves absent; so a place need not be where a row is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Rows are read from here, or up to here.
    pub key: Vec<u8>,
    /// 1 when the selector has led somewhere; else what was left of it when it met what cannot be read.
    pub offset: i64,
    /// As `offset`, but what was left also when there were no more keys.
    pub left: i64,
    /// It ran out of keys at the beginning.
    pub before_begin: bool,
    /// It ran out of keys at the end.
    pub after_end: bool,
}

impl Place {
    /// The selector met what cannot be read.
    pub fn is_stuck(&self) -> bool {
        self.offset != 1
    }
}

impl Selector {
    /// A selector as the C API gives it. A key over the length limit is cut one byte beyond the limit, which
    /// leaves it between the same stored keys.
    #[must_use]
    pub fn new(key: &[u8], or_equal: bool, offset: i32) -> Selector {
        let key = crate::limits::clamp_bound(key);
        let widened = key_after(key);
        // One that has been cut is between the same keys with another byte.
        let is_widened = or_equal && crate::limits::clamp_bound(&widened).len() == widened.len();
        Selector { key: if is_widened { widened } else { key.to_vec() }, offset, is_widened, or_equal }
    }

    /// "At or after `key`".
    pub fn at(key: &[u8]) -> Selector {
        Selector { key: key.to_vec(), offset: 1, is_widened: false, or_equal: false }
    }

    /// The selector that names the key after the one that this names.
    pub(super) fn next(&self) -> Selector {
        Selector { offset: self.offset + 1, ..self.clone() }
    }

    /// The key with "or equal" worked in, even where it has been cut: so FoundationDB reckons what a single key conflicts with.
    pub(super) fn uncut_key(&self) -> Vec<u8> {
        if self.or_equal && !self.is_widened { key_after(&self.key) } else { self.key.clone() }
    }

    /// The key that was given.
    #[must_use]
    pub fn given_key(&self) -> &[u8] {
        &self.key[..self.key.len() - usize::from(self.is_widened)]
    }

    /// A bound of a range needs no search when it means "at or after this key".
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.offset == 1
    }

    /// Follows the selector among the keys below `max`.
    pub fn place(&self, merged: &Merged<'_>, max: &[u8]) -> Result<Place> {
        let offset = i64::from(self.offset);
        let mut place =
            Place { key: self.key.clone(), offset, left: offset, before_begin: false, after_end: false };
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
            merged.look_at_edge(direction, max)?;
        }
        let mut left = offset;
        let walked = merged.walk(begin, end, direction, &mut |key, _| {
            if !is_forward && key.is_empty() {
                // It comes to the same: the beginning.
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
            Walked::Unreadable(at) => place.key = at,
            Walked::Through | Walked::Broken => {
                place.offset = 1;
                place.after_end = is_forward;
                place.before_begin = !is_forward;
                place.key = if is_forward { max.to_vec() } else { Vec::new() };
            }
        }
        Ok(place)
    }
}
