//! Watches: a future that fires when a key's value changes.

use std::sync::Arc;

use bytes::Bytes;

use super::{METADATA_VERSION, State, Transaction};
use crate::error::{Code, Result};
use crate::future::Future;
use crate::limits::key_limit;
use crate::range_set::key_after;

/// A watch whose transaction has not committed yet.
#[derive(Debug)]
pub(super) struct PendingWatch {
    pub(super) key: Vec<u8>,
    /// The value that the transaction saw.
    pub(super) baseline: Option<Bytes>,
    pub(super) future: Arc<Future>,
}

impl Transaction {
    /// Void future: ready when the key has, or gets, another value than this transaction saw. Armed by a
    /// successful commit; from then on independent of the transaction. A timeout fails it with its commit only.
    pub fn watch(&self, key: &[u8]) -> Arc<Future> {
        let watch = self.open().and_then(|mut state| self.new_watch(&mut state, key));
        watch.unwrap_or_else(|code| Future::ready(Err(code)))
    }

    fn new_watch(&self, state: &mut State, key: &[u8]) -> Result<Arc<Future>> {
        if state.options.ryw_disabled {
            return Err(Code::WATCHES_DISABLED);
        }
        if key >= state.max_read_key() && key != METADATA_VERSION {
            return Err(Code::KEY_OUTSIDE_LEGAL_RANGE);
        }
        if key.len() > key_limit(key) {
            return Err(Code::KEY_TOO_LARGE);
        }
        let baseline = state.merged(&self.database, false)?.get(key)?;
        state.add_read_conflict((key.to_vec(), key_after(key)));
        let future = Future::pending();
        self.database.take_watch_slot(&future)?;
        state.watches.push(PendingWatch { key: key.to_vec(), baseline, future: Arc::clone(&future) });
        Ok(future)
    }
}

impl State {
    /// A transaction that changes what it watches fires the watch at once.
    pub(super) fn fire_own_watches(&mut self, changed: impl Fn(&PendingWatch) -> bool) {
        for watch in self.watches.extract_if(.., |watch| changed(watch)) {
            watch.future.succeed();
        }
    }
}
