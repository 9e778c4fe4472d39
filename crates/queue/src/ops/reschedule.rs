//! Giving an item another time at which it becomes ready.

use foundationdb::Transaction;
use foundationdb::options::MutationType;

use crate::keys::{Space, counters, later, meta};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::item_change::ItemChange;
use crate::model::meta::{Meta, Millis};
use crate::model::view::ItemState;
use crate::ops::dead_page::{DeadLetterAction, Which, page};
use crate::ops::keyed::changes::Changes;
use crate::ops::locate::{Located, ScheduledRecord, locate};
use crate::ops::place;
use crate::ops::scan::decode_meta;
use crate::run::conflict;
use crate::run::exactly_once::Act;

/// Gives a ready or waiting item this time; `None`: now. Fails at commit if another has moved it.
pub(crate) async fn item(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
    due: Option<Millis>,
) -> Result<Act<ItemChange>, QueueError> {
    let refused = |state| Ok(Act::Nothing(ItemChange::Refused(state)));
    match (locate(space, tr, id).await?, due) {
        (None, _) => Ok(Act::Nothing(ItemChange::Gone)),
        (Some(Located::Dead), _) => refused(ItemState::Dead),
        (Some(Located::Running(_)), _) => refused(ItemState::Running),
        (Some(Located::Ready(_)), None) => Ok(Act::Nothing(ItemChange::Done(ItemState::Ready))),
        (Some(Located::Ready(row)), Some(due)) => {
            let meta = decode_meta(space, &row)?;
            if let Some(expires) = expires_first(&meta, due) {
                return Ok(Act::Nothing(ItemChange::ExpiresFirst(expires)));
            }
            // Before the clear: a transaction does not conflict on what it has itself overwritten.
            conflict::as_reader(tr, &space.ready_key(id))?;
            put_off(space, tr, id, due, &row.value, &meta);
            let mut changes = Changes::default();
            changes.removed_ready(space, id);
            changes.write(space, tr).await?;
            Ok(Act::Write(ItemChange::Done(ItemState::Ready)))
        }
        (Some(Located::ScheduledRecord(found)), due) => {
            let state = found.state();
            // A record that cannot be read says nothing of an expiry.
            let meta = meta::decode(&found.record).unwrap_or_default();
            if let Some(expires) = due.and_then(|due| expires_first(&meta, due)) {
                return Ok(Act::Nothing(ItemChange::ExpiresFirst(expires)));
            }
            match due {
                None => hasten(space, tr, id, &found).await?,
                Some(due) => delay(space, tr, id, &found, due).await?,
            }
            Ok(Act::Write(ItemChange::Done(state)))
        }
    }
}

/// When an item expires that is to wait until `due`, if that is not later.
fn expires_first(meta: &Meta, due: Millis) -> Option<Millis> {
    meta.expires.filter(|expires| meta.may_expire() && *expires <= due)
}

/// Makes a waiting item ready now, or a dead letter with all its attempts before it.
pub(crate) async fn retry(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
) -> Result<Act<ItemChange>, QueueError> {
    match locate(space, tr, id).await? {
        None => Ok(Act::Nothing(ItemChange::Gone)),
        Some(Located::Ready(_)) => Ok(Act::Nothing(ItemChange::Refused(ItemState::Ready))),
        Some(Located::Running(_)) => Ok(Act::Nothing(ItemChange::Refused(ItemState::Running))),
        Some(Located::ScheduledRecord(found)) => {
            let state = found.state();
            hasten(space, tr, id, &found).await?;
            Ok(Act::Write(ItemChange::Done(state)))
        }
        Some(Located::Dead) => {
            let page = page(space, tr, DeadLetterAction::Retry, Which::One(id)).await?;
            Ok(match page.holder {
                Some(holder) => Act::Nothing(ItemChange::UniqueTaken(holder)),
                None if page.moved == 0 => Act::Nothing(ItemChange::Gone),
                None => Act::Write(ItemChange::Done(ItemState::Dead)),
            })
        }
    }
}

/// A ready item becomes a scheduled one. The caller has seen to the conflict, and to the key, which has another first item then.
///
/// It begins no hold: that would stop items of an ordered key that are before it, too.
pub(crate) fn put_off(space: &Space, tr: &Transaction, id: &ItemId, due: Millis, value: &[u8], meta: &Meta) {
    tr.clear(&space.ready_key(id));
    tr.clear(&space.meta_key(id));
    place::later(space, tr, id, due, value, meta);
    tr.atomic_op(&space.npop, &counters::increment(1), MutationType::Add);
    place::count_back(space, tr, 0, 1);
}

/// Counts an item that waits for another time: as if its time had come and it had been put aside once more. That wakes the sweepers, since it may
/// be due earlier now.
pub(crate) fn count_delayed(space: &Space, tr: &Transaction) {
    place::count_later(space, tr, 1);
    tr.atomic_op(&space.ndue, &counters::increment(1), MutationType::Add);
}

/// A waiting item waits for another time. A hold for it stays.
async fn delay(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
    found: &ScheduledRecord,
    due: Millis,
) -> Result<(), QueueError> {
    place::check_kind(space, id)?;
    conflict::as_reader(tr, &found.key)?;
    tr.clear(&found.key);
    tr.set(&later::key(&space.later, due, id), &found.record);
    tr.set(&space.due_key(id), &later::encode_due(due));
    count_delayed(space, tr);
    Ok(())
}

/// A waiting item becomes ready, at its own place.
async fn hasten(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
    found: &ScheduledRecord,
) -> Result<(), QueueError> {
    place::check_kind(space, id)?;
    let value = place::body(space, tr, id).await?;
    // Before the clear: a transaction does not conflict on what it has itself overwritten.
    conflict::as_reader(tr, &found.key)?;
    tr.clear(&found.key);
    place::clear_aside(space, tr, id);
    place::ready(space, tr, id, &value, &found.record);
    place::count_ready(space, tr, 1);
    tr.atomic_op(&space.ndue, &counters::increment(1), MutationType::Add);
    let mut changes = Changes::default();
    changes.made_ready(space, id);
    changes.came_back(space, id);
    changes.write(space, tr).await
}
