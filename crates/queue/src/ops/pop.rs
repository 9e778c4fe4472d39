//! Removing items from the front for good, in the caller's transaction.

use std::num::NonZeroUsize;

use foundationdb::Transaction;
use futures::future::try_join;

use crate::keys::Space;
use crate::model::error::QueueError;
use crate::model::item::Item;
use crate::model::place::Place;
use crate::model::sizes::MAX_TAKE_BYTES;
use crate::ops::aside::fitting;
use crate::ops::claim::{forget, take};
use crate::ops::ready::{find, is_full};
use crate::ops::{ended, kinds, partitions, scan};

/// The result of a pop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Popped {
    /// The items, in order.
    pub items: Vec<Item>,
    /// Whether there were fewer than asked for: the pop has emptied the queue, but for what is pushed until it commits. Not where
    /// the bytes of the items were the limit.
    pub short: bool,
}

/// Removes the first `k` items; fewer where they have [`MAX_TAKE_BYTES`].
pub(crate) async fn pop_k(space: &Space, tr: &Transaction, k: NonZeroUsize) -> Result<Popped, QueueError> {
    let front = Place::default();
    let (mut rows, record) = try_join(find(space, tr, k, &front), partitions::read(space, tr)).await?;
    if record.is_some() {
        rows = partitions::find(&partitions::all(space, record), tr, k, None).await?;
    }
    if rows.is_empty() {
        kinds::check_elsewhere(space, tr).await?;
    }
    let fitting = fitting(space, &rows, MAX_TAKE_BYTES)?;
    let short = fitting == rows.len() && !is_full(space, &rows, k);
    rows.truncate(fitting);
    let items = scan::items(space, tr, &rows).await?;
    take(space, tr, &rows)?;
    rows.iter().try_for_each(|row| forget(space, tr, &row.id, &row.meta))?;
    ended::taken(space, tr, &rows).await?;
    Ok(Popped { items, short })
}
