//! Removing items from the front, as the Erlang program does.

use std::num::NonZeroUsize;

use foundationdb::Transaction;
use futures::future::try_join;

use crate::MAX_TAKE_BYTES;
use crate::approach::Place;
use crate::error::QueueError;
use crate::item::Item;
use crate::keys::{Space, items};
use crate::ops::aside::fitting;
use crate::ops::claim::{forget, is_full, remove};
use crate::ops::kinds;
use crate::ops::scan::{self, Isolation, Window, ends, first_metas, join_metas};

/// The result of a pop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Popped {
    /// The items, in order.
    pub items: Vec<Item>,
    /// Whether there were fewer than asked for: the queue is now empty. Not where the bytes of the items were the limit.
    pub short: bool,
}

/// Reads the first `k` items and removes them; fewer where they have [`MAX_TAKE_BYTES`].
pub(crate) async fn pop_k(space: &Space, tr: &Transaction, k: NonZeroUsize) -> Result<Popped, QueueError> {
    let window = Window {
        place: Place::default(),
        limit: Some(k),
        max_bytes: MAX_TAKE_BYTES,
        isolation: Isolation::Serializable,
    };
    let (mut rows, metas) =
        try_join(scan::rows(space, tr, window), first_metas(space, tr, None, k.get())).await?;
    join_metas(space, tr, &mut rows, metas).await?;
    let short = !is_full(space, &rows, k);
    let read = rows.len();
    if read == 0 {
        kinds::check_elsewhere(space, tr).await?;
    }
    rows.truncate(fitting(space, &rows, MAX_TAKE_BYTES)?);
    let short = short && rows.len() == read;
    let items = scan::items(space, tr, &rows).await?;
    if let Some((_, high)) = ends(space, &rows) {
        remove(space, tr, &rows, &items::after(&space.ready, high.as_bytes()));
        rows.iter().try_for_each(|row| forget(space, tr, row))?;
    }
    Ok(Popped { short, items })
}
