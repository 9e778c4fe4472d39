//! The old path of [`RowPage`], until `ops/promote.rs` and `ops/batches/due.rs` call [`RangeRead`] themselves.

use foundationdb::Transaction;

use crate::model::error::QueueError;
use crate::run::range_read::RangeRead;
pub(crate) use crate::run::range_read::RowPage;

impl RowPage {
    /// Reads up to `limit` rows, as [`RangeRead::page`] does.
    pub(crate) async fn read(
        tr: &Transaction,
        (begin, end): (impl AsRef<[u8]>, impl AsRef<[u8]>),
        limit: usize,
        snapshot: bool,
    ) -> Result<RowPage, QueueError> {
        RangeRead::of((begin.as_ref(), end.as_ref())).limit(limit).snapshot(snapshot).page(tr).await
    }
}
