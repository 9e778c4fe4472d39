//! Database versions: the time by which leases, requests and claims run out, and that of a commit.

use foundationdb::{Transaction, TransactionCommitted};

use crate::model::error::QueueError;

/// The database version that the transaction reads at.
pub(crate) async fn now(tr: &Transaction) -> Result<u64, QueueError> {
    Ok(u64::try_from(tr.get_read_version().await?).unwrap_or(0))
}

/// The database version that the transaction committed at; `None` if it wrote nothing.
pub(crate) fn committed_at(committed: &TransactionCommitted) -> Option<u64> {
    u64::try_from(committed.committed_version().ok()?).ok()
}
