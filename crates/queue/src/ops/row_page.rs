//! A page of the rows of a range: as many as one reply of the database holds, and no more than a limit.

use foundationdb::future::{FdbKeyValue, FdbValues};
use foundationdb::options::StreamingMode;
use foundationdb::{FdbResult, RangeOption, Transaction};
use futures::TryStreamExt;
use mutant::mutant;

use crate::keys::after;

/// The first rows of a range.
///
/// A reply ends at its limit, at 80,000 bytes, and on a cluster wherever a storage server's part of the range ends. So fewer
/// rows than the limit do not mean that these are all. Whether they are is asked by [`RowPage::next`] and in no other way.
pub(crate) struct RowPage {
    rows: FdbValues,
    limit: usize,
}

impl RowPage {
    /// Reads up to `limit` rows, which is at least 1. Without `snapshot` the transaction conflicts with changes of what it reads.
    pub(crate) async fn read(
        tr: &Transaction,
        (begin, end): (impl AsRef<[u8]>, impl AsRef<[u8]>),
        limit: usize,
        snapshot: bool,
    ) -> FdbResult<RowPage> {
        let option = RangeOption {
            limit: Some(limit),
            mode: StreamingMode::WantAll,
            ..RangeOption::from((begin.as_ref(), end.as_ref()))
        };
        Ok(RowPage { rows: tr.get_range(&option, 1, snapshot).await?, limit })
    }

    /// The rows.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &FdbKeyValue> {
        self.rows.iter()
    }

    /// Where the range goes on; `None`: these rows are all.
    pub(crate) fn next(&self) -> Option<Vec<u8>> {
        let is_full = self.rows.len() >= self.limit || (self.rows.more() && !mutant("reply-is-everything"));
        self.rows.last().filter(|_| is_full).map(|row| after(row.key()))
    }
}

/// The keys of the first `n` rows of a range, however many replies they take.
pub(crate) async fn first_keys(
    tr: &Transaction,
    (begin, end): (Vec<u8>, Vec<u8>),
    n: usize,
    snapshot: bool,
) -> FdbResult<Vec<Vec<u8>>> {
    let option =
        RangeOption { limit: Some(n), mode: StreamingMode::WantAll, ..RangeOption::from((begin, end)) };
    let replies: Vec<_> = tr.get_ranges(option, snapshot).try_collect().await?;
    Ok(replies.iter().flatten().map(|row| row.key().to_vec()).collect())
}
