//! SuspendedRead reads, whose data has not arrived.
//!
//! A read is a function of the transaction's state and runs under its lock. On this process's
//! engine it completes at once. On a remote engine it may fail with [`Code::MISSING`]. Then the
//! missing data is fetched and the read runs again from its start, with the writes and options of
//! the time when it was called, until it completes. A read at a future version works alike, see
//! `ahead`. A commit waits for earlier reads.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use baton::MutexGuard;

use super::{Transaction, TransactionState, ahead};
use crate::client::write_map::WriteMap;
use crate::error::{Code, Result};
use crate::future::{Future, Output};
use crate::link::View;
use crate::options::TransactionOptions;

/// A read that can be repeated. It changes the state only if it succeeds.
pub(super) type Read = Box<dyn Fn(&Arc<Transaction>, &mut TransactionState) -> Result<Outcome> + Send>;

/// The result of a read that has completed.
pub(super) enum Outcome {
    /// The future's value.
    Value(Output),
    /// The future stays pending until its watch fires.
    Later,
}

/// Which own writes a read sees, if its options allow any.
#[derive(Debug, Clone, Copy)]
pub(super) enum OwnWrites<'k> {
    /// None.
    Nothing,
    /// The writes to one key.
    Key { key: &'k [u8], snapshot: bool },
    /// Possibly all.
    All { snapshot: bool },
}

/// A read that waits for data.
struct SuspendedRead {
    read: Read,
    future: Arc<Future>,
    since: Instant,
    generation: u64,
    /// The writes that the read sees, and its options, from the time when it was called.
    writes: Arc<WriteMap>,
    options: TransactionOptions,
}

impl Transaction {
    /// Runs a read, if the transaction accepts reads. It may run more than once.
    pub(super) fn answer(
        self: &Arc<Self>,
        sees: OwnWrites<'_>,
        call: impl Fn(&Arc<Transaction>, &mut TransactionState) -> Result<Output> + Send + 'static,
    ) -> Arc<Future> {
        self.read(self.open(), sees, call)
    }

    /// Runs a read. Its future is ready, unless data has to be fetched.
    pub(super) fn read(
        self: &Arc<Self>,
        state: Result<MutexGuard<'_, TransactionState>>,
        sees: OwnWrites<'_>,
        read: impl Fn(&Arc<Transaction>, &mut TransactionState) -> Result<Output> + Send + 'static,
    ) -> Arc<Future> {
        let mut state = match state {
            Ok(state) => state,
            Err(code) => return Future::ready(Err(code)),
        };
        if state.reading.is_empty()
            && let Some(view) = &state.view
        {
            view.trim();
        }
        match state.run(None, |state| read(self, state)) {
            Err(Code::MISSING) => {
                let future = Future::pending();
                let read = Box::new(move |own: &Arc<Self>, state: &mut TransactionState| {
                    read(own, state).map(Outcome::Value)
                });
                self.suspend(state, sees, read, Arc::clone(&future));
                future
            }
            result => {
                drop(state);
                Future::ready(result)
            }
        }
    }

    /// Suspends a read, and fetches the data that it misses.
    pub(super) fn suspend(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, TransactionState>,
        sees: OwnWrites<'_>,
        read: Read,
        future: Arc<Future>,
    ) {
        state.reading.push(Arc::clone(&future));
        self.start_timer(&mut state);
        let suspended = SuspendedRead {
            read,
            future,
            since: baton::now(),
            generation: self.generation.load(Ordering::Acquire),
            writes: state.kept_writes(sees),
            options: state.options.clone(),
        };
        self.fetch(state, suspended);
    }

    fn fetch(self: &Arc<Self>, state: MutexGuard<'_, TransactionState>, suspended: SuspendedRead) {
        let awaits_version = state.awaits_version();
        let missing = [&state.view, &state.sizes_view].into_iter().flatten().find_map(View::missing);
        drop(state);
        let transaction = Arc::clone(self);
        let again = Box::new(move || transaction.resume(suspended));
        if awaits_version {
            return ahead::retry_later(again);
        }
        match missing {
            Some(missing) => missing.fetch(again),
            // There is no view, because there is no host.
            None => self.database.link().when_role_known(again),
        }
    }

