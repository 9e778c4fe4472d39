//! Suspects: items whose lease has expired before. One of them may have killed its worker.
//!
//! When a process dies, the leases of all its items expire, and one of these items may be the
//! cause. Such *poison* is found by group testing. After its first crash an item is fetched only in
//! a group with a sixteenth of the usual number of items; after its second crash it is fetched
//! alone. So an innocent item crashes twice at most because of one poisonous item: with the process
//! in which the poison is fetched for the first time, and in a group with it. That leaves the
//! innocent item an attempt even where the rules allow three. More and smaller groups would take
//! fewer transactions, and cost another attempt each.
//!
//! Groups alone do not help where the consumers of one process hold several leases: the process
//! dies with all of them. So the sessions of a process share a [`Quarantine`]: of each queue they
//! hold one lease of suspects at a time, and of all queues together one lease of an item that
//! crashed more than once. Fetches pass over other suspects meanwhile, and go on with the items
//! behind them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::model::suspicion::Suspicion;

/// The sessions of one process share a quarantine, so that they hold one lease of suspects of each
/// queue at a time.
///
/// A [`Session`](crate::Session) has one of its own, unless it gets a common one by
/// [`with_quarantine`](crate::Session::with_quarantine).
#[derive(Debug, Clone, Default)]
pub struct Quarantine(Arc<Shared>);

#[derive(Default)]
struct Shared {
    inside: Mutex<Inside>,
    /// Called when a lease of suspects ends.
    freed: Option<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Debug, Default)]
struct Inside {
    /// The queues of which the process holds a lease of suspects.
    queues: BTreeSet<Vec<u8>>,
    /// Whether one of these leases has an item that crashed more than once.
    often: bool,
}

/// A lease of suspects that the process holds. Dropped with the lease.
#[derive(Debug)]
pub(crate) struct Ward {
    quarantine: Quarantine,
    queue: Vec<u8>,
    often: bool,
}

impl Quarantine {
    /// A quarantine that calls `freed` whenever a lease of suspects ends. Takes that found nothing
    /// because of that lease may find items then.
    pub fn notifying(freed: impl Fn() + Send + Sync + 'static) -> Quarantine {
        Quarantine(Arc::new(Shared { inside: Mutex::default(), freed: Some(Box::new(freed)) }))
    }

    /// How suspect an item of a queue may be that is taken now.
    pub(crate) fn allows(&self, queue: &[u8]) -> Suspicion {
        let inside = self.lock();
        match (inside.queues.contains(queue), inside.often) {
            (true, _) => Suspicion::None,
            (false, true) => Suspicion::Once,
            (false, false) => Suspicion::Often,
        }
    }

    /// Enters a lease of suspects; `None` if the process holds one that excludes it.
    pub(crate) fn enter(&self, queue: &[u8], suspicion: Suspicion) -> Option<Ward> {
        let often = suspicion == Suspicion::Often;
        let mut inside = self.lock();
        if inside.queues.contains(queue) || (often && inside.often) {
            return None;
        }
        inside.queues.insert(queue.to_vec());
        inside.often |= often;
        drop(inside);
        Some(Ward { quarantine: self.clone(), queue: queue.to_vec(), often })
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.0.inside.lock().expect("nothing panics while it holds the lock")
    }
}

impl Drop for Ward {
    fn drop(&mut self) {
        let mut inside = self.quarantine.lock();
        inside.queues.remove(&self.queue);
        if self.often {
            inside.often = false;
        }
        drop(inside);
        if let Some(freed) = &self.quarantine.0.freed {
            freed();
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("inside", &self.inside).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn suspects_have_one_lease_per_queue_and_repeated_ones_one_per_process() {
        let quarantine = Quarantine::default();
        assert_eq!(quarantine.allows(b"a"), Suspicion::Often);
        let once = quarantine.enter(b"a", Suspicion::Once);
        assert!(once.is_some() && quarantine.enter(b"a", Suspicion::Once).is_none());
        assert_eq!([b"a", b"b"].map(|queue| quarantine.allows(queue)), [Suspicion::None, Suspicion::Often]);
        let often = quarantine.enter(b"b", Suspicion::Often);
        assert!(often.is_some() && quarantine.enter(b"c", Suspicion::Often).is_none());
        assert_eq!(quarantine.allows(b"c"), Suspicion::Once);
        drop(once);
        assert_eq!(quarantine.allows(b"a"), Suspicion::Once);
        drop(often);
        assert_eq!(quarantine.allows(b"a"), Suspicion::Often);
    }

    #[test]
    fn the_end_of_a_lease_of_suspects_notifies_consumers() {
        let times = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&times);
        let quarantine = Quarantine::notifying(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let ward = quarantine.enter(b"a", Suspicion::Once);
        assert_eq!(times.load(Ordering::Relaxed), 0);
        drop(ward);
        assert_eq!(times.load(Ordering::Relaxed), 1);
    }
}
