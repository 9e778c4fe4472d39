//! What a transaction has cost, as FoundationDB counts it for throttling: bytes read and written, in whole pages.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::future::{Future, Output};

/// Bytes of a page.
const PAGE: usize = 4096;
/// What a page written costs, in pages read.
const WRITE_FACTOR: usize = 4;

/// The cost of one transaction so far, bytes.
#[derive(Default)]
pub(super) struct Cost {
    spent: AtomicI64,
    /// Of mutations that are not committed yet. A key that is written twice counts twice.
    buffered: AtomicI64,
}

/// A mutation, by what it costs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mutation {
    /// A value or an atomic operation of so many bytes.
    Set { bytes: usize },
    /// A clear of any size.
    Clear,
}

/// A part of a page costs all of it, and nothing costs a page.
fn pages(bytes: usize) -> usize {
    bytes.div_ceil(PAGE).max(1) * PAGE
}

fn add(to: &AtomicI64, bytes: usize) {
    to.fetch_add(i64::try_from(bytes).unwrap_or(i64::MAX), Ordering::Relaxed);
}

impl Cost {
    /// Counts what a read has found.
    pub(super) fn add_read(&self, future: &Future) {
        let Ok(output) = future.result() else { return };
        let bytes = match &*output {
            Output::Value(value) => value.as_ref().map_or(0, bytes::Bytes::len),
            Output::Rows(rows) => rows.byte_len(),
            Output::MappedRows(mapped) => mapped.rows.iter().map(|row| row.rows.byte_len()).sum(),
            _ => return,
        };
        add(&self.spent, pages(bytes));
    }

    /// Counts a mutation, for when it is committed.
    pub(super) fn add_mutation(&self, mutation: Mutation) {
        let bytes = match mutation {
            Mutation::Set { bytes } => WRITE_FACTOR * pages(bytes),
            Mutation::Clear => PAGE,
        };
        add(&self.buffered, bytes);
    }

    /// Are there mutations that have not been committed?
    pub(super) fn has_mutations(&self) -> bool {
        self.buffered.load(Ordering::Relaxed) > 0
    }

    /// The mutations so far are being committed.
    pub(super) fn spend_mutations(&self) {
        let buffered = self.buffered.swap(0, Ordering::Relaxed);
        self.spent.fetch_add(buffered, Ordering::Relaxed);
    }

    /// The transaction begins anew.
    pub(super) fn clear(&self) {
        self.spent.store(0, Ordering::Relaxed);
        self.buffered.store(0, Ordering::Relaxed);
    }

    /// What has been spent.
    pub(super) fn total(&self) -> i64 {
        self.spent.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn reads_count_at_once_and_writes_when_committed() {
        let cost = Cost::default();
        cost.add_read(&Future::ready(Ok(Output::Value(None))));
        assert_eq!(cost.total(), 4096);
        cost.add_mutation(Mutation::Set { bytes: 2 });
        cost.add_mutation(Mutation::Clear);
        assert_eq!(cost.total(), 4096);
        cost.spend_mutations();
        assert_eq!(cost.total(), 4096 + 16_384 + 4096);
        cost.clear();
        cost.add_read(&Future::ready(Ok(Output::Value(Some(Bytes::from(vec![0; 9002]))))));
        assert_eq!(cost.total(), 12_288);
    }
}
