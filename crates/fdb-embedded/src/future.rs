//! Futures: a value or an error that arrives once, and the callbacks that wait for it.
//!
//! A callback registered on a ready future runs at once on the caller's thread; on a pending one it runs on the
//! network thread, once, after the value is visible. *Hooks* are our own, run where the future is completed.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::{Code, Result};
use crate::fork;
use crate::network::{self, Task, Tasks};
use crate::rows::{MappedRows, RowSet};

/// What a future carries. The getter of the C API has to match it.
#[derive(Debug)]
#[expect(missing_docs, reason = "the variants are the C API's result types")]
pub enum Output {
    Void,
    Bool(bool),
    Int64(i64),
    UInt64(u64),
    Double(f64),
    Key(Bytes),
    Value(Option<Bytes>),
    Rows(RowSet),
    MappedRows(MappedRows),
    Keys(Vec<Bytes>),
    KeyRanges(Vec<(Bytes, Bytes)>),
    Strings(Vec<std::ffi::CString>),
    /// A cluster or database of the API before version 610: the cluster file's path.
    ClusterFile(Option<std::ffi::CString>),
}

impl Output {
    fn shared(self) -> Arc<Output> {
        // What most futures of writers carry.
        static VOID: LazyLock<Arc<Output>> = LazyLock::new(|| Arc::new(Output::Void));
        match self {
            Output::Void => Arc::clone(&VOID),
            output => Arc::new(output),
        }
    }
}

#[derive(Default)]
struct Waiting {
    hooks: Tasks,
    callbacks: Tasks,
    /// Has the future completed; called when somebody first asks for it.
    start: Option<Task>,
}

enum State {
    Pending(Waiting),
    Ready(Result<Arc<Output>>),
}

/// A shared, single-assignment result.
pub struct Future {
    state: Mutex<State>,
    ready: Condvar,
}

impl Future {
    /// A future that is not ready yet.
    #[must_use]
    pub fn pending() -> Arc<Future> {
        Self::with(State::Pending(Waiting::default()))
    }

    /// A future that is ready from the start.
    #[must_use]
    pub fn ready(result: Result<Output>) -> Arc<Future> {
        Self::with(State::Ready(result.map(Output::shared)))
    }

    /// A future whose completion begins, by `start`, when somebody first asks whether it is ready, or waits for it.
    #[must_use]
    pub fn lazy(start: impl FnOnce(Arc<Future>) + Send + 'static) -> Arc<Future> {
        let future = Self::pending();
        let own = Arc::clone(&future);
        // It holds itself until it is started or completed, which to destroy it does.
        future.set_start(Box::new(move || start(own)));
        future
    }

    fn set_start(&self, start: Task) {
        if let State::Pending(waiting) = &mut *self.state.lock() {
            waiting.start = Some(start);
        }
    }

    fn with(state: State) -> Arc<Future> {
        Arc::new(Future { state: Mutex::new(state), ready: Condvar::new() })
    }

    /// True once there is a value or an error.
    pub fn is_ready(&self) -> bool {
        self.result().err() != Some(Code::FUTURE_NOT_SET)
    }

    /// The result; `FUTURE_NOT_SET` while pending.
    pub fn result(&self) -> Result<Arc<Output>> {
        let start = match &mut *self.state.lock() {
            State::Ready(result) => return result.clone(),
            State::Pending(waiting) => waiting.start.take(),
        };
        begin(start);
        Err(Code::FUTURE_NOT_SET)
    }

    /// Gives the future its result, unless it already has one. True when this call did it.
    pub fn complete(&self, result: Result<Output>) -> bool {
        self.complete_shared(result.map(Output::shared))
    }

    /// Like [`Future::complete`], with the result of another future.
    pub fn complete_shared(&self, result: Result<Arc<Output>>) -> bool {
        let waiting = {
            let mut state = self.state.lock();
            let State::Pending(waiting) = &mut *state else { return false };
            let waiting = std::mem::take(waiting);
            *state = State::Ready(result);
            self.ready.notify_all();
            waiting
        };
        for hook in waiting.hooks {
            hook();
        }
        network::post(waiting.callbacks);
        true
    }

