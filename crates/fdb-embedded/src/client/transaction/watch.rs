//! Watches: a future that is ready when a key's value changes.

use std::sync::Arc;

use bytes::Bytes;

use super::pending::{Outcome, OwnWrites};
use super::pending_watch::{Baseline, PendingWatch};
use super::reads::row_len;
use super::{METADATA_VERSION, Transaction, TransactionState};
use crate::client::merged::Merged;
use crate::error::{Code, Result};
use crate::future::{Future, Output};
use crate::limits::key_limit;

impl Transaction {
    /// Void future: ready when the key's value is not the one that this transaction saw. A
    /// successful commit arms it, and from then on it is independent of the transaction. Before, a
    /// failed commit, a reset or a cancellation ends it, but not a timeout.
    pub fn watch(self: &Arc<Self>, key: &[u8]) -> Arc<Future> {
        let mut state = match self.open() {
            Ok(state) => state,
            Err(code) => return Future::ready(Err(code)),
        };
        let (future, key) = (Future::pending(), key.to_vec());
        let watch = |baseline, key| PendingWatch { key, baseline, future: Arc::clone(&future) };
        match state.run(None, |state| self.watched_value(state, &key)) {
            Ok(value) => match self.keep(&mut state, watch(Baseline::Seen(value), key)) {
                Ok(()) => future,
                Err(code) => Future::ready(Err(code)),
            },
            Err(Code::MISSING) => {
                state.watches.push(watch(Baseline::Awaited { written: None }, key.clone()));
                let (waiting, watched) = (Arc::clone(&future), key.clone());
                let read = move |own: &Arc<Self>, state: &mut TransactionState| {
                    own.resume_watch(state, &watched, &waiting)
                };
                let sees = OwnWrites::Key { key: &key, snapshot: false };
                self.suspend(state, sees, Box::new(read), Arc::clone(&future));
                future
            }
            Err(code) => Future::ready(Err(code)),
        }
    }

    /// Reads again the value of a watch that waits for it.
    fn resume_watch(
        &self,
        state: &mut TransactionState,
        key: &[u8],
        future: &Arc<Future>,
    ) -> Result<Outcome> {
        let value = self.watched_value(state, key);
        if value == Err(Code::MISSING) {
            return Err(Code::MISSING);
        }
        let mut awaiting = state.watches.extract_if(.., |watch| Arc::ptr_eq(&watch.future, future));
        let watch = awaiting.next();
        drop(awaiting);
        let value = value?;
        // The watch has fired.
        let Some(mut watch) = watch else { return Ok(Outcome::Later) };
        if watch.has_changed_from(value) {
            return Ok(Outcome::Value(Output::Void));
        }
        self.keep(state, watch).map(|()| Outcome::Later)
    }

    /// The value of the watched key.
    fn watched_value(&self, state: &mut TransactionState, key: &[u8]) -> Result<Option<Bytes>> {
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
        // The engine will compare with the stored value, so synthetic keys do not count.
        let get = |merged: &Merged<'_>| Merged { epoch: None, ..*merged }.get(key, bypass);
        let found = |value: &Option<Bytes>| Some(row_len(key, value.as_ref()));
        let value = state.look(&self.database, false, get, found)?;
        state.add_key_read(key);
        Ok(value)
    }

    /// Keeps a watch whose value is known, for the commit to arm.
    fn keep(&self, state: &mut TransactionState, watch: PendingWatch) -> Result<()> {
        self.database.take_watch_slot(&watch.future)?;
        state.watches.push(watch);
        Ok(())
    }
}

impl TransactionState {
    /// Fires watches of keys that the transaction itself changes.
    pub(super) fn fire_own_watches(&mut self, changed: impl FnMut(&mut PendingWatch) -> bool) {
        for watch in self.watches.extract_if(.., changed) {
            watch.future.succeed();
        }
    }
}