    /// Runs a suspended read again, after its data has arrived or cannot arrive.
    fn resume(self: &Arc<Self>, mut suspended: SuspendedRead) {
        let mut state = self.state.lock();
        if self.generation.load(Ordering::Acquire) != suspended.generation {
            return;
        }
        let result = if suspended.future.is_ready() {
            // The client has cancelled the future.
            Err(Code::OPERATION_CANCELLED)
        } else if let Err(code) = state.check_alive() {
            // The transaction timed out before the data arrived, and the timer has not run yet.
            Err(code)
        } else {
            state.exchange(&mut suspended);
            let result = state.run(Some(suspended.since), |state| (suspended.read)(self, state));
            state.exchange(&mut suspended);
            result
        };
        let result = match result {
            Err(Code::MISSING) => return self.fetch(state, suspended),
            Ok(Outcome::Value(value)) => Some(Ok(value)),
            Ok(Outcome::Later) => None,
            Err(code) => Some(Err(code)),
        };
        state.reading.retain(|future| !Arc::ptr_eq(future, &suspended.future));
        let (mut specials, mut commit) = (None, None);
        if state.reading.is_empty() {
            specials = state.take_waiting_specials(&self.database);
            commit = state.waiting_commit.take();
        }
        match commit {
            Some(commit) => self.commit_after_reads(state, &commit),
            None => drop(state),
        }
        if let Some(result) = result {
            suspended.future.complete(result);
        }
        if let Some(specials) = specials {
            specials.answer();
        }
    }

    /// Completes a commit that had to wait for reads.
    fn commit_after_reads(self: &Arc<Self>, state: MutexGuard<'_, TransactionState>, waiting: &Arc<Future>) {
        let committed = self.begin_commit(state);
        let (waiting, result) = (Arc::clone(waiting), Arc::downgrade(&committed));
        committed.hook(Box::new(move || {
            let result = result.upgrade().map_or(Err(Code::COMMIT_UNKNOWN_RESULT), |future| future.result());
            waiting.complete(result.map(|_| Output::Void));
        }));
    }
}

impl TransactionState {
    /// The writes that a suspended read has to keep. Sharing all of them makes the next write copy
    /// them all, so only reads that may need them do.
    fn kept_writes(&self, sees: OwnWrites<'_>) -> Arc<WriteMap> {
        match sees {
            OwnWrites::Key { key, snapshot } if self.sees_own(snapshot) => Arc::new(self.writes.only(key)),
            OwnWrites::All { snapshot } if self.sees_own(snapshot) => Arc::clone(&self.writes),
            OwnWrites::Nothing | OwnWrites::Key { .. } | OwnWrites::All { .. } => Arc::default(),
        }
    }

    /// Exchanges the current writes and options with those of the suspended read.
    fn exchange(&mut self, suspended: &mut SuspendedRead) {
        std::mem::swap(&mut self.writes, &mut suspended.writes);
        std::mem::swap(&mut self.options, &mut suspended.options);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reads_of_ranges_that_see_own_writes_share_them() {
        let mut state = TransactionState::new(TransactionOptions::default());
        Arc::make_mut(&mut state.writes).set(b"k", b"v");
        let shares = |state: &TransactionState, sees| {
            let kept = state.kept_writes(sees);
            (Arc::ptr_eq(&kept, &state.writes), kept.get(b"k").is_some())
        };
        let key = |snapshot| OwnWrites::Key { key: b"k", snapshot };
        assert_eq!(shares(&state, key(false)), (false, true));
        assert_eq!(shares(&state, OwnWrites::All { snapshot: true }), (true, true));
        assert_eq!(shares(&state, OwnWrites::Nothing), (false, false));
        state.options.snapshot_ryw = 0;
        assert_eq!(shares(&state, key(true)), (false, false));
        assert_eq!(shares(&state, OwnWrites::All { snapshot: true }), (false, false));
        assert_eq!(shares(&state, OwnWrites::All { snapshot: false }), (true, true));
        state.options.ryw_disabled = true;
        assert_eq!(shares(&state, OwnWrites::All { snapshot: false }), (false, false));
    }
}
