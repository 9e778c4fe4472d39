//! Committing, and the results of a commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use baton::MutexGuard;
use bytes::Bytes;

use super::pending_watch::{Baseline, PendingWatch};
use super::sent::Sent;
use super::{Futures, NO_VERSION, Phase, Transaction, TransactionState, conflict_size};
use crate::client::special_keys::SpecialKeyWrites;
use crate::engine::mutation::MIN_COMMIT_VERSION;
use crate::engine::{CommitPromise, CommitResult, Durability};
use crate::error::{Code, Result};
use crate::future::{Future, Output};
use crate::link::{CommitBase, CommitMessage, View};
use crate::network;
use crate::range_set::KeyRange;

impl Transaction {
    /// Void future: ready when the commit is durable and visible, or has failed.
    pub fn commit(self: &Arc<Self>) -> Arc<Future> {
        let mut state = match self.open() {
            Ok(state) => state,
            Err(code) => return Future::ready(Err(code)),
        };
        if state.reading.is_empty() {
            return self.begin_commit(state);
        }
        // Reads in progress may still add conflict ranges.
        state.phase = Phase::Used;
        let future = Future::pending();
        state.outstanding.push(Arc::clone(&future));
        state.waiting_commit = Some(Arc::clone(&future));
        self.start_timer(&mut state);
        future
    }

    /// Commits after all reads have ended.
    pub(super) fn begin_commit(self: &Arc<Self>, mut state: MutexGuard<'_, TransactionState>) -> Arc<Future> {
        state.phase = Phase::Used;
        // These checks fail before anything depends on the commit.
        if let Err(code) = state.check_commit().and_then(|()| self.advance_versions(&mut state)) {
            return Future::ready(Err(code));
        }
        if state.is_read_only() {
            return self.finish_read_only(state);
        }
        state.sent_cost = Some(state.full_write_cost());
        let base = match self.prepare(&mut state) {
            Ok(base) => base,
            Err(code) => {
                let refused = state.refused(code);
                drop(state);
                refused.settle();
                return Future::ready(Err(code));
            }
        };
        let future = Future::pending();
        state.outstanding.push(Arc::clone(&future));
        let commit = state.take_commit_message(base);
        let answer = self.commit_promise(&future);
        self.start_timer(&mut state);
        drop(state);
        self.database.link().commit(commit, answer);
        future
    }

    /// Adds the write that advances versions, if a special key asks for it.
    fn advance_versions(&self, state: &mut TransactionState) -> Result<()> {
        if state.special.is_none() {
            return Ok(());
        }
        let current = state.known_read_version().or_else(|| self.database.link().host_read_version());
        let Some(special) = &mut state.special else { return Ok(()) };
        if let Some(version) = special.advance(current)? {
            // The first version that may follow.
            state.put(MIN_COMMIT_VERSION, &(version + 1).to_le_bytes(), true);
        }
        Ok(())
    }

    fn prepare(&self, state: &mut TransactionState) -> Result<CommitBase<View>> {
        if state.options.read_lock_aware && !state.options.lock_aware {
            return Err(Code::TRANSACTION_READ_ONLY);
        }
        if state.commit_size() > state.options.size_limit {
            return Err(Code::TRANSACTION_TOO_LARGE);
        }
        if state.view.is_none() && state.chosen_version.is_none() {
            // A transaction without reads gets its read version now.
            state.chosen_version = self.database.link().host_read_version();
            if state.chosen_version.is_none() {
                // A remote view sends its version later. Neither this nor a takeover delays the
                // commit.
                let _ = state.view(&self.database);
            }
        }
        Ok(match (&state.view, state.chosen_version) {
            (_, Some(version)) => CommitBase::Version(version),
            (Some(view), None) => CommitBase::View(view.clone()),
            (None, None) => CommitBase::Newest,
        })
    }

    /// Commits without writes: succeeds without the engine, and arms watches at the read version.
    fn finish_read_only(&self, mut state: MutexGuard<'_, TransactionState>) -> Arc<Future> {
        state.committed_version = NO_VERSION;
        let stamps = std::mem::take(&mut state.stamps);
        let watches = std::mem::take(&mut state.watches);
        drop(state);
        for stamp in stamps {
            stamp.fail(Code::NO_COMMIT_VERSION);
        }
        self.arm(watches);
        Future::ready(Ok(Output::Void))
    }

    fn arm(&self, watches: Vec<PendingWatch>) {
        for watch in watches {
            // If a watch's value never arrived, the client has cancelled it, or its read has
            // failed.
            if let Baseline::Seen(value) = watch.baseline {
                self.database.link().arm(&watch.key, value, &watch.future);
            }
        }
    }

