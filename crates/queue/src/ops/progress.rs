//! The progress of a lease's items.

use foundationdb::Transaction;

use crate::keys::Space;
use crate::keys::leases::Header;
use crate::keys::progress::{ProgressRecord, key};
use crate::model::error::QueueError;
use crate::model::lease_id::LeaseId;
use crate::model::progress::Progress;
use mutant::mutant;

/// Adds what is new of items that are not acknowledged to the lease's record, and notes in the header that there is one. The caller writes
/// the header, which it has read with a conflict.
pub(crate) async fn add(
    space: &Space,
    tr: &Transaction,
    (id, header): (LeaseId, &mut Header),
    news: &[(usize, Progress)],
) -> Result<(), QueueError> {
    let mut record = read(space, tr, id, header).await?;
    for (index, progress) in news {
        if let Ok(index) = u32::try_from(*index) {
            record.0.insert(index, progress.clone());
        }
    }
    record.0.retain(|index, _| header.acknowledged.is_open(*index as usize));
    if !record.0.is_empty() {
        header.progress = !mutant("progress-unmarked");
        tr.set(&key(&space.progress, id), &record.encode());
    }
    Ok(())
}

/// The record of a lease; an empty one if it has none, or one that cannot be read. Conflicts with nothing: only the lease's holder writes it, with
/// the header.
pub(crate) async fn read(
    space: &Space,
    tr: &Transaction,
    id: LeaseId,
    header: &Header,
) -> Result<ProgressRecord, QueueError> {
    if !header.progress {
        return Ok(ProgressRecord::default());
    }
    let value = tr.get(&key(&space.progress, id), true).await?;
    Ok(value.and_then(|value| ProgressRecord::decode(&value)).unwrap_or_default())
}

/// Clears the record of a lease that is over, if it has one.
pub(crate) fn clear(space: &Space, tr: &Transaction, id: LeaseId, header: &Header) {
    if header.progress && !mutant("progress-stays") {
        tr.clear(&key(&space.progress, id));
    }
}
