//! Preventing double pushes: items with the same unique key, and repeated operations.

use bytes::Bytes;
use foundationdb::{FdbError, Transaction};
use futures::future::try_join;

use crate::keys::operations::Operation;
use crate::keys::{Space, meta, operations};
use crate::model::codes::ACCESSED_UNREADABLE;
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::id_layout::key_element;
use crate::model::kind::Kind;
use crate::model::pushed::{PendingPush, PushEffect, Spot};
use crate::model::sizes::MAX_PUSHES;
use crate::ops::dead::is_dead;
use crate::ops::parts;
use crate::ops::place::check_kind;
use crate::ops::push::answers::Places;
use crate::ops::push::contents::Digests;
use crate::ops::push::{Entry, answers, deal};
use crate::run::conflict;
use mutant::mutant;

/// The result of an operation, if it was done before. Conflicts with a transaction that does it.
///
/// # Errors
/// [`QueueError::IdempotencyKeyReused`] if it was to push something else.
pub(super) async fn earlier(
    space: &Space,
    tr: &Transaction,
    id: &[u8],
    digests: &Digests,
    entries: &[Entry<'_>],
) -> Result<Option<PendingPush>, QueueError> {
    let key = space.operation_key(id);
    if mutant("operation-repeated") {
        return Ok(None);
    }
    let value = match tr.get(&key, false).await {
        Ok(Some(value)) => value,
        Ok(None) => return Ok(None),
        // Another pusher of this transaction uses the same id.
        Err(error) if error.code() == ACCESSED_UNREADABLE => {
            return Err(QueueError::second_pusher(&space.name));
        }
        Err(error) => return Err(FdbError::into(error)),
    };
    let operation = operations::decode(&value).ok_or_else(|| QueueError::unreadable(&key))?;
    let is_same = operation.digest.is_none_or(|of| digests.matches(&of));
    if !is_same && !mutant("operation-of-other-items") {
        return Err(QueueError::key_reused(&space.name, id));
    }
    let has_keys = operation.digest == Some(digests.digest);
    let places = places(space, &operation, entries, has_keys).ok_or_else(|| QueueError::unreadable(&key))?;
    let transaction = operation.stamp.as_bytes().first_chunk().copied();
    Ok(Some(PendingPush::repetition(transaction, places.into_iter())))
}

/// What became of the items of an operation. If it `has_keys`, these are the keys of the entries.
fn places(space: &Space, operation: &Operation, entries: &[Entry<'_>], has_keys: bool) -> Option<Places> {
    let items = usize::try_from(operation.items).unwrap_or(MAX_PUSHES).min(MAX_PUSHES);
    let (first, mut added) = (operation.stamp.user_version(), 0_u16);
    let mut next = |entry: Option<&Entry<'_>>| {
        let user = first.checked_add(added);
        added = added.saturating_add(1);
        match space.kind {
            Kind::Fifo => user.map(|user| deal::spot(operation.deal, user)),
            Kind::Keyed => {
                let key = key_element(entry.filter(|_| has_keys)?.key());
                user.map(|user| Spot::Behind(key.into(), user))
            }
            // Nobody keeps the random bytes of these items.
            Kind::Recipe(_) | Kind::Priority(..) => None,
        }
    };
    if operation.answers.is_empty() {
        // An earlier version did not say which it added. Without a digest it is not even known how many were pushed.
        return Some(if operation.digest.is_some() && items != entries.len() {
            vec![(PushEffect::Added, None); entries.len()]
        } else {
            (0..items).map(|n| (PushEffect::Added, next(entries.get(n)))).collect()
        });
    }
    let places = answers::decode(&operation.answers).filter(|places| places.len() == entries.len())?;
    let place = |((effect, spot), entry)| match effect {
        PushEffect::Added => (effect, next(Some(entry))),
        _ => (effect, spot),
    };
    Some(places.into_iter().zip(entries).map(place).collect())
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
