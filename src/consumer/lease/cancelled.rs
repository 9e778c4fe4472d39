//! Which items of a lease were cancelled, and the calls of handlers that have its items.

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio_util::sync::CancellationToken;

/// Shared by a lease's keeper, which cancels, and the dispatchers of its slices. Indexes are those of the lease.
#[derive(Debug, Default)]
pub(super) struct CancelledItems {
    /// Whether there are any: most leases have none, and their dispatchers look no further.
    any: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    items: BTreeSet<usize>,
    /// The calls under way. A slice has one at a time, and each call that overran its time limit.
    calls: Vec<(Range<usize>, CancellationToken)>,
}

impl CancelledItems {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nothing panics while it holds the lock")
    }

    /// An item was cancelled: stops the call that has it. Returns whether that is news.
    pub(super) fn cancel(&self, index: usize) -> bool {
        let mut inner = self.lock();
        let is_news = inner.items.insert(index);
        self.any.store(true, Ordering::Release);
        inner.calls.iter().filter(|(items, _)| items.contains(&index)).for_each(|(_, call)| call.cancel());
        is_news
    }

    pub(super) fn contains(&self, index: usize) -> bool {
        self.any.load(Ordering::Acquire) && self.lock().items.contains(&index)
    }

    /// The first cancelled item of these.
    pub(super) fn first(&self, items: Range<usize>) -> Option<usize> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.lock().items.range(items).next().copied()
    }

    /// A call of a handler begins. `token` is cancelled when one of its items is.
    pub(super) fn begin(self: &Arc<Self>, items: Range<usize>, token: &CancellationToken) -> CallGuard {
        let mut inner = self.lock();
        if inner.items.range(items.clone()).next().is_some() {
            token.cancel();
        }
        inner.calls.push((items.clone(), token.clone()));
        CallGuard { items, cancelled: self.clone() }
    }
}

/// A call of a handler. Dropped, it is over.
#[derive(Debug)]
pub(crate) struct CallGuard {
    items: Range<usize>,
    cancelled: Arc<CancelledItems>,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let mut inner = self.cancelled.lock();
        if let Some(at) = inner.calls.iter().position(|(items, _)| *items == self.items) {
            inner.calls.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_item_stops_the_call_that_has_it() {
        let cancelled = Arc::new(CancelledItems::default());
        let tokens = [CancellationToken::new(), CancellationToken::new()];
        let calls = [cancelled.begin(0..2, &tokens[0]), cancelled.begin(2..3, &tokens[1])];
        assert!(cancelled.cancel(1) && !cancelled.cancel(1));
        assert_eq!(tokens.each_ref().map(CancellationToken::is_cancelled), [true, false]);
        assert_eq!((cancelled.first(0..3), cancelled.first(2..3)), (Some(1), None));
        drop(calls);
        // It is over: nothing is left to be stopped.
        cancelled.cancel(2);
        assert!(!tokens[1].is_cancelled());
    }

    #[test]
    fn a_call_with_a_cancelled_item_is_stopped_at_once() {
        let cancelled = Arc::new(CancelledItems::default());
        cancelled.cancel(1);
        let token = CancellationToken::new();
        let _call = cancelled.begin(1..2, &token);
        assert!(token.is_cancelled() && cancelled.contains(1) && !cancelled.contains(0));
    }
}
