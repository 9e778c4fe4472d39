//! Reads whose data is still to arrive.
//!
//! A read is a function of the transaction's state, run under its lock. On the engine of this process it ends at once.
//! On another's it may end with [`Code::MISSING`]: then what it misses is fetched and it is run again, from the start,
//! over the writes and options of the moment at which it was called, until it ends. So does a read of a version that lies
//! ahead, see `ahead`. A commit waits for the reads before it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use parking_lot::MutexGuard;

use super::{State, Transaction, ahead};
use crate::client::write_map::WriteMap;
use crate::error::{Code, Result};
use crate::future::{Future, Output};
use crate::link::View;
use crate::options::TransactionOptions;

/// A read that can be run again. It changes the state only when it succeeds.
pub(super) type Read = Box<dyn Fn(&Arc<Transaction>, &mut State) -> Result<Outcome> + Send>;

/// What a read that has ended leaves of its future.
pub(super) enum Outcome {
    /// The future's value.
    Value(Output),
    /// The future stays pending, for something later to complete: it is a watch.
    Later,
}

/// Which of the transaction's own writes a read sees, if its options let it see any.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sees<'k> {
    /// None.
    Nothing,
    /// Those to one key.
    Key { key: &'k [u8], snapshot: bool },
    /// Perhaps all.
    All { snapshot: bool },
}

/// A read that waits for data.
struct Suspended {
    read: Read,
    future: Arc<Future>,
    since: Instant,
    generation: u64,
    /// What it sees of what the transaction had written, and how it reads, when the read was called.
    writes: Arc<WriteMap>,
    options: TransactionOptions,
}

impl Transaction {
    /// Runs a read; its future is ready, unless data has to be fetched.
    pub(super) fn read(
        self: &Arc<Self>,
        state: Result<MutexGuard<'_, State>>,
        sees: Sees<'_>,
        read: impl Fn(&Arc<Transaction>, &mut State) -> Result<Output> + Send + 'static,
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
                let read =
                    Box::new(move |own: &Arc<Self>, state: &mut State| read(own, state).map(Outcome::Value));
                self.suspend(state, sees, read, Arc::clone(&future));
                future
            }
            result => {
                drop(state);
                Future::ready(result)
            }
        }
    }

    /// Has fetched what a read has just missed.
    pub(super) fn suspend(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        sees: Sees<'_>,
        read: Read,
        future: Arc<Future>,
    ) {
        state.reading.push(Arc::clone(&future));
        self.start_timer(&mut state);
        let suspended = Suspended {
            read,
            future,
            since: Instant::now(),
            generation: self.generation.load(Ordering::Acquire),
            writes: state.kept_writes(sees),
            options: state.options.clone(),
        };
        self.fetch(state, suspended);
    }

    fn fetch(self: &Arc<Self>, state: MutexGuard<'_, State>, suspended: Suspended) {
        let awaits_version = state.awaits_version();
        let missing = [&state.view, &state.sizes_view].into_iter().flatten().find_map(View::missing);
        drop(state);
        let transaction = Arc::clone(self);
        let again = Box::new(move || transaction.resume(suspended));
        if awaits_version {
            return ahead::look_again(again);
        }
        match missing {
            Some(missing) => missing.fetch(again),
            // There is no view yet, for there is no host.
            None => self.database.link().when_role_known(again),
        }
    }

    /// Runs a read again: what it missed has arrived, or never will.
    fn resume(self: &Arc<Self>, mut suspended: Suspended) {
        let mut state = self.state.lock();
        if self.generation.load(Ordering::Acquire) != suspended.generation {
            return;
        }
        let result = if suspended.future.is_ready() {
            // Cancelled: nobody wants it any more.
            Err(Code::OPERATION_CANCELLED)
        } else if let Err(code) = state.check_alive() {
            // Its time was over before what it missed arrived, and the timer comes late.
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

    /// Gives a commit that had to wait for reads its outcome.
    fn commit_after_reads(self: &Arc<Self>, state: MutexGuard<'_, State>, waiting: &Arc<Future>) {
        let committed = self.begin_commit(state);
        let (waiting, result) = (Arc::clone(waiting), Arc::downgrade(&committed));
        committed.hook(Box::new(move || {
            let result = result.upgrade().map_or(Err(Code::COMMIT_UNKNOWN_RESULT), |future| future.result());
            waiting.complete(result.map(|_| Output::Void));
        }));
    }
}

impl State {
    /// What a read that is suspended keeps of the writes. Who shares all of them makes the next write copy all of them, so
    /// that only those do who may need them.
    fn kept_writes(&self, sees: Sees<'_>) -> Arc<WriteMap> {
        match sees {
            Sees::Key { key, snapshot } if self.sees_own(snapshot) => Arc::new(self.writes.only(key)),
            Sees::All { snapshot } if self.sees_own(snapshot) => Arc::clone(&self.writes),
            Sees::Nothing | Sees::Key { .. } | Sees::All { .. } => Arc::default(),
        }
    }

    /// Puts what a suspended read sees in the place of what is now, or back.
    fn exchange(&mut self, suspended: &mut Suspended) {
        std::mem::swap(&mut self.writes, &mut suspended.writes);
        std::mem::swap(&mut self.options, &mut suspended.options);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reads_of_ranges_that_see_own_writes_share_them() {
        let mut state = State::new(TransactionOptions::default());
        Arc::make_mut(&mut state.writes).set(b"k", b"v");
        let shares = |state: &State, sees| {
            let kept = state.kept_writes(sees);
            (Arc::ptr_eq(&kept, &state.writes), kept.get(b"k").is_some())
        };
        let key = |snapshot| Sees::Key { key: b"k", snapshot };
        assert_eq!(shares(&state, key(false)), (false, true));
        assert_eq!(shares(&state, Sees::All { snapshot: true }), (true, true));
        assert_eq!(shares(&state, Sees::Nothing), (false, false));
        state.options.snapshot_ryw = 0;
        assert_eq!(shares(&state, key(true)), (false, false));
        assert_eq!(shares(&state, Sees::All { snapshot: true }), (false, false));
        assert_eq!(shares(&state, Sees::All { snapshot: false }), (true, true));
        state.options.ryw_disabled = true;
        assert_eq!(shares(&state, Sees::All { snapshot: false }), (false, false));
    }
}
