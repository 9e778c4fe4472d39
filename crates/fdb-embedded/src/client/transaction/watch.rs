//! Watches: a future that fires when a key's value changes.

use std::sync::Arc;

use bytes::Bytes;

use super::pending::Outcome;
use super::{METADATA_VERSION, State, Transaction};
use crate::error::{Code, Result};
use crate::future::Future;
use crate::limits::key_limit;

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
    /// successful commit; from then on independent of the transaction. Before that a failed commit, a reset or a cancel ends it, but
    /// no timeout.
    pub fn watch(self: &Arc<Self>, key: &[u8]) -> Arc<Future> {
        let mut state = match self.open() {
            Ok(state) => state,
            Err(code) => return Future::ready(Err(code)),
        };
        let (future, key) = (Future::pending(), key.to_vec());
        match self.new_watch(&mut state, &key, &future) {
            Ok(()) => future,
            Err(Code::MISSING) => {
                let watch = Arc::clone(&future);
                let read = move |own: &Arc<Self>, state: &mut State| {
                    own.new_watch(state, &key, &watch).map(|()| Outcome::Later)
                };
                self.suspend(state, Box::new(read), Arc::clone(&future));
                future
            }
            Err(code) => Future::ready(Err(code)),
        }
    }

    fn new_watch(self: &Arc<Self>, state: &mut State, key: &[u8], future: &Arc<Future>) -> Result<()> {
        if state.options.ryw_disabled {
            return Err(Code::WATCHES_DISABLED);
        }
        if key >= state.max_read_key() && key != METADATA_VERSION {
            return Err(Code::KEY_OUTSIDE_LEGAL_RANGE);
        }
        if key.len() > key_limit(key, state.has_raw_access()) {
            return Err(Code::KEY_TOO_LARGE);
        }
        let bypass = state.options.bypass_unreadable;
        let baseline = state.look(&self.database, false, |merged| merged.get(key, bypass))?;
        state.add_key_read(key);
        self.database.take_watch_slot(future)?;
        state.watches.push(PendingWatch { key: key.to_vec(), baseline, future: Arc::clone(future) });
        Ok(())
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
