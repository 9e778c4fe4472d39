//! Watches: a future that fires when a key's value changes.

use std::sync::Arc;

use bytes::Bytes;

use super::pending::{Outcome, Sees};
use super::reads::row_len;
use super::{METADATA_VERSION, State, Transaction};
use crate::client::merged::Merged;
use crate::error::{Code, Result};
use crate::future::{Future, Output};
use crate::limits::key_limit;

/// A watch whose transaction has not committed yet.
#[derive(Debug)]
pub(super) struct PendingWatch {
    pub(super) key: Vec<u8>,
    pub(super) baseline: Baseline,
    pub(super) future: Arc<Future>,
}

/// What a watch knows of the value that the transaction saw.
#[derive(Debug)]
pub(super) enum Baseline {
    /// It is on its way. Meanwhile the transaction may have written the key itself, last this value.
    Awaited {
        written: Option<Option<Vec<u8>>>,
    },
    Seen(Option<Bytes>),
}

impl PendingWatch {
    /// Takes note that the transaction writes `value`. True if that is a change for certain; against a value that is on
    /// its way it is held when it has arrived.
    pub(super) fn is_changed_by(&mut self, value: Option<&[u8]>) -> bool {
        match &mut self.baseline {
            Baseline::Seen(seen) => seen.as_deref() != value,
            Baseline::Awaited { written: Some(before) } => before.as_deref() != value,
            Baseline::Awaited { written } => {
                *written = Some(value.map(<[u8]>::to_vec));
                false
            }
        }
    }

    /// The value that the transaction saw is there. True if it has written another since.
    fn has_changed_from(&mut self, seen: Option<Bytes>) -> bool {
        let written = match &self.baseline {
            Baseline::Awaited { written } => written.as_ref(),
            Baseline::Seen(_) => None,
        };
        let has_changed = written.is_some_and(|written| written.as_deref() != seen.as_deref());
        self.baseline = Baseline::Seen(seen);
        has_changed
    }
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
        let watch = |baseline, key| PendingWatch { key, baseline, future: Arc::clone(&future) };
        match state.run(None, |state| self.watched_value(state, &key)) {
            Ok(value) => match self.keep(&mut state, watch(Baseline::Seen(value), key)) {
                Ok(()) => future,
                Err(code) => Future::ready(Err(code)),
            },
            Err(Code::MISSING) => {
                state.watches.push(watch(Baseline::Awaited { written: None }, key.clone()));
                let (waiting, watched) = (Arc::clone(&future), key.clone());
                let read =
                    move |own: &Arc<Self>, state: &mut State| own.resume_watch(state, &watched, &waiting);
                let sees = Sees::Key { key: &key, snapshot: false };
                self.suspend(state, sees, Box::new(read), Arc::clone(&future));
                future
            }
            Err(code) => Future::ready(Err(code)),
        }
    }

    /// Looks again for the value of a watch that awaits it.
    fn resume_watch(&self, state: &mut State, key: &[u8], future: &Arc<Future>) -> Result<Outcome> {
        let value = self.watched_value(state, key);
        if value == Err(Code::MISSING) {
            return Err(Code::MISSING);
        }
        let mut awaiting = state.watches.extract_if(.., |watch| Arc::ptr_eq(&watch.future, future));
        let watch = awaiting.next();
        drop(awaiting);
        let value = value?;
        // A watch that has fired is not there any more.
        let Some(mut watch) = watch else { return Ok(Outcome::Later) };
        if watch.has_changed_from(value) {
            return Ok(Outcome::Value(Output::Void));
        }
        self.keep(state, watch).map(|()| Outcome::Later)
    }

    /// The value of a key that is to be watched.
    fn watched_value(&self, state: &mut State, key: &[u8]) -> Result<Option<Bytes>> {
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
        // The engine will compare it with what is stored, and what is made up is not.
        let get = |merged: &Merged<'_>| Merged { epoch: None, ..*merged }.get(key, bypass);
        let found = |value: &Option<Bytes>| Some(row_len(key, value.as_ref()));
        let value = state.look(&self.database, false, get, found)?;
        state.add_key_read(key);
        Ok(value)
    }

    /// Keeps a watch whose value is known for the commit to arm.
    fn keep(&self, state: &mut State, watch: PendingWatch) -> Result<()> {
        self.database.take_watch_slot(&watch.future)?;
        state.watches.push(watch);
        Ok(())
    }
}

impl State {
    /// A transaction that changes what it watches fires the watch at once.
    pub(super) fn fire_own_watches(&mut self, changed: impl FnMut(&mut PendingWatch) -> bool) {
        for watch in self.watches.extract_if(.., changed) {
            watch.future.succeed();
        }
    }
}
