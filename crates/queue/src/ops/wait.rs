//! Watching the place where an item is.

use foundationdb::Transaction;
use mutant::mutant;

use crate::keys::leases::Header;
use crate::keys::{Space, leases};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::lease_id::LeaseId;
use crate::ops::locate::{Located, locate};
use crate::run::watch::Watch;

/// What became of an item that is waited for.
#[derive(Debug)]
pub enum ItemWatch {
    /// It has not ended.
    Open {
        /// Resolves when the item may have moved or ended, or its lease has changed. As of all watches, waking up is a hint.
        watch: Watch,
        /// Where it is now, for the next look.
        place: ItemPlace,
    },
    /// It is a dead letter.
    Dead,
    /// The queue has no item of this id. If it had one before, the item has ended, or was moved to another queue.
    Gone,
}

/// Where an item was when it was looked for: the next look begins there, so that it need not search all leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemPlace(pub(crate) Option<(LeaseId, usize)>);

impl ItemPlace {
    /// The lease that it is on, if it is running.
    pub fn lease(&self) -> Option<LeaseId> {
        self.0.map(|(lease, _)| lease)
    }
}

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
        Some(Located::Running(found)) => return Ok(on_lease(space, tr, found.lease, found.index)),
        Some(Located::Dead) => return Ok(ItemWatch::Dead),
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
