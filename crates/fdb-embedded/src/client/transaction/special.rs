//! Reads and writes of special keys.

use std::sync::Arc;

use super::reads::{RangeArguments, check_limits, range_read};
use super::{SpecialRead, Transaction, TransactionState};
use crate::client::database::Database;
use crate::client::special_keys::{self, Facts, SpecialKeyWrites};
use crate::client::write_map::{stamped_key, stamped_range};
use crate::error::{Code, Result};
use crate::future::{Future, Output};
use crate::range_set::RangeSet;

/// Reads of special keys, and the facts for them.
pub(super) struct WaitingSpecials<'d> {
    reads: Vec<(SpecialRead, Arc<Future>)>,
    facts: Facts<'d>,
}

impl WaitingSpecials<'_> {
    pub(super) fn answer(self) {
        for (read, future) in self.reads {
            future.complete(read(&self.facts));
        }
    }
}

impl Transaction {
    pub(super) fn get_special(&self, key: &[u8]) -> Arc<Future> {
        let key = key.to_vec();
        let waits = special_keys::shows_reads(&key, &key);
        self.read_special(waits, Box::new(move |facts| special_keys::get(facts, &key).map(Output::Value)))
    }

    pub(super) fn get_special_range(&self, arguments: &RangeArguments) -> Arc<Future> {
        let arguments = arguments.clone();
        let waits = special_keys::shows_reads(&arguments.begin.key, &arguments.end.key);
        let read = move |facts: &Facts<'_>| {
            let read = range_read(&arguments)?;
            check_limits(&arguments)?;
            special_keys::range(facts, &read).map(Output::Rows)
        };
        self.read_special(waits, Box::new(read))
    }

    /// Reads special keys, which works in any state of the transaction. With `waits`, waits for
    /// earlier reads, because the keys show their conflict ranges.
    fn read_special(&self, waits: bool, read: SpecialRead) -> Arc<Future> {
        let mut state = self.state.lock();
        if let Err(code) = state.check_deferred() {
            return Future::ready(Err(code));
        }
        if !waits || state.reading.is_empty() {
            let facts = state.special_facts(&self.database);
            drop(state);
            return Future::ready(read(&facts));
        }
        let future = Future::pending();
        state.waiting_specials.push((read, Arc::clone(&future)));
        future
    }

    pub(super) fn set_special(&self, key: &[u8], value: &[u8]) {
        self.apply_always(|state| {
            let is_first = state.size == 0;
            state.special_to_write()?.set(key, value, is_first)
        });
    }

    /// Runs `clear`, unless the commit has begun. As in FoundationDB, setting a key is allowed even
    /// then.
    pub(super) fn clear_special(&self, clear: impl FnOnce(&mut SpecialKeyWrites) -> Result<()>) {
        self.apply(|state| clear(state.special_to_write()?));
    }
}

fn owned<'r>(ranges: impl Iterator<Item = (&'r [u8], &'r [u8])>) -> RangeSet {
    ranges.map(|(begin, end)| (begin.to_vec(), end.to_vec())).collect()
}

impl TransactionState {
    fn special_to_write(&mut self) -> Result<&mut SpecialKeyWrites> {
        let is_enabled = self.options.special_keys_writes;
        if is_enabled {
            Ok(self.special.get_or_insert_default())
        } else {
            Err(Code::SPECIAL_KEYS_WRITE_DISABLED)
        }
    }

    /// The reads of special keys that have waited, to be run without the lock.
    pub(super) fn take_waiting_specials<'d>(
        &mut self,
        database: &'d Database,
    ) -> Option<WaitingSpecials<'d>> {
        let reads = std::mem::take(&mut self.waiting_specials);
        (!reads.is_empty()).then(|| WaitingSpecials { reads, facts: self.special_facts(database) })
    }

    fn special_facts<'d>(&mut self, database: &'d Database) -> Facts<'d> {
        // Keys that show reads fail if a read would fail, or has failed.
        let alive = self.check_alive().and_then(|()| self.failed_read.map_or(Ok(()), Err));
        Facts {
            database,
            session: self.special.get_or_insert_default().clone(),
            conflicting: self.conflicting.iter().cloned().collect(),
            reads: alive.map(|()| owned(self.reads.iter().chain(self.sent.reads()))),
            writes: self.shown_writes(),
            relaxed: self.options.special_keys_relaxed,
        }
    }

    /// The write conflict ranges, including those of stamped keys.
    fn shown_writes(&self) -> RangeSet {
        let ranges = self.write_conflicts.iter().chain(self.early_conflicts.iter());
        let mut writes = owned(ranges.chain(self.sent.writes()));
        let read_version = self.known_read_version().unwrap_or(0);
        for (key, offset) in self.writes.stamped_keys().chain(self.sent.stamped_keys()) {
            let (begin, end) = match self.sent.stamp {
                Some(stamp) => stamped_key(key, offset, stamp),
                None => stamped_range(key, offset, read_version),
            };
            writes.insert(begin, end);
        }
        writes
    }
}
