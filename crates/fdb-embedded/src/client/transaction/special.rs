//! Special keys, as a transaction reads and writes them.

use std::sync::Arc;

use super::reads::{RangeArguments, check_limits, range_read};
use super::{State, Transaction};
use crate::client::database::Database;
use crate::client::special_keys::{self, Facts, Session};
use crate::client::write_map::{stamped_key, stamped_range};
use crate::error::{Code, Result};
use crate::future::{Future, Output};
use crate::range_set::RangeSet;

/// Reads special keys, given what there is to tell.
pub(super) type SpecialRead = Box<dyn FnOnce(&Facts<'_>) -> Result<Output> + Send>;

/// Reads of special keys, and what there is to tell.
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

    /// Special keys are read whatever became of the transaction; those that tell what has been read, once the reads
    /// that wait for data have ended.
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

    /// Runs `clear`, unless the commit has begun; a key is set also then, as in FoundationDB.
    pub(super) fn clear_special(&self, clear: impl FnOnce(&mut Session) -> Result<()>) {
        self.apply(|state| clear(state.special_to_write()?));
    }
}

fn owned<'r>(ranges: impl Iterator<Item = (&'r [u8], &'r [u8])>) -> RangeSet {
    ranges.map(|(begin, end)| (begin.to_vec(), end.to_vec())).collect()
}

impl State {
    fn special_to_write(&mut self) -> Result<&mut Session> {
        let is_enabled = self.options.special_keys_writes;
        if is_enabled {
            Ok(self.special.get_or_insert_default())
        } else {
            Err(Code::SPECIAL_KEYS_WRITE_DISABLED)
        }
    }

    /// The reads of special keys that have waited for others, to be answered without the lock.
    pub(super) fn take_waiting_specials<'d>(
        &mut self,
        database: &'d Database,
    ) -> Option<WaitingSpecials<'d>> {
        let reads = std::mem::take(&mut self.waiting_specials);
        (!reads.is_empty()).then(|| WaitingSpecials { reads, facts: self.special_facts(database) })
    }

    fn special_facts<'d>(&mut self, database: &'d Database) -> Facts<'d> {
        // These tell of reads, and fail where a read would, or has.
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

    /// The write conflict ranges, those of stamped keys included: where they may come to lie, or do.
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