    /// The promise for the commit's result.
    fn commit_promise(self: &Arc<Self>, future: &Arc<Future>) -> CommitPromise {
        let (transaction, future) = (Arc::clone(self), Arc::clone(future));
        let generation = self.generation.load(Ordering::Acquire);
        CommitPromise::new(move |result| {
            let outcome = transaction.take_outcome(generation, result);
            // A client that sees the result and then closes the database expects to hold the last
            // reference.
            drop(transaction);
            future.complete(outcome.map(|()| Output::Void));
        })
    }

    /// Stores the result, and completes watches and versionstamps, unless the transaction was reset
    /// meanwhile.
    fn take_outcome(&self, generation: u64, result: CommitResult) -> Result<()> {
        let is_past = || self.generation.load(Ordering::Acquire) != generation;
        if is_past() {
            return result.map(drop).map_err(|failure| failure.code);
        }
        let mut state = self.state.lock();
        if is_past() {
            return result.map(drop).map_err(|failure| failure.code);
        }
        state.outstanding.clear();
        state.timer.take().into_iter().for_each(network::cancel);
        match result {
            Ok(committed) => {
                state.committed_version = committed.version;
                state.sent.stamp = Some(committed.stamp());
                let stamps = std::mem::take(&mut state.stamps);
                let watches = std::mem::take(&mut state.watches);
                drop(state);
                for stamp in stamps {
                    stamp.complete(Ok(Output::Key(Bytes::copy_from_slice(&committed.stamp().0))));
                }
                self.arm(watches);
                Ok(())
            }
            Err(failure) => {
                if failure.code == Code::NOT_COMMITTED {
                    let is_wanted = state.options.report_conflicting_keys;
                    state.conflicting = if is_wanted { failure.conflicting } else { Vec::new() };
                }
                let refused = state.refused(failure.code);
                drop(state);
                refused.settle();
                Err(failure.code)
            }
        }
    }

    /// True if nothing was written.
    pub fn is_read_only(&self) -> bool {
        self.state.lock().is_read_only()
    }

    /// The version of the last commit; -1 before a commit, and after a read-only one.
    pub fn committed_version(&self) -> i64 {
        self.state.lock().committed_version
    }

    /// Key future: the versionstamp of the commit. Must be called before the commit.
    pub fn get_versionstamp(self: &Arc<Self>) -> Arc<Future> {
        match self.open() {
            Ok(mut state) => {
                let future = Future::pending();
                state.stamps.push(Arc::clone(&future));
                self.start_timer(&mut state);
                future
            }
            Err(code) => Future::ready(Err(code)),
        }
    }
}

/// The futures that depended on a failed commit.
struct FailedCommit {
    stamps: Futures,
    watches: Vec<PendingWatch>,
    code: Code,
}

impl FailedCommit {
    fn settle(self) {
        for stamp in self.stamps {
            stamp.fail(Code::TRANSACTION_INVALID_VERSION);
        }
        for watch in self.watches {
            watch.future.fail(self.code);
        }
    }
}

impl TransactionState {
    fn refused(&mut self, code: Code) -> FailedCommit {
        let stamps = std::mem::take(&mut self.stamps);
        FailedCommit { stamps, watches: std::mem::take(&mut self.watches), code }
    }

    fn check_commit(&mut self) -> Result<()> {
        self.failed_read.map_or(Ok(()), Err)?;
        self.special.as_mut().map_or(Ok(()), SpecialKeyWrites::commit)
    }

    fn is_read_only(&self) -> bool {
        self.writes.is_empty() && self.write_conflicts.is_empty() && self.early_conflicts.is_empty()
    }

    /// The message for the engine. Special keys still show its conflict ranges.
    fn take_commit_message(&mut self, base: CommitBase<View>) -> CommitMessage<View> {
        let reads: Vec<KeyRange> = std::mem::take(&mut self.reads).into();
        let mut writes = std::mem::take(&mut self.write_conflicts);
        for (begin, end) in std::mem::take(&mut self.early_conflicts) {
            writes.insert(begin, end);
        }
        let writes: Vec<KeyRange> = writes.into();
        self.sent = Sent::new(&reads, &writes, &self.writes);
        let mutations = Arc::make_mut(&mut self.writes).take_mutations();
        let is_risky = self.options.durability_risky;
        let durability = if is_risky { Durability::Asynchronous } else { Durability::Flushed };
        let report_conflicts = self.options.report_conflicting_keys;
        CommitMessage { base, reads, report_conflicts, writes, mutations, durability }
    }

    /// Bytes that count towards the size limit: mutations and coalesced conflict ranges.
    fn commit_size(&self) -> i64 {
        if self.options.ryw_disabled {
            return self.plain_size;
        }
        let writes = self.write_conflicts.iter().chain(self.early_conflicts.iter());
        let conflicts = self.reads.iter().chain(writes);
        self.writes.sent_size() + conflicts.map(|(begin, end)| conflict_size(begin, end)).sum::<i64>()
    }
}
