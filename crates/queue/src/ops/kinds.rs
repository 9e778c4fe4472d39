//! Whether a queue has items of another kind than the one it was opened with.
//!
//! Nothing stored says of which kind a queue is. Items of a FIFO queue and of the recipes' queues lie at different places, so a handle of the wrong kind
//! would find the queue empty, and what is pushed through it would never be found by the others.

use bytes::Bytes;
use foundationdb::Transaction;
use futures::future::{try_join, try_join_all, try_join4};

use crate::keys::{Space, range};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::kind::Kind;
use crate::ops::find::first_key;
use crate::run::range_read::RangeRead;

/// Makes sure that a ready item is not of the other recipe. Any other key at this place is an item, whatever it is like.
pub(crate) fn check_ready(space: &Space, id: &ItemId) -> Result<(), QueueError> {
    if id.stamp().is_some() { Ok(()) } else { check_id(space, id) }
}

/// Makes sure that an item's id is not one of another kind.
fn check_id(space: &Space, id: &ItemId) -> Result<(), QueueError> {
    let Some(there) = Kind::of_id(id).filter(|there| *there != space.kind.name()) else { return Ok(()) };
    let queue = space.name.escape_ascii().to_string();
    Err(QueueError::OtherKind { queue, kind: space.kind, there, id: id.clone() })
}

/// Makes sure that the first item in each state but running is not of another kind, before any is pushed. Reads that conflict with nothing.
///
/// Of a FIFO or keyed queue it is enough to look where the others have their ready items. The transaction may have pushed to it, and could not read its keys.
pub(crate) async fn check(space: &Space, tr: &Transaction) -> Result<(), QueueError> {
    if space.kind.is_stamped() {
        return check_elsewhere(space, tr).await;
    }
    let (elsewhere, ready, aside, dead) = try_join4(
        first_elsewhere(space, tr),
        first_key(tr, &space.item_range()),
        first_key(tr, &space.later.all()),
        first_key(tr, &range(&space.dead)),
    )
    .await?;
    behind(ready, &space.ready).map_or(Ok(()), |id| check_ready(space, &id))?;
    let aside = aside.and_then(|key| space.later.decode_item(&key).map(|(_, id)| id));
    [elsewhere, aside, behind(dead, &space.dead)].iter().flatten().try_for_each(|id| check_id(space, id))
}

/// What [`check`] makes sure of, except for what [`check_stamped`] does. For a push: its session or pusher has called that before.
pub(crate) async fn check_rest(space: &Space, tr: &Transaction) -> Result<(), QueueError> {
    if space.kind.is_stamped() {
        return check_id_of(space, first_recipe(space, tr).await?);
    }
    check(space, tr).await
}

/// Makes sure that there is no ready item of a kind that has them elsewhere.
pub(crate) async fn check_elsewhere(space: &Space, tr: &Transaction) -> Result<(), QueueError> {
    check_id_of(space, first_elsewhere(space, tr).await?)
}

/// Makes sure that a FIFO queue has no items with keys, and a keyed queue none without. The first push of a session or a pusher checks
/// it.
pub(crate) async fn check_stamped(space: &Space, tr: &Transaction) -> Result<(), QueueError> {
    if space.kind.is_stamped() { check_id_of(space, first_stamped(space, tr).await?) } else { Ok(()) }
}

fn check_id_of(space: &Space, id: Option<ItemId>) -> Result<(), QueueError> {
    id.map_or(Ok(()), |id| check_id(space, &id))
}

/// The first ready item where queues of this name and another kind have theirs.
async fn first_elsewhere(space: &Space, tr: &Transaction) -> Result<Option<ItemId>, QueueError> {
    let (stamped, recipe) = try_join(first_stamped(space, tr), first_recipe(space, tr)).await?;
    Ok(stamped.or(recipe))
}

/// The first item of a recipe's queue of this name, if this is not one.
async fn first_recipe(space: &Space, tr: &Transaction) -> Result<Option<ItemId>, QueueError> {
    let Some(recipe) = &space.recipe else { return Ok(None) };
    Ok(behind(first_key(tr, &range(recipe)).await?, recipe))
}

/// The first item of a FIFO or keyed queue of this name, if it is one of the other kind.
async fn first_stamped(space: &Space, tr: &Transaction) -> Result<Option<ItemId>, QueueError> {
    let first = space.stamped.iter().map(async |stamped| {
        // A range, and not a key selector: the transaction may have pushed to the keys behind it, and could not read those.
        let first = RangeRead::of(range(stamped)).first_row_key(tr).await?;
        Ok::<_, QueueError>(behind(first, stamped))
    });
    Ok(try_join_all(first).await?.into_iter().flatten().next())
}

fn behind(key: Option<Vec<u8>>, before: &[u8]) -> Option<ItemId> {
    Some(ItemId::new(Bytes::copy_from_slice(key?.strip_prefix(before)?)))
}
