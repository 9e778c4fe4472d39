//! Retrying, resetting, cancelling, and running out of time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{FIRST_BACKOFF, Phase, State, Transaction};
use crate::error::{Code, Result};
use crate::future::{Future, Output};
use crate::network;

/// Errors of a proxy that is out of memory are retried more slowly: up to this.
const RESOURCE_BACKOFF: Duration = Duration::from_secs(30);

impl Transaction {
    /// Void future: ready when the transaction may be tried again, after a backoff; the error itself if it is
    /// not one to retry.
    pub fn on_error(&self, code: Option<Code>) -> Arc<Future> {
        let mut state = self.state.lock();
        match self.prepare_retry(&mut state, code) {
            Ok(delay) => {
                let future = Future::pending();
                let ended = state.restart(Restart::Retry, self.database.defaults());
                state.outstanding.push(Arc::clone(&future));
                drop(state);
                ended.fail();
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
                let ended = state.end();
                drop(state);
                ended.fail();
                Future::ready(Err(code))
            }
        }
    }

    fn prepare_retry(&self, state: &mut State, code: Option<Code>) -> Result<Duration> {
        state.check_alive()?;
        let code = code.ok_or(Code::CLIENT_INVALID_OPERATION)?;
        if !code.is_retryable() && code != Code::BLOB_GRANULE_FAILED {
            return Err(code);
        }
        let limit = state.options.retry_limit;
        if limit >= 0 && state.retries >= limit {
            return Err(code);
        }
        state.retries += 1;
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
        let ended = state.restart(Restart::Reset, self.database.defaults());
        drop(state);
        ended.fail();
    }

    /// Fails everything that is pending and every call to come, until a reset.
    pub fn cancel(&self) {
        let mut state = self.state.lock();
        state.dead = Some(Code::TRANSACTION_CANCELLED);
        let ended = state.end();
        drop(state);
        ended.fail();
    }

    /// Fails what is pending when the timeout option's time has come.
    pub(super) fn watch_deadline(self: &Arc<Self>, deadline: Option<Instant>) {
        let Some(deadline) = deadline else { return };
        let transaction = Arc::downgrade(self);
        network::schedule(
            deadline,
            Box::new(move || {
                let Some(transaction) = transaction.upgrade() else { return };
                let mut state = transaction.state.lock();
                if state.check_alive() == Err(Code::TRANSACTION_TIMED_OUT) {
                    let ended = Ended { code: Code::TRANSACTION_TIMED_OUT, ..state.end() };
                    drop(state);
                    ended.fail();
                }
            }),
        );
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
struct Ended {
    futures: Vec<Arc<Future>>,
    code: Code,
}

impl Ended {
    fn fail(self) {
        for future in self.futures {
            future.fail(self.code);
        }
    }
}

impl State {
    /// Takes everything that is pending, and makes an answer that is still to come find no one.
    fn end(&mut self) -> Ended {
        self.generation += 1;
        let mut futures = std::mem::take(&mut self.outstanding);
        futures.append(&mut self.stamps);
        futures.extend(self.watches.drain(..).map(|watch| watch.future));
        Ended { futures, code: Code::TRANSACTION_CANCELLED }
    }

    fn restart(&mut self, how: Restart, defaults: crate::options::TransactionOptions) -> Ended {
        let ended = self.end();
        let old = std::mem::replace(self, State::new(defaults));
        self.generation = old.generation;
        self.phase = Phase::Open;
        if how == Restart::Retry {
            self.options = old.options.persistent(&self.options);
            self.created = old.created;
            self.committed_version = old.committed_version;
            self.retries = old.retries;
            self.backoff = old.backoff;
        }
        ended
    }
}
