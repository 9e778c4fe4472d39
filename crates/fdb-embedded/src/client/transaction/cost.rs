//! The cost of a transaction as FoundationDB counts it for throttling: bytes read and written, in
//! whole pages.
//!
//! A read counts when its data has arrived, and a write when it is committed: setting a key twice
//! counts once. Repeated reads count each time; FoundationDB's client would cache them.

use std::sync::Arc;

use super::{Transaction, TransactionState};
use crate::client::write_map::{STAMP_OFFSET_LEN, Shape, ShapeKind};
use crate::engine::mutation::Mutation;
use crate::future::{Future, Output};
use crate::range_set::key_after;

/// Bytes of a page.
const PAGE: usize = 4096;
/// The cost of writing a page, in pages read.
const WRITE_FACTOR: usize = 4;

impl Transaction {
    /// Int64 future: the cost of the transaction so far, in bytes.
    pub fn get_total_cost(&self) -> Arc<Future> {
        let state = self.state.lock();
        Future::ready(state.check_deferred().map(|()| {
            let cost = state.read_cost + state.write_cost();
            Output::Int64(i64::try_from(cost).unwrap_or(i64::MAX))
        }))
    }
}

impl TransactionState {
    /// Counts a read of the database that found `bytes` bytes of keys and values.
    pub(super) fn count_read(&mut self, bytes: usize) {
        self.read_cost += pages(bytes);
    }

    /// The cost of the writes: counted at once without read-your-writes, otherwise at the commit.
    fn write_cost(&self) -> usize {
        self.sent_cost.unwrap_or_else(|| self.early_cost())
    }

    fn early_cost(&self) -> usize {
        let is_plain = self.options.ryw_disabled;
        self.writes.early().iter().map(|mutation| change(mutation, is_plain)).sum()
    }

    /// The cost of all writes, which are about to be sent.
    pub(super) fn full_write_cost(&self) -> usize {
        let mut sum = self.early_cost();
        self.writes.each_sent_clear(&mut |_, _| sum += PAGE);
        sum + self.writes.singles().map(single).sum::<usize>()
    }
}

/// Rounds up to whole pages; nothing counts as one page.
fn pages(bytes: usize) -> usize {
    bytes.div_ceil(PAGE).max(1) * PAGE
}

/// The cost of a mutation. A clear costs one page, but a clear of a single key costs nothing
/// without read-your-writes.
fn change(mutation: &Mutation, is_plain: bool) -> usize {
    match (Shape::of(mutation), mutation) {
        (Some(shape), _) => single(shape),
        (None, Mutation::ClearRange { begin, end }) if is_plain && *end == key_after(begin) => 0,
        (None, _) => PAGE,
    }
}

/// The cost of changing one key.
fn single(shape: Shape) -> usize {
    let bytes = match shape.kind {
        ShapeKind::Set => shape.key + shape.value,
        ShapeKind::Atomic | ShapeKind::StampedValue => shape.key,
        ShapeKind::StampedKey => shape.key + STAMP_OFFSET_LEN,
    };
    WRITE_FACTOR * pages(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_rounded_up_to_pages() {
        assert_eq!([0, 1, 4096, 4097].map(pages), [4096, 4096, 4096, 8192]);
    }
}
