//! Finding an item by its id, whatever it is doing. Reads that conflict with nothing.

use std::borrow::Cow;

use bytes::Bytes;
use foundationdb::Transaction;
use futures::try_join;
use mutant::bound;

use crate::keys::{Space, later, meta};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::item_change::ItemChange;
use crate::model::time::Millis;
use crate::model::view::ItemState;
use crate::ops::peek::possible;
use crate::ops::running;
use crate::ops::running::RunningRecord;
use crate::ops::scan::Row;
use crate::ops::transition::Before;
use crate::run::exactly_once::Act;
use crate::run::range_read::RangeRead;

/// How many records of waiting items are read at once.
fn page_rows() -> usize {
    bound("locate-page", 1_000)
}

/// Where an item is.
#[derive(Debug)]
pub(crate) enum Located {
    /// Among the ready items.
    Ready(Row),
    /// It is scheduled or retrying.
    ScheduledRecord(ScheduledRecord),
    /// On a lease.
    Running(Box<RunningRecord>),
    /// Among the dead letters.
    Dead,
}

impl Located {
    pub(crate) fn state(&self) -> ItemState {
        match self {
            Located::Ready(_) => ItemState::Ready,
            Located::ScheduledRecord(found) => state_of(&found.record),
            Located::Running(_) => ItemState::Running,
            Located::Dead => ItemState::Dead,
        }
    }

    /// The state that a transition takes it from, and its side record. `None` if it is running or a dead letter: then a transition needs more
    /// than was read here.
    pub(crate) fn before(&self) -> Option<(Before<'_>, &Bytes)> {
        match self {
            Located::Ready(row) => Some((Before::Ready, &row.meta)),
            Located::ScheduledRecord(found) => Some((Before::Scheduled(&found.key), &found.record)),
            Located::Running(_) | Located::Dead => None,
        }
    }

    /// The row whose change means that the item has moved. `None` as for [`before`](Located::before).
    pub(crate) fn key(&self, space: &Space, id: &ItemId) -> Option<Cow<'_, [u8]>> {
        self.before()?.0.key(space, id)
    }
}

/// The record of an item that waits for its time.
#[derive(Debug)]
pub(crate) struct ScheduledRecord {
    pub(crate) key: Vec<u8>,
    pub(crate) due: Millis,
    /// Its side record.
    pub(crate) record: Bytes,
}

/// The answer of a change that leaves the item as it is.
pub(crate) fn refused(found: Option<&Located>) -> Act<ItemChange> {
    Act::Nothing(found.map_or(ItemChange::Gone, |found| ItemChange::Refused(found.state())))
}

/// Whether an item with this side record, which waits for its time, is scheduled or retrying. One that cannot be read counts as scheduled.
pub(crate) fn state_of(record: &[u8]) -> ItemState {
    match meta::decode(record) {
        Some(meta) if meta.attempts > 0 => ItemState::Retrying,
        _ => ItemState::Scheduled,
    }
}

/// Where the item is; `None` if the queue has none of this id.
///
/// A lease's key begins with its session, so a running item is looked for in all leases.
pub(crate) async fn locate(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
) -> Result<Option<Located>, QueueError> {
    match locate_unleased(space, tr, id).await? {
        None => {
            let running = running::find(space, tr, id).await?;
            Ok(running.map(|found| Located::Running(Box::new(found))))
        }
        found => Ok(found),
    }
}

/// Where the item is, unless it is running; `None` also if it is.
///
/// It is found by its keys. Only an item that waits and that an earlier version put aside is looked for among all of these.
pub(crate) async fn locate_unleased(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
) -> Result<Option<Located>, QueueError> {
    let (ready, meta, dead, body, due) = try_join!(
        tr.get(&space.ready_key(id), true),
        tr.get(&space.meta_key(id), true),
        tr.get(&space.dead_key(id), true),
        tr.get(&space.body_key(id), true),
        tr.get(&space.due_key(id), true),
    )?;
    if let Some(value) = ready.filter(|_| possible(space, id)) {
        let bytes = |value: &[u8]| Bytes::copy_from_slice(value);
        let meta = meta.map_or_else(Bytes::new, |meta| bytes(&meta));
        return Ok(Some(Located::Ready(Row { id: id.clone(), value: bytes(&value), meta })));
    }
    if dead.is_some() {
        return Ok(Some(Located::Dead));
    }
    if body.is_some() {
        let due = due.and_then(|due| later::decode_due(&due));
        let found = match due {
            Some(due) => waiting_at(space, tr, id, due).await?,
            None => None,
        };
        let found = if found.is_some() { found } else { search(space, tr, id).await? };
        return Ok(found.map(Located::ScheduledRecord));
    }
    Ok(None)
}

/// The record of an item that waits for this time.
async fn waiting_at(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
    due: Millis,
) -> Result<Option<ScheduledRecord>, QueueError> {
    let key = space.later.key(due, id.as_bytes());
    let record = tr.get(&key, true).await?.map(|record| Bytes::copy_from_slice(&record));
    Ok(record.map(|record| ScheduledRecord { key, due, record }))
}

/// The record of an item that waits for a time that is not known.
async fn search(space: &Space, tr: &Transaction, id: &ItemId) -> Result<Option<ScheduledRecord>, QueueError> {
    let mut pages = RangeRead::of(space.later.all()).page_limit(page_rows()).pages(tr);
    while let Some(page) = pages.next_page().await? {
        for row in page.iter().filter(|row| row.key().ends_with(id.as_bytes())) {
            // Of ids of any length, one may end another.
            if let Some((due, _)) = space.later.decode_item(row.key()).filter(|(_, found)| found == id) {
                let record = Bytes::copy_from_slice(row.value());
                return Ok(Some(ScheduledRecord { key: row.key().to_vec(), due, record }));
            }
        }
    }
    Ok(None)
}
