//! The time by which leases, requests and claims run out.

use foundationdb::Transaction;

use crate::error::QueueError;

/// The database version that the transaction reads at.
pub(crate) async fn now(tr: &Transaction) -> Result<u64, QueueError> {
    Ok(u64::try_from(tr.get_read_version().await?).unwrap_or(0))
}
