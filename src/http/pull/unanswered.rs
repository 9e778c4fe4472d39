//! A lease on its way to its worker.

use std::sync::Arc;

use kvqueue_queue::{ItemOutcome, Lease};

use crate::http::{app_state::AppState, database::POLICY};

/// A lease whose id no worker has. If it is dropped, its items become ready again, without an attempt spent.
pub(super) struct Unanswered {
    lease: Option<Lease>,
    app: Arc<AppState>,
}

impl Unanswered {
    pub(super) fn new(app: &Arc<AppState>, lease: Lease) -> Self {
        Self { lease: Some(lease), app: app.clone() }
    }

    /// The lease, which now goes to its worker.
    pub(super) fn keep(mut self) -> Option<Lease> {
        self.lease.take()
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
