//! The leases that this daemon has given out, so that it need not read their items again.
//!
//! Another daemon may change a lease meanwhile. That does no harm: each change of a lease reads its header in the database.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Mutex, PoisonError},
};

use kvqueue_queue::{Lease, LeaseId};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The most transactions that change leases at a time. Further ones wait.
const CHANGES: usize = 64;

/// The most leases.
const MOST: usize = 16_384;

/// The most bytes of their items.
const MOST_BYTES: usize = 32 << 20;

/// How many leases that are over are remembered.
const MOST_OVER: usize = 65_536;

/// What a lease and an item take in addition to the payload, in bytes, about.
const OVERHEAD: usize = 256;

/// The leases that workers have from this daemon, and the room for changes of them.
#[derive(Debug)]
pub(in crate::http) struct Leases {
    kept: Mutex<KeptLeases>,
    permits: Semaphore,
}

impl Default for Leases {
    fn default() -> Self {
        Self { kept: Mutex::default(), permits: Semaphore::new(CHANGES) }
    }
}

impl Leases {
    /// Waits for a database permit for a change of leases.
    pub(super) async fn permit(&self) -> SemaphorePermit<'_> {
        self.permits.acquire().await.expect("nothing closes the semaphore")
    }

    /// Removes a lease of a queue from the kept leases, and returns it.
    pub(super) fn take(&self, queue: &str, id: LeaseId) -> Known {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).take(queue.as_bytes(), id)
    }

    /// Whether all items of a lease were acknowledged through this daemon.
    pub(super) fn is_over(&self, id: LeaseId) -> bool {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).is_over(id)
    }

    /// Keeps a lease of a queue.
    pub(super) fn keep(&self, queue: &str, lease: Lease) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).put(queue.as_bytes(), lease);
    }
}

/// Leases, by their ids. The oldest ones are forgotten first.
#[derive(Debug, Default)]
struct KeptLeases {
    open: HashMap<LeaseId, Entry>,
    /// The ids in the order in which the leases were kept, each with its number. An id may be here more than once.
    order: VecDeque<(LeaseId, u64)>,
    bytes: usize,
    /// How many were kept so far.
    number: u64,
    over: HashSet<LeaseId>,
    over_in_order: VecDeque<LeaseId>,
}

#[derive(Debug)]
struct Entry {
    lease: Lease,
    queue: Box<[u8]>,
    bytes: usize,
    number: u64,
}

/// What is known of a lease.
pub(super) enum Known {
    Open(Box<Lease>),
    /// All of its items were acknowledged.
    Over,
    Nothing,
}

impl KeptLeases {
    /// Takes a lease of a queue out.
    fn take(&mut self, queue: &[u8], id: LeaseId) -> Known {
        if self.over.contains(&id) {
            return Known::Over;
        }
        match self.open.get(&id) {
            Some(entry) if *entry.queue == *queue => {}
            _ => return Known::Nothing,
        }
        self.remove(id).map_or(Known::Nothing, |lease| Known::Open(Box::new(lease)))
    }

    /// Whether all items of a lease were acknowledged.
    fn is_over(&self, id: LeaseId) -> bool {
        self.over.contains(&id)
    }

    /// Keeps a lease of a queue; or only remembers it, if all of its items are acknowledged.
    fn put(&mut self, queue: &[u8], lease: Lease) {
        let id = lease.id();
        drop(self.remove(id));
        if self.over.contains(&id) {
            return;
        }
        if lease.is_acknowledged() {
            self.over.insert(id);
            self.over_in_order.push_back(id);
            if self.over_in_order.len() > MOST_OVER
                && let Some(oldest) = self.over_in_order.pop_front()
            {
                self.over.remove(&oldest);
            }
            return;
        }
        let items = lease.items().iter().map(|item| item.payload.len() + OVERHEAD);
        let bytes = OVERHEAD + items.sum::<usize>();
        self.number += 1;
        self.bytes += bytes;
        self.order.push_back((id, self.number));
        self.open.insert(id, Entry { lease, queue: queue.into(), bytes, number: self.number });
        while (self.bytes > MOST_BYTES || self.order.len() > MOST)
            && let Some((oldest, number)) = self.order.pop_front()
        {
            if self.open.get(&oldest).is_some_and(|entry| entry.number == number) {
                drop(self.remove(oldest));
            }
        }
    }

    fn remove(&mut self, id: LeaseId) -> Option<Lease> {
        let entry = self.open.remove(&id)?;
        self.bytes -= entry.bytes;
        Some(entry.lease)
    }
}
