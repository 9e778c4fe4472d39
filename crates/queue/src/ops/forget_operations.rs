//! Forgetting operations that are too old to be repeated.

use foundationdb::Transaction;
use mutant::bound;

use crate::keys::{Space, after, operations, range};
use crate::model::error::QueueError;
use crate::model::time::Millis;
use crate::ops::times;
use crate::run::range_read::RangeRead;
use crate::run::version::now;

/// The most operations of one transaction.
fn page_rows() -> usize {
    bound("forget-operations-page", 1_000)
}

/// Clears the first operations that are older than `kept` versions at the time `at`; returns how many. There may be more.
///
/// Read without a conflict: nobody changes a record of the log, and as long as an operation's record is there, nobody else makes one.
pub(crate) async fn forget_operations(
    space: &Space,
    tr: &Transaction,
    at: Millis,
    kept: u64,
) -> Result<usize, QueueError> {
    let (begin, _) = range(&space.oplog);
    let old_before = times::old_before(&times::read(space, tr, true).await?, now(tr).await?, at, kept);
    let end = operations::log_before(&space.oplog, old_before).max(begin.clone());
    let rows = RangeRead::of((&begin[..], &end[..])).limit(page_rows()).page(tr).await?;
    for row in rows.iter() {
        tr.clear(&space.operation_key(row.value()));
    }
    if let Some(last) = rows.last() {
        tr.clear_range(&begin, &after(last.key()));
    }
    Ok(rows.len())
}