    /// Completes without a value.
    pub fn succeed(&self) -> bool {
        self.complete(Ok(Output::Void))
    }

    /// Completes with an error.
    pub fn fail(&self, code: Code) -> bool {
        self.complete(Err(code))
    }

    /// Frees the value, if there is one; the future then fails with `FUTURE_RELEASED`.
    pub fn release(&self) {
        let released = match &mut *self.state.lock() {
            State::Ready(result @ Ok(_)) => std::mem::replace(result, Err(Code::FUTURE_RELEASED)),
            _ => return,
        };
        // A large value is freed without the lock.
        drop(released);
    }

    /// Runs `callback` on the network thread once the result is there; at once, here, if it is there already.
    pub fn on_ready(&self, callback: Task) {
        self.register(callback, |waiting| &mut waiting.callbacks);
    }

    /// Runs `hook` as part of the completion, on whatever thread completes.
    pub fn hook(&self, hook: Task) {
        self.register(hook, |waiting| &mut waiting.hooks);
    }

    fn register(&self, callback: Task, list: fn(&mut Waiting) -> &mut Tasks) {
        let start = match &mut *self.state.lock() {
            State::Pending(waiting) => {
                list(waiting).push(callback);
                waiting.start.take()
            }
            State::Ready(_) => Some(callback),
        };
        begin(start);
    }

    /// Blocks until the result is there. On the network thread that would never end, so it is refused there.
    pub fn block_until_ready(&self) -> Result<()> {
        let mut state = self.state.lock();
        if matches!(*state, State::Pending(_)) && network::is_network_thread() {
            return Err(Code::BLOCKED_FROM_NETWORK_THREAD);
        }
        if fork::is_forked() && matches!(&*state, State::Pending(waiting) if waiting.start.is_none()) {
            // What would complete it goes on in the parent alone.
            *state = State::Ready(Err(fork::refuse()));
        }
        while let State::Pending(waiting) = &mut *state {
            match waiting.start.take() {
                Some(start) => MutexGuard::unlocked(&mut state, start),
                None => self.ready.wait(&mut state),
            }
        }
        Ok(())
    }
}

fn begin(callback: Option<Task>) {
    if let Some(callback) = callback {
        callback();
    }
}

impl std::fmt::Debug for Future {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &*self.state.lock() {
            State::Pending(_) => f.write_str("Future(pending)"),
            State::Ready(result) => write!(f, "Future({result:?})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn the_first_result_stays_and_hooks_run_once() {
        let future = Future::pending();
        let runs = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&runs);
        future.hook(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        assert_eq!(future.result().unwrap_err(), Code::FUTURE_NOT_SET);
        assert!(future.complete(Ok(Output::Int64(7))));
        assert!(!future.fail(Code::OPERATION_CANCELLED));
        assert!(matches!(*future.result().unwrap(), Output::Int64(7)));
        assert_eq!(runs.load(Ordering::Relaxed), 1);
        let count = Arc::clone(&runs);
        future.on_ready(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        assert_eq!(runs.load(Ordering::Relaxed), 2, "on a ready future it runs at once");
    }

    #[test]
    fn a_lazy_future_begins_when_it_is_asked_for() {
        type Ask = fn(&Arc<Future>);
        let asks: [Ask; 3] =
            [|f| assert!(!f.is_ready()), |f| f.on_ready(Box::new(|| {})), |f| f.block_until_ready().unwrap()];
        for ask in asks {
            let future = Future::lazy(|future| assert!(future.succeed()));
            ask(&future);
            assert!(future.is_ready());
        }
        let unasked = Future::lazy(|_| panic!("nobody asked"));
        assert_eq!(Arc::strong_count(&unasked), 2);
        unasked.fail(Code::OPERATION_CANCELLED);
        assert_eq!(Arc::strong_count(&unasked), 1, "it has let go of itself");
    }
}
