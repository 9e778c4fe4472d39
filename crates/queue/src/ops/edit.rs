//! Giving an item another payload.

use bytes::Bytes;
use foundationdb::Transaction;

use crate::PAYLOAD_CEILING;
use crate::error::QueueError;
use crate::id::ItemId;
use crate::item_change::ItemChange;
use crate::keys::{Space, chunks, meta};
use crate::marked::Act;
use crate::meta::Meta;
use crate::ops::locate::{Located, locate};
use crate::ops::push::{StoredValue, stored_value};
use crate::ops::scan::{Row, decode_meta};
use crate::ops::{conflict, dead, parts, place};
use crate::view::ItemState;

/// Replaces the payload of an item that is not running; fails at commit if another has moved it.
///
/// Its record is written too, as it was or with the new length: whatever moves the item conflicts on that, and reads the value without a
/// conflict.
pub(crate) async fn item(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
    payload: &[u8],
) -> Result<Act<ItemChange>, QueueError> {
    if payload.len() > PAYLOAD_CEILING {
        return Err(QueueError::PayloadTooLong { len: payload.len(), most: PAYLOAD_CEILING });
    }
    let done = |state| Ok(Act::Write(ItemChange::Done(state)));
    match locate(space, tr, id).await? {
        None => Ok(Act::Nothing(ItemChange::Gone)),
        Some(Located::Running(_)) => Ok(Act::Nothing(ItemChange::Refused(ItemState::Running))),
        Some(Located::Ready(row)) => {
            let (value, meta) = replaced(space, tr, id, decode_meta(space, &row)?, payload);
            let key = space.ready_key(id);
            conflict::as_reader(tr, &key)?;
            tr.clear(&space.meta_key(id));
            place::ready(space, tr, id, &value, &meta::encode(&meta));
            done(ItemState::Ready)
        }
        Some(Located::ScheduledRecord(found)) => {
            place::check_kind(space, id)?;
            let state = found.state();
            let row = Row { id: id.clone(), value: Bytes::new(), meta: found.record };
            let (value, meta) = replaced(space, tr, id, decode_meta(space, &row)?, payload);
            conflict::as_reader(tr, &found.key)?;
            tr.set(&space.body_key(id), &value);
            tr.set(&found.key, &meta::encode(&meta));
            done(state)
        }
        Some(Located::Dead) => {
            let key = space.dead_key(id);
            let Some(record) = tr.get(&key, false).await? else { return Ok(Act::Nothing(ItemChange::Gone)) };
            let meta = dead::decode(space, id, &record)?;
            if meta::unreadable(&meta).is_some() {
                return Err(QueueError::unreadable(&key));
            }
            let (value, meta) = replaced(space, tr, id, meta, payload);
            tr.set(&space.body_key(id), &value);
            tr.set(&key, &meta::encode(&meta));
            done(ItemState::Dead)
        }
    }
}

/// Clears the parts of the payload that was, and writes those of the new one. Returns its value and side record.
fn replaced(space: &Space, tr: &Transaction, id: &ItemId, meta: Meta, payload: &[u8]) -> (Vec<u8>, Meta) {
    parts::clear(space, tr, id, meta.payload_len);
    let StoredValue { value, is_in_parts, chunks } = stored_value(space, payload);
    let payload_len = is_in_parts.then_some(payload.len() as u64);
    for (n, chunk) in chunks {
        tr.set(&chunks::key(&space.chunks, id, n), chunk);
    }
    (value.into_owned(), Meta { payload_len, ..meta })
}
