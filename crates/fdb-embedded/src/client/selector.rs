//! Key selectors: a key named by its place relative to another.

use std::ops::ControlFlow;

use super::merged::Merged;
use crate::error::Result;
use crate::range_set::{KeyRange, key_after};
use crate::rows::{Direction, Want};

/// "Find the last key below `key` (or equal, if `or_equal`), then go `offset` keys forward."
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// The key that the search starts at. After [`Selector::new`], `or_equal` is already worked into it.
    pub key: Vec<u8>,
    /// Keys to move; 1 is the first key at or after `key`, 0 the last before it.
    pub offset: i32,
}

impl Selector {
    /// A selector as the C API gives it. A key over the length limit is cut one byte beyond the limit, which
    /// leaves it between the same stored keys.
    #[must_use]
    pub fn new(key: &[u8], or_equal: bool, offset: i32) -> Selector {
        let limit = crate::limits::key_limit(key) + 1;
        let key = &key[..key.len().min(limit)];
        Selector { key: if or_equal { key_after(key) } else { key.to_vec() }, offset }
    }

    /// A bound of a range needs no search when it means "at or after this key".
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.offset == 1
    }

    /// The key that the selector names, clamped to "" and `max`.
    pub fn resolve(&self, merged: &Merged<'_>, max: &[u8]) -> Result<Vec<u8>> {
        let (direction, begin, end, clamped) = if self.offset >= 1 {
            (Direction::Forward, self.key.as_slice(), max, max)
        } else {
            (Direction::Backward, &[][..], self.key.as_slice().min(max), &[][..])
        };
        let merged = Merged { want: Want::rows(self.offset.unsigned_abs() as usize + 1), ..*merged };
        let mut left = i64::from(self.offset).max(1 - i64::from(self.offset));
        let mut found = None;
        merged.scan(begin, end, direction, &mut |key, _| {
            left -= 1;
            if left > 0 {
                return ControlFlow::Continue(());
            }
            found = Some(key.to_vec());
            ControlFlow::Break(())
        })?;
        Ok(found.unwrap_or_else(|| clamped.to_vec()))
    }

    /// What a read of the resolved key depended on.
    #[must_use]
    pub fn conflict_range(&self, resolved: &[u8]) -> KeyRange {
        if self.offset >= 1 {
            (self.key.clone(), key_after(resolved))
        } else {
            (resolved.to_vec(), self.key.clone())
        }
    }
}
