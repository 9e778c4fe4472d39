//! Retrying, resetting, cancelling, and running out of time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{FIRST_BACKOFF, State, Transaction};
use crate::error::{Code, Result};
use crate::future::{Future, Output};
use crate::network::{self, TimerId};

/// Errors of a proxy that is out of memory are retried more slowly: up to this.
const RESOURCE_BACKOFF: Duration = Duration::from_secs(30);

impl Transaction {
    /// Void future: ready when the transaction may be tried again, after a backoff; the error itself if it is
    /// not one to retry.
    pub fn on_error(self: &Arc<Self>, code: Option<Code>) -> Arc<Future> {
        let mut state = self.state.lock();
        match self.prepare_retry(&mut state, code) {
            Ok(delay) => {
                let future = Future::pending();
                let ended = self.restart(&mut state, Restart::Retry);
                state.outstanding.push(Arc::clone(&future));
                // The time of the timeout option goes on.
                self.start_timer(&mut state);
                drop(state);
                ended.fail();
                if self.database.link().holds_backoff(&future) {
                    return future;
                }
                let waiting = Arc::clone(&future);
                network::schedule(
                    Instant::now() + delay,
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

    fn prepare_retry(&self, state: &mut State, code: Option<Code>) -> Result<Duration> {
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

    /// Makes the transaction as new, whatever state it is in.
    pub fn reset(&self) {
        let mut state = self.state.lock();
        let ended = self.restart(&mut state, Restart::Reset);
        drop(state);
        ended.fail();
    }

    /// Fails what is pending and every call to come, until a reset. FoundationDB ends the watches whose own reads are under
    /// way, which those of a cluster are right after the call, and a binding's tests expect it: so all that are not armed.
    pub fn cancel(&self) {
        let mut state = self.state.lock();
        // One that has run out of time stays so.
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

    /// Ends everything: nobody has the transaction any more.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.dead.get_or_insert(Code::TRANSACTION_CANCELLED);
        let ended = self.end_all(&mut state);
        drop(state);
        ended.fail();
    }

    /// Makes sure that what is pending fails when the timeout option's time has come.
    pub(super) fn start_timer(self: &Arc<Self>, state: &mut State) {
        if state.timer.is_none()
            && let Some(deadline) = state.deadline()
        {
            state.timer = Some(self.fail_at(deadline));
        }
    }

    /// The timeout has changed.
    pub(super) fn restart_timer(self: &Arc<Self>, state: &mut State) {
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

    /// Takes what is pending, watches excepted, and makes an answer that is still to come find no one.
    pub(super) fn end_pending(&self, state: &mut State, code: Code) -> Ended {
        self.generation.fetch_add(1, Ordering::AcqRel);
        state.timer.take().into_iter().for_each(network::cancel);
        state.waiting_commit = None;
        let futures =
            state.outstanding.drain(..).chain(state.reading.drain(..)).chain(state.stamps.drain(..));
        let futures = futures.chain(state.waiting_specials.drain(..).map(|(_, future)| future));
        Ended(futures.map(|future| (future, code)).collect())
    }

    /// Takes everything that waits for the transaction. A versionstamp is then a promise that was broken.
    fn end_all(&self, state: &mut State) -> Ended {
        let stamps = std::mem::take(&mut state.stamps).into_iter().map(|stamp| (stamp, Code::BROKEN_PROMISE));
        let watches = std::mem::take(&mut state.watches).into_iter();
        let watches = watches.map(|watch| (watch.future, Code::TRANSACTION_CANCELLED));
        let mut ended = self.end_pending(state, Code::TRANSACTION_CANCELLED);
        ended.0.extend(stamps.chain(watches));
        ended
    }

    fn restart(&self, state: &mut State, how: Restart) -> Ended {
        let ended = self.end_all(state);
        let old = std::mem::replace(state, State::new(self.database.defaults()));
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
    /// By `on_error`: options that persist, the time of creation and the count of retries stay.
    Retry,
    /// By the client: everything is as new.
    Reset,
}

/// Futures to fail once the transaction's lock is released.
pub(super) struct Ended(Vec<(Arc<Future>, Code)>);

impl Ended {
    pub(super) fn fail(self) {
        for (future, code) in self.0 {
            future.fail(code);
        }
    }
}
