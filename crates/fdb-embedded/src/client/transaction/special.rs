//! Special keys, as a transaction reads and writes them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use super::reads::{RangeArguments, range_read};
use super::{State, Transaction};
use crate::client::special_keys::{self, Facts, Session};
use crate::error::{Code, Result};
use crate::future::{Future, Output};
use crate::link::View;

impl Transaction {
    pub(super) fn get_special(self: &Arc<Self>, key: &[u8]) -> Arc<Future> {
        let key = key.to_vec();
        let waits = special_keys::shows_reads(&key, &key);
        self.read_special(waits, move |facts| special_keys::get(facts, &key).map(Output::Value))
    }

    pub(super) fn get_special_range(self: &Arc<Self>, arguments: &RangeArguments) -> Arc<Future> {
        let arguments = arguments.clone();
        let waits = special_keys::shows_reads(&arguments.begin.key, &arguments.end.key);
        self.read_special(waits, move |facts| {
            special_keys::range(facts, &range_read(&arguments)?).map(Output::Rows)
        })
    }

    /// Special keys are read whatever became of the commit; if it `waits`, once the reads that are under way have ended.
    fn read_special(
        self: &Arc<Self>,
        waits: bool,
        read: impl FnOnce(&Facts<'_>) -> Result<Output> + Send + 'static,
    ) -> Arc<Future> {
        let state = self.state.lock();
        if !waits || state.reading.is_empty() {
            return Future::ready(self.special_now(state, read));
        }
        let reading = state.reading.clone();
        let generation = self.generation.load(Ordering::Acquire);
        drop(state);
        let future = Future::pending();
        let (own, answer) = (Arc::clone(self), Arc::clone(&future));
        after_all(
            reading,
            Box::new(move || {
                let state = own.state.lock();
                let result = if own.generation.load(Ordering::Acquire) == generation {
                    own.special_now(state, read)
                } else {
                    drop(state);
                    Err(Code::TRANSACTION_CANCELLED)
                };
                answer.complete(result);
            }),
        );
        future
    }

    fn special_now(
        &self,
        mut state: MutexGuard<'_, State>,
        read: impl FnOnce(&Facts<'_>) -> Result<Output>,
    ) -> Result<Output> {
        state.check_alive()?;
        state.deferred.map_or(Ok(()), Err)?;
        read(&state.special_facts(self))
    }

    pub(super) fn set_special(&self, key: &[u8], value: &[u8]) {
        self.write_special(|session, is_first| session.set(key, value, is_first));
    }

    /// Runs `write`, which is told whether the transaction has done nothing yet.
    pub(super) fn write_special(&self, write: impl FnOnce(&mut Session, bool) -> Result<()>) {
        self.apply(|state| {
            if !state.options.special_keys_writes {
                return Err(Code::SPECIAL_KEYS_WRITE_DISABLED);
            }
            let is_first = state.size == 0;
            write(&mut state.special, is_first)
        });
    }
}

impl State {
    fn special_facts<'s>(&'s self, transaction: &'s Transaction) -> Facts<'s> {
        let mut writes = self.write_conflicts.clone();
        let read_version = self.view.as_ref().and_then(View::known_version).unwrap_or(0);
        for (begin, end) in self.writes.stamped_ranges(read_version) {
            writes.insert(begin, end);
        }
        Facts {
            database: &transaction.database,
            session: &self.special,
            conflicting: &self.conflicting,
            reads: &self.reads,
            writes,
            relaxed: self.options.special_keys_relaxed,
        }
    }
}

/// Calls `then` when all of `futures` have ended.
fn after_all(mut futures: Vec<Arc<Future>>, then: Box<dyn FnOnce() + Send>) {
    match futures.pop() {
        Some(future) => future.on_ready(Box::new(move || after_all(futures, then))),
        None => then(),
    }
}
