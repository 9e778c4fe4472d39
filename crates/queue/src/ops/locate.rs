//! Finding an item by its id, whatever it is doing. Reads that conflict with nothing.

use bytes::Bytes;
use foundationdb::options::StreamingMode;
use foundationdb::{RangeOption, Transaction};
use futures::future::try_join4;

use crate::error::QueueError;
use crate::id::ItemId;
use crate::keys::{Space, after, later, range};
use crate::meta::Millis;
use crate::ops::peek::possible;
use crate::ops::running;
use crate::ops::scan::Row;
use crate::view::ItemView;

/// How many records of waiting items are read at once.
const PAGE: usize = 1_000;

/// Where an item is.
#[derive(Debug)]
pub(crate) enum Located {
    /// Among the ready items.
    Ready(Row),
    /// It is scheduled or retrying.
    ScheduledRecord(ScheduledRecord),
    /// On a lease.
    Running(Box<ItemView>),
    /// Among the dead letters.
    Dead,
}

/// The record of an item that waits for its time.
#[derive(Debug)]
pub(crate) struct ScheduledRecord {
    pub(crate) key: Vec<u8>,
    pub(crate) due: Millis,
    /// Its side record.
    pub(crate) record: Bytes,
}

/// Where the item is; `None` if the queue has none of this id.
///
/// A ready item and a dead letter are found by their keys. The key of a waiting item begins with its time, and a lease's key with its
/// session, so these are looked for among all of their kind.
pub(crate) async fn locate(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
) -> Result<Option<Located>, QueueError> {
    let (ready, meta, dead, body) = try_join4(
        tr.get(&space.ready_key(id), true),
        tr.get(&space.meta_key(id), true),
        tr.get(&space.dead_key(id), true),
        tr.get(&space.body_key(id), true),
    )
    .await?;
    if let Some(value) = ready.filter(|_| possible(space, id)) {
        let bytes = |value: &[u8]| Bytes::copy_from_slice(value);
        let meta = meta.map_or_else(Bytes::new, |meta| bytes(&meta));
        return Ok(Some(Located::Ready(Row { id: id.clone(), value: bytes(&value), meta })));
    }
    if dead.is_some() {
        return Ok(Some(Located::Dead));
    }
    if body.is_some()
        && let Some(waiting) = waiting(space, tr, id).await?
    {
        return Ok(Some(Located::ScheduledRecord(waiting)));
    }
    let running = running::find(space, tr, id).await?;
    Ok(running.map(|view| Located::Running(Box::new(view))))
}

async fn waiting(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
) -> Result<Option<ScheduledRecord>, QueueError> {
    let (mut begin, end) = range(&space.later);
    loop {
        let option = RangeOption {
            limit: Some(PAGE),
            mode: StreamingMode::WantAll,
            ..RangeOption::from((begin.as_slice(), end.as_slice()))
        };
        let rows = tr.get_range(&option, 1, true).await?;
        for row in rows.iter().filter(|row| row.key().ends_with(id.as_bytes())) {
            // Of ids of any length, one may end another.
            if let Some((due, _)) = later::decode(&space.later, row.key()).filter(|(_, found)| found == id) {
                let record = Bytes::copy_from_slice(row.value());
                return Ok(Some(ScheduledRecord { key: row.key().to_vec(), due, record }));
            }
        }
        let Some(last) = rows.iter().next_back().filter(|_| rows.more()) else { return Ok(None) };
        begin = after(last.key());
    }
}
