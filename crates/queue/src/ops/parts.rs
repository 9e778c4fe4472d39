//! The parts of long payloads, when their item ends.

use foundationdb::Transaction;

use crate::keys::{Space, chunks, meta};
use crate::model::id::ItemId;

/// Clears the chunks of an item whose side record gives its payload this length.
pub(crate) fn clear(space: &Space, tr: &Transaction, id: &ItemId, payload_len: Option<u64>) {
    let Some(len) = payload_len else { return };
    if id.is_stamped() {
        let (begin, end) = chunks::range(&space.chunks, id);
        tr.clear_range(&begin, &end);
        return;
    }
    // Foreign programs give items ids that others begin with, so here the range is not the item's alone.
    (1..=chunks::count(len)).for_each(|n| tr.clear(&chunks::key(&space.chunks, id, n)));
}

/// The same with the side record as it is stored. One that cannot be read may have had chunks.
pub(crate) fn clear_by(space: &Space, tr: &Transaction, id: &ItemId, record: &[u8]) {
    let meta = meta::decode(record).filter(|meta| meta::unreadable(meta).is_none());
    clear(space, tr, id, meta.map_or(Some(u64::MAX), |meta| meta.payload_len));
}
