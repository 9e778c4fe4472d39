//! Making, committing and cancelling a batch.

use foundationdb::Transaction;

use super::{clear, mark, read, wake_sweepers};
use crate::keys::Space;
use crate::keys::batches::{Record, encode_callback};
use crate::model::error::QueueError;
use crate::model::item_batch::{BatchCommit, BatchCounts, BatchId, NewBatch};
use crate::model::time::{Millis, millis};
use crate::run::pause::check_unfrozen;

/// Makes a batch, unless it is there already.
pub(crate) async fn new(
    space: &Space,
    tr: &Transaction,
    id: &BatchId,
    batch: &NewBatch,
    now: Millis,
) -> Result<(), QueueError> {
    let keys = space.batches();
    let key = keys.record_key(id.unique());
    if tr.get(&key, false).await?.is_some() {
        return Ok(());
    }
    check_unfrozen(space, tr).await?;
    // A mark has the time 0.
    let deadline = batch.deadline.map(millis);
    let row = deadline.map(|deadline| deadline.max(1));
    let record = Record { created: now, committed: None, deadline, row, callback: None };
    tr.set(&key, &record.encode());
    tr.set(&keys.item_key(id.unique()), &encode_callback(&batch.callback));
    if let Some(row) = row {
        tr.set(&keys.due_key(row, id.unique()), &[]);
        // It may be earlier than their next look.
        wake_sweepers(&keys, tr);
    }
    Ok(())
}

pub(crate) async fn commit(
    space: &Space,
    tr: &Transaction,
    id: &BatchId,
    now: Millis,
) -> Result<BatchCommit, QueueError> {
    let keys = space.batches();
    let Some(record) = read::record(&keys, tr, id.unique()).await? else { return Ok(BatchCommit::Gone) };
    if record.committed.is_some() {
        return Ok(BatchCommit::WasCommitted);
    }
    check_unfrozen(space, tr).await?;
    tr.set(&keys.record_key(id.unique()), &Record { committed: Some(now), ..record }.encode());
    mark(&keys, tr, id.unique());
    Ok(BatchCommit::Committed)
}

/// Removes a batch. Returns how many members it had.
pub(crate) async fn cancel(
    space: &Space,
    tr: &Transaction,
    id: &BatchId,
) -> Result<Option<BatchCounts>, QueueError> {
    let keys = space.batches();
    let Some(record) = read::record(&keys, tr, id.unique()).await? else { return Ok(None) };
    check_unfrozen(space, tr).await?;
    let counts = read::counts(&keys, tr, id.unique()).await?;
    clear(&keys, tr, id.unique(), record.row);
    Ok(Some(counts))
}
