//! Putting a ready item aside that cannot be read, so that it does not stop those behind it.

use std::time::UNIX_EPOCH;

use bytes::Bytes;
use foundationdb::Transaction;

use crate::keys::{Space, meta};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::meta::{Failure, Meta};
use crate::ops::scan::{Row, items};
use crate::ops::transition::{After, Before, Subject, Transitions};

/// Makes a ready item a dead letter if it cannot be read: with its value, with its side record, and with the reason. Does nothing if it can be
/// read, or is gone.
///
/// Who takes has no clock, so nobody knows since when it is a dead letter.
pub(crate) async fn bury(space: &Space, tr: &Transaction, id: &ItemId) -> Result<(), QueueError> {
    let Some(value) = tr.get(&space.ready_key(id), false).await? else { return Ok(()) };
    let record = tr.get(&space.meta_key(id), false).await?;
    let bytes = |value: &[u8]| Bytes::copy_from_slice(value);
    let meta = record.map(|record| bytes(&record)).unwrap_or_default();
    let rows = [Row { id: id.clone(), value: bytes(&value), meta }];
    let Err(error) = items(space, tr, &rows).await else { return Ok(()) };
    let QueueError::UnreadableItem { .. } = error else { return Err(error) };
    let [row] = &rows;
    let known = meta::decode(&row.meta).unwrap_or_else(|| meta::as_it_is(&row.meta));
    let death = Some(Failure::new(UNIX_EPOCH, known.attempts, &error.to_string()));
    let mut transitions = Transitions::begin(space, tr).await?;
    let letter = Subject::changed(id, &row.value, Meta { death, ..known });
    transitions.add(tr, Before::Ready, After::Dead, letter)?;
    transitions.write(tr, None).await
}
