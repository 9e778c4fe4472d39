//! Preventing double pushes: items with the same unique key, and repeated operations.

use bytes::Bytes;
use foundationdb::{FdbError, Transaction};
use futures::future::try_join;

use crate::MAX_PUSHES;
use crate::error::QueueError;
use crate::id::ItemId;
use crate::keys::operations::Digest;
use crate::keys::{Space, meta, operations};
use crate::kind::Kind;
use crate::ops::dead::is_dead;
use crate::ops::place::check_kind;
use crate::ops::push::deal;
use crate::ops::{conflict, parts};
use crate::pushed::PendingPush;
use mutant::mutant;

/// The database's error for a key whose value depends on the stamp of the reading transaction itself.
pub(super) const ACCESSED_UNREADABLE: i32 = 1036;

/// The result of an operation, if it was done before. Conflicts with a transaction that does it.
///
/// # Errors
/// [`QueueError::IdempotencyKeyReused`] if it was to push something else.
pub(super) async fn earlier(
    space: &Space,
    tr: &Transaction,
    id: &[u8],
    digest: &Digest,
) -> Result<Option<PendingPush>, QueueError> {
    let key = space.operation_key(id);
    if mutant("operation-repeated") {
        return Ok(None);
    }
    let value = match tr.get(&key, false).await {
        Ok(Some(value)) => value,
        Ok(None) => return Ok(None),
        // Another pusher of this transaction uses the same id.
        Err(error) if error.code() == ACCESSED_UNREADABLE => return Err(QueueError::second_pusher(space)),
        Err(error) => return Err(FdbError::into(error)),
    };
    let operation = operations::decode(&value).ok_or_else(|| QueueError::unreadable(&key))?;
    if operation.digest.is_some_and(|of| of != *digest) && !mutant("operation-of-other-items") {
        return Err(QueueError::key_reused(space, id));
    }
    let (bytes, first) = (operation.stamp.as_bytes(), operation.stamp.user_version());
    let items = usize::try_from(operation.items).unwrap_or(MAX_PUSHES).min(MAX_PUSHES);
    let spots = (0..items).map(|n| match space.kind {
        Kind::Fifo => {
            let user = u16::try_from(n).ok().and_then(|n| first.checked_add(n));
            user.map(|user| deal::spot(operation.deal, user))
        }
        // Nobody keeps the random bytes, or the keys, of these items.
        Kind::Recipe(_) | Kind::Priority(..) | Kind::Keyed => None,
    });
    Ok(Some(PendingPush::repetition(bytes.first_chunk().copied(), spots)))
}

/// The item that has a unique key.
pub(super) enum Holder {
    /// This item waits, is delayed, or is being handled.
    Item(ItemId),
    /// Nothing but what is left of an item that a foreign program took: its side record.
    Orphan(ItemId, Bytes),
}

/// Looks for the holder of a unique key. Conflicts with a transaction that pushes or ends it.
///
/// If the transaction `has_pushed`, the holder is taken for an item: its ready key may be among the keys that the database does not know before
/// the commit, if it was pushed at the version that the transaction reads. Reading such a key would make the commit fail.
pub(super) async fn holder(
    space: &Space,
    tr: &Transaction,
    key: &[u8],
    has_pushed: bool,
) -> Result<Option<Holder>, QueueError> {
    let Some(value) = tr.get(&space.unique_key(key), mutant("unique-without-conflict")).await? else {
        return Ok(None);
    };
    let id = ItemId::new(Bytes::copy_from_slice(&value));
    check_kind(space, &id)?;
    let orphan =
        async { if has_pushed && space.kind.is_stamped() { Ok(None) } else { orphan(space, tr, &id).await } };
    let (orphan, is_dead) = try_join(orphan, is_dead(space, tr, &id)).await?;
    Ok(match orphan {
        // A dead letter has no key. This one could not be read when it died, so nobody knew its key.
        None if is_dead => None,
        None => Some(Holder::Item(id)),
        // Its time goes on, and what is left of the item is the sweeper's.
        Some(meta) if meta::decode(&meta).is_some_and(|meta| meta.unique_until.is_some()) => {
            Some(Holder::Item(id))
        }
        Some(meta) => {
            // A sweeper may clear the same. One that cannot read the record writes nothing else that this reads.
            conflict::as_reader(tr, &space.meta_key(&id))?;
            Some(Holder::Orphan(id, meta))
        }
    })
}

/// Clears what is left of an orphan but its key, which the new item takes over. Nobody else writes it: an item that is gone does not
/// come back.
pub(super) fn clear_orphan(space: &Space, tr: &Transaction, id: &ItemId, meta: &[u8]) {
    tr.clear(&space.meta_key(id));
    parts::clear_by(space, tr, id, meta);
}

/// The side record of an item that a program has popped which knows nothing of unique keys, so that it can no longer end.
///
/// Its side record is then still there, and it is not. We ourselves write and remove both together.
async fn orphan(space: &Space, tr: &Transaction, id: &ItemId) -> Result<Option<Bytes>, QueueError> {
    let (meta, ready) = (space.meta_key(id), space.ready_key(id));
    match try_join(tr.get(&meta, true), tr.get(&ready, true)).await {
        Ok((meta, ready)) => Ok(meta.filter(|_| ready.is_none()).map(|meta| Bytes::copy_from_slice(&meta))),
        // This transaction pushes already, and the database does not tell whether it is this item that it pushes.
        Err(error) if error.code() == ACCESSED_UNREADABLE => Ok(None),
        Err(error) => Err(FdbError::into(error)),
    }
}
