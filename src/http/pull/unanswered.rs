//! A lease on its way to its worker.

use std::{sync::Arc, time::Instant};

use kvqueue_queue::{ItemOutcome, Lease};

use crate::http::{app_state::AppState, database::POLICY};

/// A lease whose id no worker has. If it is dropped, its items become ready again, without an attempt spent.
pub(super) struct Unanswered {
    lease: Option<Lease>,
    /// When its fetch began.
    began: Instant,
    app: Arc<AppState>,
}

impl Unanswered {
    pub(super) fn new(app: &Arc<AppState>, lease: Lease, began: Instant) -> Self {
        Self { lease: Some(lease), began, app: app.clone() }
    }

    /// The lease, which now goes to its worker, and when its fetch began.
    pub(super) fn keep(mut self) -> Option<(Lease, Instant)> {
        Some((self.lease.take()?, self.began))
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let Some(mut lease) = self.lease.take() else { return };
        let db = self.app.daemon.db.clone();
        drop(self.app.spawn(async move {
            let outcomes: Vec<_> = lease.open().map(|index| (index, ItemOutcome::Release)).collect();
            if let Err(error) = lease.acknowledge(&db, &POLICY, &outcomes).await {
                tracing::debug!(event = "lease_unreleased", %error, "the items of a client that has gone stay until their lease expires");
            }
        }));
    }
}
