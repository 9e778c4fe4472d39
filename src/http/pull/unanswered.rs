//! A lease on its way to its worker.

use std::{sync::Arc, time::Instant};

use kvqueue_queue::{ItemOutcome, Lease};

use crate::http::backend::{Backend, POLICY};

/// A lease whose id no worker has. If it is dropped, its items become ready again, without an attempt spent.
pub(super) struct Unanswered {
    lease: Option<Lease>,
    /// When its fetch began.
    began: Instant,
    backend: Arc<Backend>,
}

impl Unanswered {
    pub(super) fn new(backend: &Arc<Backend>, lease: Lease, began: Instant) -> Self {
        Self { lease: Some(lease), began, backend: backend.clone() }
    }

    /// The lease, as long as no worker has it.
    pub(super) fn leased(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// The same, to change it.
    pub(super) fn lease(&mut self) -> Option<&mut Lease> {
        self.lease.as_mut()
    }

    /// Whether all items of the lease have ended.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.lease.as_ref().is_none_or(Lease::is_acknowledged)
    }

    /// The lease, which now goes to its worker, and when its fetch began.
    pub(super) fn keep(mut self) -> Option<(Lease, Instant)> {
        Some((self.lease.take()?, self.began))
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let Some(mut lease) = self.lease.take().filter(|lease| !lease.is_acknowledged()) else { return };
        let db = self.backend.daemon.db.clone();
        drop(self.backend.spawn(async move {
            let outcomes: Vec<_> = lease.open().map(|index| (index, ItemOutcome::Release)).collect();
            if let Err(error) = lease.acknowledge(&db, &POLICY, &outcomes).await {
                tracing::debug!(event = "lease_unreleased", %error, "the items of a client that has gone stay until their lease expires");
            }
        }));
    }
}
