//! Deleting a queue, or one of its items.

use bytes::Bytes;
use foundationdb::Transaction;
use foundationdb::options::MutationType;

use crate::keys::{Space, counters};
use crate::model::error::QueueError;
use crate::model::history::Ending;
use crate::model::id::ItemId;
use crate::model::item_effect::ItemEffect;
use crate::ops::keyed::changes::Changes;
use crate::ops::locate::{Located, ScheduledRecord, locate};
use crate::ops::relocate::Movable;
use crate::ops::scan::Row;
use crate::ops::{claim, ended, place, relocate};
use crate::run::conflict;
use crate::run::exactly_once::Act;

/// The end of a deleted item, in the history.
const DELETED: (Ending, Option<&str>) = (Ending::Cancelled, Some("deleted"));

/// Clears the tuple range of (q), and that of a recipe's items.
pub(crate) fn delete(space: &Space, tr: &Transaction) {
    for (begin, end) in [space.queue_range(), space.item_range()] {
        tr.clear_range(&begin, &end);
    }
}

/// Deletes a ready, scheduled or retrying item, with all that goes with it; fails at commit if another has moved it. A running item and
/// a dead letter stay.
pub(crate) async fn item(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
) -> Result<Act<ItemEffect>, QueueError> {
    match locate(space, tr, id).await? {
        Some(Located::Ready(row)) => {
            relocate::remove(space, tr, Movable::Ready, &[&row]).await?;
            ended::of_rows(space, tr, DELETED, [&row]).await?;
        }
        Some(Located::ScheduledRecord(found)) => waiting(space, tr, id, found, DELETED).await?,
        Some(Located::Running(_)) => return Ok(Act::Nothing(ItemEffect::Running)),
        Some(Located::Dead) | None => return Ok(Act::Nothing(ItemEffect::Gone)),
    }
    Ok(Act::Write(ItemEffect::Done))
}

/// Removes a waiting item, with all that goes with it, and records this end; fails at commit if another has moved it.
pub(crate) async fn waiting(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
    found: ScheduledRecord,
    end: (Ending, Option<&str>),
) -> Result<(), QueueError> {
    all_waiting(space, tr, [(id.clone(), found)], end).await
}

/// The same of several, with the reads of all of them at once.
pub(crate) async fn all_waiting(
    space: &Space,
    tr: &Transaction,
    items: impl IntoIterator<Item = (ItemId, ScheduledRecord)>,
    end: (Ending, Option<&str>),
) -> Result<(), QueueError> {
    let (mut rows, mut changes) = (Vec::new(), Changes::default());
    for (id, found) in items {
        // Before the clears: a transaction does not conflict on what it has itself overwritten.
        conflict::as_reader(tr, &found.key)?;
        let row = Row { id, value: Bytes::new(), meta: found.record };
        claim::forget_undone(space, tr, &row)?;
        tr.clear(&found.key);
        place::clear_aside(space, tr, &row.id);
        changes.came_back(space, &row.id);
        rows.push(row);
    }
    ended::of_rows(space, tr, end, &rows).await?;
    // As if their time had come, and they had been popped.
    place::count_ready(space, tr, rows.len());
    for counter in [&space.ndue, &space.npop].into_iter().filter(|_| !rows.is_empty()) {
        tr.atomic_op(counter, &counters::increment(rows.len()), MutationType::Add);
    }
    changes.write(space, tr).await
}
