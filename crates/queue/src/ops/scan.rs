//! Reading items from the front.

use std::num::NonZeroUsize;

use bytes::Bytes;
use foundationdb::options::StreamingMode;
use foundationdb::{RangeOption, Transaction};
use futures::TryStreamExt;

use crate::error::QueueError;
use crate::item::Item;
use crate::keys::{Space, items};

/// Whether a read counts when the database looks for conflicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// What was read must not have changed at commit.
    Serializable,
    /// What was read may change.
    Snapshot,
}

/// The first items in order, at most `limit`; without a limit, all.
pub(crate) async fn front(
    space: &Space,
    tr: &Transaction,
    limit: Option<NonZeroUsize>,
    isolation: Isolation,
) -> Result<Vec<Item>, QueueError> {
    let (begin, end) = space.item_range();
    let range = RangeOption {
        limit: limit.map(NonZeroUsize::get),
        mode: StreamingMode::WantAll,
        ..RangeOption::from((begin, end))
    };
    // A page ends where the bytes of one answer are used up; the stream asks for the next.
    let mut pages = tr.get_ranges(range, isolation == Isolation::Snapshot);
    let mut found = Vec::new();
    while let Some(page) = pages.try_next().await? {
        found.reserve(page.len());
        for row in &page {
            found.push(item(space, row.key(), row.value())?);
        }
    }
    Ok(found)
}

fn item(space: &Space, key: &[u8], value: &[u8]) -> Result<Item, QueueError> {
    let stamp = items::decode(&space.items, key)
        .ok_or_else(|| QueueError::ForeignKey { key: key.escape_ascii().to_string() })?;
    Ok(Item { stamp, payload: Bytes::copy_from_slice(value) })
}
