//! Looking at items without removing them.

use std::num::NonZeroUsize;

use foundationdb::Transaction;
use futures::future::{try_join, try_join_all};

use crate::keys::Space;
use crate::model::error::QueueError;
use crate::model::item::Item;
use crate::model::place::Place;
use crate::ops::scan::{Isolation, Row, Window, first_metas, join_metas};
use crate::ops::{partitions, scan};

/// All items.
pub(crate) async fn list(space: &Space, tr: &Transaction) -> Result<Vec<Item>, QueueError> {
    look(space, tr, None).await
}

/// The first item. Conflicts with whatever changes which one that is.
pub(crate) async fn first(space: &Space, tr: &Transaction) -> Result<Option<Item>, QueueError> {
    Ok(look(space, tr, Some(NonZeroUsize::MIN)).await?.pop())
}

async fn look(space: &Space, tr: &Transaction, limit: Option<NonZeroUsize>) -> Result<Vec<Item>, QueueError> {
    let spaces = partitions::read_all(space, tr).await?;
    let all = spaces.iter().map(|space| rows(space, tr, limit));
    let mut rows: Vec<Row> = try_join_all(all).await?.into_iter().flatten().collect();
    if spaces.len() > 1 {
        rows.sort_by_key(|row| row.id.stamp());
        rows.truncate(limit.map_or(usize::MAX, NonZeroUsize::get));
    }
    scan::items(space, tr, &rows).await
}

/// The rows of one partition, with their side records.
async fn rows(space: &Space, tr: &Transaction, limit: Option<NonZeroUsize>) -> Result<Vec<Row>, QueueError> {
    let isolation = Isolation::Serializable;
    let window = Window { place: Place::default(), limit, max_bytes: usize::MAX, isolation };
    // A few side records tell whether there are any.
    let (mut rows, metas) =
        try_join(scan::rows(space, tr, window), first_metas(space, tr, None, 100)).await?;
    join_metas(space, tr, &mut rows, metas).await?;
    Ok(rows)
}
