//! Outcomes on their way from the dispatchers to the lease keeper.

use std::sync::{Mutex, MutexGuard};

use kvqueue_queue::ItemOutcome;
use tokio::sync::Notify;

/// Outcomes that are not acknowledged yet, by the items' indexes in the lease.
///
/// Dispatchers and keeper are on different threads, and waking a thread costs more than handling a
/// small item. So only the first outcome wakes the keeper, and the one that completes a slice. The
/// keeper then takes all outcomes together.
#[derive(Debug, Default)]
pub(super) struct AckBuffer {
    pending: Mutex<PendingOutcomes>,
    /// There are outcomes, or a slice is complete.
    pub(super) changed: Notify,
}

#[derive(Debug, Default)]
struct PendingOutcomes {
    outcomes: Vec<(usize, ItemOutcome)>,
    slice_complete: bool,
}

/// How soon the buffer has to be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    Nothing,
    Outcomes,
    /// The last outcome of a slice is there: its consumer waits for the acknowledgement.
    CompleteSlice,
}

impl AckBuffer {
    fn lock(&self) -> MutexGuard<'_, PendingOutcomes> {
        self.pending.lock().expect("nothing panics while it holds the lock")
    }

    /// Adds an outcome. `slice_complete` if it is the last one of its slice.
    pub(super) fn push(&self, index: usize, outcome: ItemOutcome, slice_complete: bool) {
        let mut pending = self.lock();
        pending.outcomes.push((index, outcome));
        let is_news = pending.outcomes.len() == 1 || (slice_complete && !pending.slice_complete);
        pending.slice_complete |= slice_complete;
        if is_news {
            self.changed.notify_one();
        }
    }

    pub(super) fn pending(&self) -> Pending {
        let pending = self.lock();
        match (pending.outcomes.is_empty(), pending.slice_complete) {
            (true, _) => Pending::Nothing,
            (false, false) => Pending::Outcomes,
            (false, true) => Pending::CompleteSlice,
        }
    }

    /// Removes all outcomes.
    pub(super) fn take(&self) -> Vec<(usize, ItemOutcome)> {
        std::mem::take(&mut *self.lock()).outcomes
    }
}
