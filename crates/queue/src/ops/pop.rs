//! Removing items from the front, as the Erlang program does.

use std::num::NonZeroUsize;

use foundationdb::Transaction;
use futures::future::try_join;

use crate::approach::Place;
use crate::error::QueueError;
use crate::item::Item;
use crate::keys::{Space, items};
use crate::ops::claim::{forget, remove};
use crate::ops::scan::{self, Isolation, Window, ends, first_metas, join_metas};

/// What a pop removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Popped {
    /// The items, in order.
    pub items: Vec<Item>,
    /// Whether there were fewer than asked for: the queue is now empty.
    pub short: bool,
}

/// Reads the first `k` items and removes them.
pub(crate) async fn pop_k(space: &Space, tr: &Transaction, k: NonZeroUsize) -> Result<Popped, QueueError> {
    let window = Window {
        place: Place::default(),
        limit: Some(k),
        max_bytes: usize::MAX,
        isolation: Isolation::Serializable,
    };
    let (mut rows, metas) =
        try_join(scan::rows(space, tr, window), first_metas(space, tr, None, k.get())).await?;
    join_metas(space, tr, &mut rows, metas).await?;
    let items = scan::items(space, tr, &rows).await?;
    if let Some((_, high)) = ends(space, &rows) {
        remove(space, tr, &rows, &items::after(&space.ready, high.as_bytes()));
        rows.iter().try_for_each(|row| forget(space, tr, row))?;
    }
    Ok(Popped { short: items.len() < k.get(), items })
}
