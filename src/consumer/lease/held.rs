//! The leases of a queue that this process holds, so that their keepers can be woken when items are cancelled.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use kvqueue_queue::LeaseId;
use tokio::sync::{Notify, mpsc::WeakUnboundedSender};

use super::slice::KeeperRequest;

/// Keepers add themselves; the cancellation follower of the queue wakes them.
#[derive(Debug, Default)]
pub(crate) struct HeldLeases {
    keepers: Mutex<HashMap<LeaseId, Keeper>>,
    /// There is a lease.
    added: Notify,
}

#[derive(Debug)]
struct Keeper {
    requests: WeakUnboundedSender<KeeperRequest>,
    /// How many of the lease's items were cancelled when the keeper was woken last.
    cancelled: usize,
}

impl HeldLeases {
    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseId, Keeper>> {
        self.keepers.lock().expect("nothing panics while it holds the lock")
    }

    /// Adds a lease until the guard is dropped.
    pub(super) fn add(
        self: &Arc<Self>,
        lease: LeaseId,
        requests: WeakUnboundedSender<KeeperRequest>,
    ) -> Held {
        let is_first = {
            let mut keepers = self.lock();
            keepers.insert(lease, Keeper { requests, cancelled: 0 });
            keepers.len() == 1
        };
        if is_first {
            self.added.notify_one();
        }
        Held { lease, leases: self.clone() }
    }

    /// The leases that are held now.
    pub(crate) fn ids(&self) -> Vec<LeaseId> {
        self.lock().keys().copied().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Waits until a lease is held.
    pub(crate) async fn any(&self) {
        while self.is_empty() {
            self.added.notified().await;
        }
    }

    /// So many items of a lease are cancelled. Wakes its keeper if it does not know of them all.
    pub(crate) fn wake(&self, lease: LeaseId, cancelled: usize) {
        let mut keepers = self.lock();
        let Some(keeper) = keepers.get_mut(&lease).filter(|keeper| keeper.cancelled < cancelled) else {
            return;
        };
        keeper.cancelled = cancelled;
        if let Some(requests) = keeper.requests.upgrade() {
            // A keeper that has ended has nothing to stop.
            let _ = requests.send(KeeperRequest::LookForCancelled);
        }
    }
}

/// A held lease.
#[derive(Debug)]
pub(super) struct Held {
    lease: LeaseId,
    leases: Arc<HeldLeases>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.leases.lock().remove(&self.lease);
    }
}
