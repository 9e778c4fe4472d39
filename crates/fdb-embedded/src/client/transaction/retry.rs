//! Retries, resets, cancellation and timeouts.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{FIRST_BACKOFF, Transaction, TransactionState};
use crate::error::{Code, Result};
use crate::future::{Future, Output};
use crate::network::{self, TimerId};

/// The longest retry delay after errors of a proxy that is out of memory.
const RESOURCE_BACKOFF: Duration = Duration::from_secs(30);

impl Transaction {
    /// Void future: ready when the transaction may be retried, after a delay; the error itself if
    /// it is not retryable.
    pub fn on_error(self: &Arc<Self>, code: Option<Code>) -> Arc<Future> {
        let mut state = self.state.lock();
        match self.prepare_retry(&mut state, code) {
            Ok(delay) => {
                let future = Future::pending();
                let ended = self.restart(&mut state, Restart::Retry);
                state.outstanding.push(Arc::clone(&future));
                // The timeout continues to run.
                self.start_timer(&mut state);
                drop(state);
                ended.fail();
                if self.database.link().holds_backoff(&future) {
                    return future;
                }
                let waiting = Arc::clone(&future);
                network::schedule(
                    baton::now() + delay,
                    Box::new(move || {
                        waiting.complete(Ok(Output::Void));
                    }),
                );
                future
            }
            Err(code) => {
                state.dead.get_or_insert(Code::TRANSACTION_CANCELLED);
                let ended = self.end_pending(&mut state, Code::TRANSACTION_CANCELLED);
                drop(state);
                ended.fail();
                Future::ready(Err(code))
            }
        }
    }

    fn prepare_retry(&self, state: &mut TransactionState, code: Option<Code>) -> Result<Duration> {
        state.check_alive()?;
        let limit = state.options.retry_limit;
        let is_over = limit >= 0 && state.retries >= limit;
        state.retries += 1;
        let code = code.ok_or(Code::CLIENT_INVALID_OPERATION)?;
        if is_over || (!code.is_retryable() && code != Code::BLOB_GRANULE_FAILED) {
            return Err(code);
        }
        let longest = Duration::from_millis(u64::try_from(state.options.max_retry_delay_ms).unwrap_or(0));
        if matches!(code, Code::TRANSACTION_TOO_OLD | Code::FUTURE_VERSION) {
            return Ok(FIRST_BACKOFF.min(longest));
        }
        let longest = match code {
            Code::COMMIT_PROXY_MEMORY | Code::GRV_PROXY_MEMORY => RESOURCE_BACKOFF,
            _ => longest,
        };
        let delay = state.backoff.min(longest).mul_f64(self.database.jitter());
        state.backoff = (state.backoff * 2).min(longest);
        Ok(delay)
    }

    /// Resets the transaction from any state.
    pub fn reset(&self) {
        let mut state = self.state.lock();
        let ended = self.restart(&mut state, Restart::Reset);
        drop(state);
        ended.fail();
    }

    /// Fails pending futures and all later calls until a reset. FoundationDB also ends watches
    /// whose reads are in progress. On a cluster that is every watch right after the call, and a
    /// binding's tests rely on it, so all watches that are not armed end here.
    pub fn cancel(&self) {
        let mut state = self.state.lock();
        // A transaction that has timed out stays so.
        if state.check_alive().is_err() {
            return;
        }
        state.dead = Some(Code::TRANSACTION_CANCELLED);
        let watches = std::mem::take(&mut state.watches).into_iter();
        let mut ended = self.end_pending(&mut state, Code::TRANSACTION_CANCELLED);
        ended.0.extend(watches.map(|watch| (watch.future, Code::TRANSACTION_CANCELLED)));
        drop(state);
        ended.fail();
    }

    /// Ends everything: the client has destroyed the transaction.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.dead.get_or_insert(Code::TRANSACTION_CANCELLED);
        let ended = self.end_all(&mut state);
        drop(state);
        ended.fail();
    }

    /// Starts the timer that fails pending futures when the timeout expires.
    pub(super) fn start_timer(self: &Arc<Self>, state: &mut TransactionState) {
        if state.timer.is_none()
            && let Some(deadline) = state.deadline()
        {
            state.timer = Some(self.fail_at(deadline));
        }
    }

    /// Starts the timer again after the timeout was changed.
    pub(super) fn restart_timer(self: &Arc<Self>, state: &mut TransactionState) {
        state.timer.take().into_iter().for_each(network::cancel);
        if !(state.outstanding.is_empty() && state.reading.is_empty() && state.stamps.is_empty()) {
            self.start_timer(state);
        }
    }

    fn fail_at(self: &Arc<Self>, deadline: Instant) -> TimerId {
        let transaction = Arc::downgrade(self);
        let fail = move || {
            let Some(transaction) = transaction.upgrade() else { return };
            let mut state = transaction.state.lock();
            if state.check_alive() == Err(Code::TRANSACTION_TIMED_OUT) {
                let ended = transaction.end_pending(&mut state, Code::TRANSACTION_TIMED_OUT);
                drop(state);
                ended.fail();
            }
        };
        network::schedule(deadline, Box::new(fail))
    }

    /// Takes pending futures, without watches, and makes the transaction ignore results that are on
    /// their way.
    pub(super) fn end_pending(&self, state: &mut TransactionState, code: Code) -> EndedFutures {
        self.generation.fetch_add(1, Ordering::AcqRel);
        state.timer.take().into_iter().for_each(network::cancel);
        state.waiting_commit = None;
        let futures =
            state.outstanding.drain(..).chain(state.reading.drain(..)).chain(state.stamps.drain(..));
        let futures = futures.chain(state.waiting_specials.drain(..).map(|(_, future)| future));
        EndedFutures(futures.map(|future| (future, code)).collect())
    }

    /// Takes everything that waits for the transaction. A versionstamp then fails with
    /// `BROKEN_PROMISE`.
    fn end_all(&self, state: &mut TransactionState) -> EndedFutures {
        let stamps = std::mem::take(&mut state.stamps).into_iter().map(|stamp| (stamp, Code::BROKEN_PROMISE));
        let watches = std::mem::take(&mut state.watches).into_iter();
        let watches = watches.map(|watch| (watch.future, Code::TRANSACTION_CANCELLED));
        let mut ended = self.end_pending(state, Code::TRANSACTION_CANCELLED);
        ended.0.extend(stamps.chain(watches));
        ended
    }

    fn restart(&self, state: &mut TransactionState, how: Restart) -> EndedFutures {
        let ended = self.end_all(state);
        let old = std::mem::replace(state, TransactionState::of(&self.database));
        // Shown until the next conflict.
        state.conflicting = old.conflicting;
        if how == Restart::Retry {
            state.options = old.options.persistent(&state.options);
            state.created = old.created;
            state.committed_version = old.committed_version;
            state.retries = old.retries;
            state.backoff = old.backoff;
        }
        ended
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Restart {
    /// By `on_error`: persistent options, the time of creation and the number of retries stay.
    Retry,
    /// By the client: everything is reset.
    Reset,
}

/// Futures to fail after the transaction is unlocked.
pub(super) struct EndedFutures(Vec<(Arc<Future>, Code)>);

impl EndedFutures {
    pub(super) fn fail(self) {
        for (future, code) in self.0 {
            future.fail(code);
        }
    }
}
