//! Versions that went back: a queue that was restored into a database whose versions are behind its items.
//!
//! Items that are pushed then come before the restored ones, and may overwrite one of them: stamps are versions.

use foundationdb::{KeySelector, Transaction};
use futures::future::{try_join, try_join_all};

use crate::keys::Space;
use crate::model::error::QueueError;
use crate::model::id_layout::split_partition;
use crate::model::kind::Kind;
use crate::ops::partitions;
use crate::ops::scan::suffix;
use crate::run::version::now;

/// How far ahead of a queue's items versions are to be put: a minute.
const LEAD: u64 = 60_000_000;

/// Versions that are behind a queue's last ready item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WentBack {
    /// The database's.
    version: u64,
    /// The item's.
    item: u64,
}

impl WentBack {
    pub(crate) fn error(self, space: &Space) -> QueueError {
        let WentBack { version, item } = self;
        let queue = space.name.escape_ascii().to_string();
        QueueError::VersionsWentBack { queue, version, item, advance: item.saturating_add(LEAD) }
    }
}

/// Looks at the last ready item of a FIFO queue; `None` if versions are ahead of it. One key of each partition, snapshot reads.
pub(crate) async fn look(space: &Space, tr: &Transaction) -> Result<Option<WentBack>, QueueError> {
    if space.kind != Kind::Fifo {
        return Ok(None);
    }
    let (last, record) = try_join(last(space, tr), partitions::read(space, tr)).await?;
    let others = (1..record.map_or(1, |record| record.most)).map(|i| space.in_partition(i));
    let others = try_join_all(others.map(async |space| self::last(&space, tr).await)).await?;
    let Some(item) = others.into_iter().fold(last, Option::max) else { return Ok(None) };
    let version = now(tr).await?;
    Ok((item > version).then_some(WentBack { version, item }))
}

/// The version of the last item in a partition.
async fn last(space: &Space, tr: &Transaction) -> Result<Option<u64>, QueueError> {
    let (_, end) = space.item_range();
    let key = tr.get_key(&KeySelector::last_less_than(end), true).await?;
    // Reads of the items report a key that is not an item's. Without items this key is another queue's.
    let id = suffix(space, &key).ok().and_then(split_partition);
    Ok(id.map(|(_, stamp)| stamp.version()))
}

/// The same as an error.
pub(crate) async fn check(space: &Space, tr: &Transaction) -> Result<(), QueueError> {
    match look(space, tr).await? {
        Some(went_back) => Err(went_back.error(space)),
        None => Ok(()),
    }
}
