//! Leases that this daemon has not kept: another one has given them out, or they were forgotten.

use kvqueue_queue::{ItemId, Lease, LeaseId};

use super::acknowledging::over;
use crate::http::{api_request::ApiRequest, error::ApiError};

/// A lease that this daemon has not kept.
pub(super) enum Found {
    Lease(Box<Lease>),
    /// It is over, since the items that were left of it were cancelled.
    Cancelled(Vec<ItemId>),
}

pub(super) async fn find(request: &ApiRequest, id: LeaseId) -> Result<Found, ApiError> {
    let _permit = request.app.pullers.leases.permit().await;
    let queue = &request.queue()?;
    let read = request.app.backend.run(|tr| async move {
        let found = async {
            match queue.lease(&tr, id).await? {
                Some(lease) => Ok(Some(Found::Lease(Box::new(lease)))),
                None => {
                    let cancelled = queue.cancelled_items(&tr, id).await?;
                    Ok((!cancelled.is_empty()).then_some(Found::Cancelled(cancelled)))
                }
            }
        };
        let found = found.await;
        (tr, found)
    });
    let found = read.await?;
    if !matches!(found, Some(Found::Lease(_))) {
        request.forget_lease(id);
    }
    found.ok_or_else(over)
}

pub(super) fn texts(ids: &[ItemId]) -> Vec<String> {
    ids.iter().map(ItemId::to_string).collect()
}
