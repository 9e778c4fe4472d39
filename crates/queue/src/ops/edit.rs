//! Giving an item another payload.

use bytes::Bytes;
use foundationdb::Transaction;

use crate::keys::{Space, chunks, meta};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::item_change::ItemChange;
use crate::model::meta::Meta;
use crate::model::sizes::PAYLOAD_CEILING;
use crate::model::time::Millis;
use crate::model::view::ItemState;
use crate::ops::locate::{Located, ScheduledRecord, locate, locate_unleased, refused, state_of};
use crate::ops::push::{StoredValue, stored_value};
use crate::ops::scan::{Row, decode_meta};
use crate::ops::transition::{After, Before, Subject, Transitions};
use crate::ops::{dead, item_times, parts, place};
use crate::run::conflict;
use crate::run::exactly_once::Act;

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
        Some(Located::Ready(row)) => {
            Editable::ready(space, tr, &row)?.write(space, tr, payload);
            done(ItemState::Ready)
        }
        Some(Located::ScheduledRecord(found)) => {
            let state = state_of(&found.record);
            Editable::waiting(space, tr, id, found)?.write(space, tr, payload);
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
        found => Ok(refused(found.as_ref())),
    }
}

/// An item that waits, and is to have another payload. Whatever moves it meanwhile makes the commit fail.
#[derive(Debug)]
pub(crate) struct Editable {
    id: ItemId,
    /// Its record, if it waits for its time; `None`: it is ready.
    record: Option<ScheduledRecord>,
    meta: Meta,
}

impl Editable {
    fn ready(space: &Space, tr: &Transaction, row: &Row) -> Result<Editable, QueueError> {
        let meta = decode_meta(space, row)?;
        conflict::as_reader(tr, &space.ready_key(&row.id))?;
        Ok(Editable { id: row.id.clone(), record: None, meta })
    }

    fn waiting(
        space: &Space,
        tr: &Transaction,
        id: &ItemId,
        found: ScheduledRecord,
    ) -> Result<Editable, QueueError> {
        place::check_kind(space, id)?;
        let row = Row { id: id.clone(), value: Bytes::new(), meta: found.record.clone() };
        let meta = decode_meta(space, &row)?;
        conflict::as_reader(tr, &found.key)?;
        Ok(Editable { id: id.clone(), record: Some(found), meta })
    }

    /// The item of this id; `None` if it does not wait.
    pub(crate) async fn find(
        space: &Space,
        tr: &Transaction,
        id: &ItemId,
    ) -> Result<Option<Editable>, QueueError> {
        match locate_unleased(space, tr, id).await? {
            Some(Located::Ready(row)) => Editable::ready(space, tr, &row).map(Some),
            Some(Located::ScheduledRecord(found)) => Editable::waiting(space, tr, id, found).map(Some),
            _ => Ok(None),
        }
    }

    pub(crate) fn id(&self) -> &ItemId {
        &self.id
    }

    /// Writes it with another payload, at its place.
    fn write(self, space: &Space, tr: &Transaction, payload: &[u8]) {
        let (value, meta) = replaced(space, tr, &self.id, self.meta, payload);
        match self.record {
            None => {
                tr.clear(&space.meta_key(&self.id));
                place::ready(space, tr, &self.id, &value, &meta::encode(&meta));
            }
            Some(found) => place::later(space, tr, &self.id, found.due, &value, &meta),
        }
    }

    /// Writes it with another payload, with the attributes, texts and expiry of `new`, and for another time, if there is one.
    pub(crate) fn replace(
        mut self,
        transitions: &mut Transitions<'_>,
        tr: &Transaction,
        payload: &[u8],
        new: Meta,
        due: Option<Millis>,
    ) -> Result<(), QueueError> {
        let space = transitions.space();
        item_times::clear(space, tr, &self.id, &self.meta);
        let before = self.meta.expires;
        self.meta = self.meta.replaced_by(new);
        // It keeps its time, and is not to expire before that.
        let due_then = self.record.as_ref().filter(|_| due.is_none()).map(|found| found.due);
        if due_then.zip(self.meta.expiry()).is_some_and(|(due, expires)| expires <= due) {
            self.meta.expires = before;
        }
        item_times::note_expiry(space, tr, &self.id, &meta::encode(&self.meta));
        let Some(due) = due else {
            self.write(space, tr, payload);
            return Ok(());
        };
        let (value, meta) = replaced(space, tr, &self.id, self.meta, payload);
        let before = self.record.as_ref().map_or(Before::Ready, |found| Before::Scheduled(&found.key));
        transitions.add(tr, before, After::Scheduled(due), Subject::changed(&self.id, &value, meta))
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
