//! What a transaction has cost, as FoundationDB counts it for throttling: bytes read and written, in whole pages.
//!
//! A read counts when its data is there, a write when it is on its way to the commit: a key that is set twice counts once.
//! What is read again counts again; FoundationDB's client would have kept it.

use std::sync::Arc;

use super::{State, Transaction};
use crate::client::write_map::{Kind, PLACE_LEN, Shape};
use crate::engine::mutation::Mutation;
use crate::future::{Future, Output};
use crate::range_set::key_after;

/// Bytes of a page.
const PAGE: usize = 4096;
/// What a page written costs, in pages read.
const WRITE_FACTOR: usize = 4;

impl Transaction {
    /// Int64 future: what the transaction has cost so far, bytes.
    pub fn get_total_cost(&self) -> Arc<Future> {
        let state = self.state.lock();
        Future::ready(state.check_deferred().map(|()| {
            let cost = state.read_cost + state.write_cost();
            Output::Int64(i64::try_from(cost).unwrap_or(i64::MAX))
        }))
    }
}

impl State {
    /// Counts a read of the database that found so many bytes of keys and values.
    pub(super) fn count_read(&mut self, bytes: usize) {
        self.read_cost += pages(bytes);
    }

    /// What has been written costs when it is sent: in a transaction that does not read its own writes at once.
    fn write_cost(&self) -> usize {
        self.sent_cost.unwrap_or_else(|| self.early_cost())
    }

    fn early_cost(&self) -> usize {
        let is_plain = self.options.ryw_disabled;
        self.writes.early().iter().map(|mutation| change(mutation, is_plain)).sum()
    }

    /// What all of the writes cost, which are about to be sent.
    pub(super) fn full_write_cost(&self) -> usize {
        let mut sum = self.early_cost();
        self.writes.each_sent_clear(&mut |_, _| sum += PAGE);
        sum + self.writes.singles().map(single).sum::<usize>()
    }
}

/// A part of a page costs all of it, and nothing costs a page.
fn pages(bytes: usize) -> usize {
    bytes.div_ceil(PAGE).max(1) * PAGE
}

/// What a change costs, a clear of any size a page; but one of a single key costs nothing where it is sent as it is called.
fn change(mutation: &Mutation, is_plain: bool) -> usize {
    match (Shape::of(mutation), mutation) {
        (Some(shape), _) => single(shape),
        (None, Mutation::ClearRange { begin, end }) if is_plain && *end == key_after(begin) => 0,
        (None, _) => PAGE,
    }
}

/// What a change of one key costs.
fn single(shape: Shape) -> usize {
    let bytes = match shape.kind {
        Kind::Set => shape.key + shape.value,
        Kind::Atomic | Kind::StampedValue => shape.key,
        Kind::StampedKey => shape.key + PLACE_LEN,
    };
    WRITE_FACTOR * pages(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_come_in_pages() {
        assert_eq!([0, 1, 4096, 4097].map(pages), [4096, 4096, 4096, 8192]);
    }
}
