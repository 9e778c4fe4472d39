//! Finding ready items.

use std::num::NonZeroUsize;

use bytes::Bytes;
use foundationdb::Transaction;
use futures::future::try_join;

use crate::keys::Space;
use crate::model::error::QueueError;
use crate::model::place::Place;
use crate::model::sizes::MAX_TAKE_BYTES;
use crate::ops::scan::{Isolation, Row, Window, first_metas, join_metas, rows};
use crate::ops::{cost, kinds, peek};

/// Whether [`find`] ended with these rows because there were as many as it reads, and not because there were no more. A take may get
/// fewer if items are large, or suspect.
pub(crate) fn is_full(space: &Space, rows: &[Row], k: NonZeroUsize) -> bool {
    let plain = |row: &Row| cost::take_plain(space, row.id.as_bytes().len(), row.value.len());
    rows.len() >= k.get() || rows.iter().map(plain).sum::<usize>() >= MAX_TAKE_BYTES
}

/// Reads up to `k` ready items at a place, with their side records. Fewer come where they are more than a take gathers.
pub(crate) async fn find(
    space: &Space,
    tr: &Transaction,
    k: NonZeroUsize,
    place: &Place,
) -> Result<Vec<Row>, QueueError> {
    let isolation = Isolation::Snapshot;
    let window = Window { place: place.clone(), limit: Some(k), max_bytes: MAX_TAKE_BYTES, isolation };
    let metas = first_metas(space, tr, place.behind.as_ref(), k.get());
    let (mut rows, metas) = try_join(rows(space, tr, window), metas).await?;
    join_metas(space, tr, &mut rows, metas).await?;
    Ok(rows)
}

/// Reads the ready item that would be taken last, with its side record.
pub(crate) async fn find_last(space: &Space, tr: &Transaction) -> Result<Option<Row>, QueueError> {
    let Some(id) = peek::last_id(space, tr).await? else { return Ok(None) };
    if !space.kind.is_stamped() {
        kinds::check_ready(space, &id)?;
    }
    let (ready_key, meta_key) = (space.ready_key(&id), space.meta_key(&id));
    let (value, meta) = try_join(tr.get(&ready_key, true), tr.get(&meta_key, true)).await?;
    let meta = meta.map(|meta| Bytes::copy_from_slice(&meta)).unwrap_or_default();
    Ok(value.map(|value| Row { id, value: Bytes::copy_from_slice(&value), meta }))
}
