//! Giving an item another time at which it becomes ready.

use foundationdb::Transaction;

use crate::keys::{Space, meta};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::item_change::ItemChange;
use crate::model::meta::Meta;
use crate::model::time::{Millis, from_millis};
use crate::model::view::ItemState;
use crate::ops::dead_page::{DeadLetterAction, Which, page};
use crate::ops::locate::{Located, ScheduledRecord, locate, refused, state_of};
use crate::ops::place;
use crate::ops::scan::decode_meta;
use crate::ops::transition::{After, Before, Subject, Transitions};
use crate::run::exactly_once::Act;

/// Gives a ready or waiting item this time; `None`: now. Fails at commit if another has moved it.
pub(crate) async fn item(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
    due: Option<Millis>,
) -> Result<Act<ItemChange>, QueueError> {
    match (locate(space, tr, id).await?, due) {
        (Some(Located::Ready(_)), None) => Ok(Act::Nothing(ItemChange::Done(ItemState::Ready))),
        (Some(Located::Ready(row)), Some(due)) => {
            let meta = decode_meta(space, &row)?;
            if let Some(expires) = expires_first(&meta, due) {
                return Ok(Act::Nothing(ItemChange::ExpiresFirst(from_millis(expires))));
            }
            let item = Subject::changed(id, &row.value, meta);
            one(space, tr, Before::Ready, After::Scheduled(due), item).await?;
            Ok(Act::Write(ItemChange::Done(ItemState::Ready)))
        }
        (Some(Located::ScheduledRecord(found)), due) => {
            let state = state_of(&found.record);
            // A record that cannot be read says nothing of an expiry.
            let meta = meta::decode(&found.record).unwrap_or_default();
            if let Some(expires) = due.and_then(|due| expires_first(&meta, due)) {
                return Ok(Act::Nothing(ItemChange::ExpiresFirst(from_millis(expires))));
            }
            match due {
                None => hasten(space, tr, id, &found).await?,
                Some(due) => {
                    place::check_kind(space, id)?;
                    let item = Subject::new(id, &[], &found.record);
                    one(space, tr, Before::Scheduled(&found.key), After::Scheduled(due), item).await?;
                }
            }
            Ok(Act::Write(ItemChange::Done(state)))
        }
        (found, _) => Ok(refused(found.as_ref())),
    }
}

/// When an item expires that is to wait until `due`, if that is not later.
fn expires_first(meta: &Meta, due: Millis) -> Option<Millis> {
    meta.expiry().filter(|expires| meta.may_expire() && *expires <= due)
}

/// Makes a waiting item ready now, or a dead letter with all its attempts before it.
pub(crate) async fn retry(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
) -> Result<Act<ItemChange>, QueueError> {
    match locate(space, tr, id).await? {
        Some(Located::ScheduledRecord(found)) => {
            let state = state_of(&found.record);
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
        found => Ok(refused(found.as_ref())),
    }
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
    let item = Subject::new(id, &value, &found.record);
    one(space, tr, Before::Scheduled(&found.key), After::Ready, item).await
}

/// The only transition of a transaction, which does not end the item.
async fn one(
    space: &Space,
    tr: &Transaction,
    before: Before<'_>,
    after: After<'_>,
    item: Subject<'_>,
) -> Result<(), QueueError> {
    let mut transitions = Transitions::without_ends(space);
    transitions.add(tr, before, after, item)?;
    transitions.write(tr, None).await
}
