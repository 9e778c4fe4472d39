//! The length: from the counters alone, where all who write keep them.

use foundationdb::options::StreamingMode;
use foundationdb::{RangeOption, Transaction};
use futures::TryStreamExt;
use futures::future::try_join;

use crate::error::QueueError;
use crate::keys::{Space, counters};
use crate::kind::Kind;

/// `npush` less `npop`, both read at once. The recipes' own programs do not count, so there the items are counted.
pub(crate) async fn len(space: &Space, tr: &Transaction) -> Result<i64, QueueError> {
    if space.kind != Kind::Fifo {
        return count(space, tr).await;
    }
    let (npush, npop) = try_join(tr.get(&space.npush, false), tr.get(&space.npop, false)).await?;
    Ok(counters::difference(counters::decode(npush.as_deref()), counters::decode(npop.as_deref())))
}

/// Reads all items at snapshot isolation: a number that is out of date at once is no reason to conflict.
async fn count(space: &Space, tr: &Transaction) -> Result<i64, QueueError> {
    let range = RangeOption { mode: StreamingMode::WantAll, ..RangeOption::from(space.item_range()) };
    let mut pages = tr.get_ranges(range, true);
    let mut items = 0;
    while let Some(page) = pages.try_next().await? {
        items += page.len();
    }
    Ok(i64::try_from(items).unwrap_or(i64::MAX))
}
