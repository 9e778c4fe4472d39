//! Watching the place where an item is.

use foundationdb::Transaction;
use mutant::mutant;

use crate::error::QueueError;
use crate::id::ItemId;
use crate::item_wait::{ItemPlace, ItemWatch};
use crate::keys::leases::{self, Header};
use crate::keys::{Space, leases::LeaseId};
use crate::ops::locate::{Located, locate};
use crate::watch::Watch;

/// Watches the item where it is, beginning with the place where it was.
pub(crate) async fn watch(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
    place: Option<ItemPlace>,
) -> Result<ItemWatch, QueueError> {
    if let Some((lease, index)) = place.and_then(|place| place.0)
        && is_open(space, tr, lease, index).await?
    {
        return Ok(on_lease(space, tr, lease, index));
    }
    let key = match locate(space, tr, id).await? {
        None => return Ok(ItemWatch::Gone),
        Some(Located::Dead) => return Ok(ItemWatch::Dead),
        Some(Located::Running(found)) => return Ok(on_lease(space, tr, found.lease, found.index)),
        Some(Located::Ready(_)) => space.ready_key(id),
        Some(Located::ScheduledRecord(found)) => found.key,
    };
    Ok(ItemWatch::Open { watch: Watch::new(tr.watch(&key)), place: ItemPlace(None) })
}

/// Whether an item of a lease is not acknowledged. The items of a lease never change, so its index tells which one it is.
async fn is_open(space: &Space, tr: &Transaction, lease: LeaseId, index: usize) -> Result<bool, QueueError> {
    if mutant("wait-trusts-the-lease") {
        return Ok(true);
    }
    let Some(value) = tr.get(&leases::key(&space.leases, lease), true).await? else { return Ok(false) };
    // One that cannot be read is passed over, as by a search.
    Ok(Header::decode(&value).is_some_and(|header| header.acknowledged.is_open(index)))
}

fn on_lease(space: &Space, tr: &Transaction, lease: LeaseId, index: usize) -> ItemWatch {
    let watch = Watch::new(tr.watch(&leases::key(&space.leases, lease)));
    ItemWatch::Open { watch, place: ItemPlace(Some((lease, index))) }
}
