//! Futures: a value or an error that arrives once, and the callbacks that wait for it.
//!
//! A callback registered on a ready future runs at once on the caller's thread. On a pending one it
//! runs on the network thread, once, after the value is visible. *Hooks* are internal callbacks,
//! which run on the thread that completes the future.

use std::sync::{Arc, LazyLock};

use baton::{Condvar, Mutex, MutexGuard};
use bytes::Bytes;

use crate::error::{Code, Result};
use crate::fork;
use crate::network::{self, Task, Tasks};
use crate::rows::{MappedRows, RowSet};

/// The value of a future. The getter of the C API must match it.
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
    /// A cluster or database of API versions before 610: the path of the cluster file.
    ClusterFile(Option<std::ffi::CString>),
}

impl Output {
    fn shared(self) -> Arc<Output> {
        // The value of most futures of writers.
        static VOID: LazyLock<Arc<Output>> = LazyLock::new(|| Arc::new(Output::Void));
        match self {
            Output::Void => Arc::clone(&VOID),
            output => Arc::new(output),
        }
    }
}

#[derive(Default)]
struct Subscribers {
    hooks: Tasks,
    callbacks: Tasks,
    /// Starts the work that completes the future; called when its result is first needed.
    start: Option<Task>,
}

enum FutureState {
    Pending(Subscribers),
    Ready(Result<Arc<Output>>),
}

/// A shared result that is set once.
pub struct Future {
    state: Mutex<FutureState>,
    ready: Condvar,
}

impl Future {
    /// A pending future.
    #[must_use]
    pub fn pending() -> Arc<Future> {
        Self::with(FutureState::Pending(Subscribers::default()))
    }

    /// A future that is ready from the start.
    #[must_use]
    pub fn ready(result: Result<Output>) -> Arc<Future> {
        Self::with(FutureState::Ready(result.map(Output::shared)))
    }

    /// A pending future that calls `start` when its result is first needed.
    #[must_use]
    pub fn lazy(start: impl FnOnce(Arc<Future>) + Send + 'static) -> Arc<Future> {
        let future = Self::pending();
        let own = Arc::clone(&future);
        // The future holds a reference to itself until it is started or completed; destroying it
        // completes it.
        future.set_start(Box::new(move || start(own)));
        future
    }

    fn set_start(&self, start: Task) {
        if let FutureState::Pending(subscribers) = &mut *self.state.lock() {
            subscribers.start = Some(start);
        }
    }

    fn with(state: FutureState) -> Arc<Future> {
        Arc::new(Future { state: Mutex::new(state), ready: Condvar::new() })
    }

    /// True if the future has a value or an error.
    pub fn is_ready(&self) -> bool {
        self.result().err() != Some(Code::FUTURE_NOT_SET)
    }

    /// The result, or `FUTURE_NOT_SET` while it is pending.
    pub fn result(&self) -> Result<Arc<Output>> {
        let start = match &mut *self.state.lock() {
            FutureState::Ready(result) => return result.clone(),
            FutureState::Pending(subscribers) => subscribers.start.take(),
        };
        begin(start);
        Err(Code::FUTURE_NOT_SET)
    }

    /// Sets the result, unless there is one. True if this call has set it.
    pub fn complete(&self, result: Result<Output>) -> bool {
        self.complete_shared(result.map(Output::shared))
    }

    /// Like [`Future::complete`], with the result of another future.
    pub fn complete_shared(&self, result: Result<Arc<Output>>) -> bool {
        let subscribers = {
            let mut state = self.state.lock();
            let FutureState::Pending(subscribers) = &mut *state else { return false };
            let subscribers = std::mem::take(subscribers);
            *state = FutureState::Ready(result);
            self.ready.notify_all();
            subscribers
        };
        for hook in subscribers.hooks {
            hook();
        }
        network::post(subscribers.callbacks);
        true
    }

    /// Completes the future without a value.
    pub fn succeed(&self) -> bool {
        self.complete(Ok(Output::Void))
    }

    /// Completes the future with an error.
    pub fn fail(&self, code: Code) -> bool {
        self.complete(Err(code))
    }

    /// Frees the value. The future then fails with `FUTURE_RELEASED`.
    pub fn release(&self) {
        let released = match &mut *self.state.lock() {
            FutureState::Ready(result @ Ok(_)) => std::mem::replace(result, Err(Code::FUTURE_RELEASED)),
            _ => return,
        };
        // Frees a large value without holding the lock.
        drop(released);
    }

    /// Calls `callback` on the network thread when the future is ready; at once on this thread if
    /// it is ready already.
    pub fn on_ready(&self, callback: Task) {
        self.register(callback, |subscribers| &mut subscribers.callbacks);
    }

    /// Calls `hook` as part of the completion, on the thread that completes the future.
    pub fn hook(&self, hook: Task) {
        self.register(hook, |subscribers| &mut subscribers.hooks);
    }

    fn register(&self, callback: Task, list: fn(&mut Subscribers) -> &mut Tasks) {
        let start = match &mut *self.state.lock() {
            FutureState::Pending(subscribers) => {
                list(subscribers).push(callback);
                subscribers.start.take()
            }
            FutureState::Ready(_) => Some(callback),
        };
        begin(start);
    }

    /// Blocks until the future is ready. Refused on the network thread, which would block forever.
    pub fn block_until_ready(&self) -> Result<()> {
        let mut state = self.state.lock();
        if matches!(*state, FutureState::Pending(_)) && network::is_network_thread() {
            return Err(Code::BLOCKED_FROM_NETWORK_THREAD);
        }
        if fork::is_forked()
            && matches!(&*state, FutureState::Pending(subscribers) if subscribers.start.is_none())
        {
            // Only the parent process can complete the future.
            *state = FutureState::Ready(Err(fork::refuse()));
        }
        while let FutureState::Pending(subscribers) = &mut *state {
            match subscribers.start.take() {
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
            FutureState::Pending(_) => f.write_str("Future(pending)"),
            FutureState::Ready(result) => write!(f, "Future({result:?})"),
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
    fn a_lazy_future_starts_on_first_use() {
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
