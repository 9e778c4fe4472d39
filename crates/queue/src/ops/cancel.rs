//! Cancelling and deleting items: they end without being finished, and leave no dead letter.

use foundationdb::Transaction;
use futures::future::try_join_all;
use mutant::bound;

use crate::keys::cancelled::CancelledItems;
use crate::keys::leases::Header;
use crate::keys::{Counter, Space, cancelled, leases, range};
use crate::model::error::QueueError;
use crate::model::history::Ending;
use crate::model::id::ItemId;
use crate::model::item_change::ItemChange;
use crate::model::lease_id::LeaseId;
use crate::model::view::ItemState;
use crate::ops::locate::{Located, locate};
use crate::ops::running::RunningRecord;
use crate::ops::scan::Row;
use crate::ops::transition::{After, Before, Subject, Transitions};
use crate::ops::{lease, place};
use crate::run::conflict;
use crate::run::exactly_once::Act;
use crate::run::range_read::{RangeRead, RowPage};
use crate::run::version::now;
use crate::run::watch::Watch;

/// The end of a cancelled item.
pub(crate) const CANCELLED: After<'static> = After::Ended(Ending::Cancelled, None);

/// The end of a deleted item.
const DELETED: After<'static> = After::Ended(Ending::Cancelled, Some("deleted"));

/// How many old records a cancellation clears at most: more than it writes, so that they do not become more.
fn old_records() -> usize {
    bound("old-cancellations", 4)
}

/// Cancels the item, whatever it is doing; fails at commit if another has moved it. A dead letter stays.
pub(crate) async fn item(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
) -> Result<Act<ItemChange>, QueueError> {
    let RunningRecord { lease, index, row, .. } = match locate(space, tr, id).await? {
        Some(Located::Running(found)) => *found,
        found => return not_running(space, tr, id, found, CANCELLED).await,
    };
    // Once more, with a conflict.
    let Some(header) = lease::header(space, tr, lease).await? else {
        return Ok(Act::Nothing(ItemChange::Gone));
    };
    running(space, tr, (lease, header), &[(index, &row)]).await?;
    clear_old(space, tr, (old_records(), 1)).await?;
    Ok(Act::Write(ItemChange::Done(ItemState::Running)))
}

/// Deletes the item; fails at commit if another has moved it. A running item and a dead letter stay.
pub(crate) async fn delete(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
) -> Result<Act<ItemChange>, QueueError> {
    let found = locate(space, tr, id).await?;
    not_running(space, tr, id, found, DELETED).await
}

/// Ends an item unless it is running or a dead letter.
async fn not_running(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
    found: Option<Located>,
    end: After<'_>,
) -> Result<Act<ItemChange>, QueueError> {
    let Some(found) = found else { return Ok(Act::Nothing(ItemChange::Gone)) };
    let Some((before, record)) = found.before() else {
        return Ok(Act::Nothing(ItemChange::Refused(found.state())));
    };
    let mut transitions = Transitions::begin(space, tr).await?;
    transitions.add(tr, before, end, Subject::new(id, &[], record))?;
    transitions.write(tr, None).await?;
    Ok(Act::Write(ItemChange::Done(found.state())))
}

/// Cancels items of a lease that are not acknowledged, each by its index. The header was read with a conflict, so of a cancellation,
/// an acknowledgement and the end of the lease one comes first, and the others find the item acknowledged or gone.
///
/// The items are marked as acknowledged. So the lease goes on for the others, and is over with the last one, whether or not its holder
/// is alive. The deadline stays, since this is no sign of life of the holder.
pub(crate) async fn running(
    space: &Space,
    tr: &Transaction,
    (id, mut header): (LeaseId, Header),
    items: &[(usize, &Row)],
) -> Result<(), QueueError> {
    let mut transitions = Transitions::begin(space, tr).await?;
    // After a jump of versions the deadline may be past, and the holder is there all the same.
    let none = CancelledItems::none(header.deadline.max(now(tr).await?));
    let mut record = read(space, tr, id).await?.unwrap_or_else(|| none.clone());
    record.until = record.until.max(none.until);
    for (index, row) in items {
        place::check_kind(space, &row.id)?;
        let item = Subject::new(&row.id, &[], &row.meta);
        transitions.add(tr, Before::Leased(id.session), CANCELLED, item)?;
        header.acknowledged.insert(*index);
        record.items.push((u32::try_from(*index).unwrap_or(u32::MAX), row.id.clone()));
    }
    transitions.write(tr, None).await?;
    tr.set(&cancelled::key(&space.cancelled, id), &record.encode());
    lease::update(space, tr, id, &header);
    Ok(())
}

/// Which items of a lease were cancelled, if any were. Conflicts with a cancellation of another one.
pub(crate) async fn read(
    space: &Space,
    tr: &Transaction,
    id: LeaseId,
) -> Result<Option<CancelledItems>, QueueError> {
    let key = cancelled::key(&space.cancelled, id);
    match tr.get(&key, false).await? {
        None => Ok(None),
        Some(value) => CancelledItems::decode(&value).map(Some).ok_or_else(|| QueueError::unreadable(&key)),
    }
}

/// Clears what is left of a lease that is over.
pub(crate) fn clear(space: &Space, tr: &Transaction, id: LeaseId) {
    tr.clear(&cancelled::key(&space.cancelled, id));
}

/// Clears up to `most` records on each of so many pages that are old and whose leases are over: the leases' holders died, or never asked. Returns how many. It goes
/// on behind records of long leases, and stops at the first page that has some to clear.
///
/// While the lease is there, the record is all that keeps its holder from writing something together with a cancelled item. After a jump of versions
/// it may be old, and the holder does not know of it yet.
pub(crate) async fn clear_old(
    space: &Space,
    tr: &Transaction,
    (most, pages): (usize, usize),
) -> Result<usize, QueueError> {
    let mut records = RangeRead::of(range(&space.cancelled)).page_limit(most).pages(tr);
    for _ in 0..pages {
        let Some(page) = records.next_page().await? else { break };
        let cleared = clear_old_of(space, tr, &page).await?;
        if cleared > 0 {
            return Ok(cleared);
        }
    }
    Ok(0)
}

async fn clear_old_of(space: &Space, tr: &Transaction, rows: &RowPage) -> Result<usize, QueueError> {
    let version = now(tr).await?;
    let is_old = |value: &[u8]| CancelledItems::decode(value).is_some_and(|record| record.until < version);
    let old: Vec<_> = rows.iter().filter(|row| is_old(row.value())).map(|row| row.key().to_vec()).collect();
    // Without a conflict: a lease that is over does not come back.
    let leases = old.iter().map(async |key| {
        let Some(id) = leases::decode_key(&space.cancelled, key) else { return Ok(None) };
        let header = tr.get(&leases::key(&space.leases, id), true).await?;
        Ok::<_, QueueError>(header.is_none().then(|| key.clone()))
    });
    let old: Vec<_> = try_join_all(leases).await?.into_iter().flatten().collect();
    for key in &old {
        // A cancellation may add to the record meanwhile. Before the clear: a transaction does not conflict on what it has itself overwritten.
        conflict::as_reader(tr, key)?;
        tr.clear(key);
    }
    Ok(old.len())
}

/// Watches `ncancel`, which every cancellation of a running item changes.
pub(crate) fn watch(space: &Space, tr: &Transaction) -> Watch {
    Watch::new(tr.watch(space.counter(Counter::Cancel)))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::client::queue::Queue;
    use crate::keys::leases::Held;
    use crate::model::session_id::SessionId;
    use crate::testing::on_database;

    #[test]
    fn records_of_long_leases_keep_no_old_ones_behind_them() {
        on_database(async |db| {
            let queue = Queue::new(b"", b"q").unwrap();
            let space = queue.space();
            let id = |number| LeaseId { session: SessionId([1; 16]), number };
            let tr = db.create_trx().unwrap();
            let held = Held { id: ItemId::new(vec![0; 13].into()), meta: Bytes::new(), value: Bytes::new() };
            for number in 0..250 {
                lease::put(space, &tr, id(number), (1, 1), std::slice::from_ref(&held));
            }
            for number in 0..251 {
                let key = cancelled::key(&space.cancelled, id(number));
                tr.set(&key, &CancelledItems::none(0).encode());
            }
            tr.commit().await.unwrap();
            let tr = db.create_trx().unwrap();
            assert_eq!(clear_old(space, &tr, (100, 2)).await.unwrap(), 0);
            assert_eq!(clear_old(space, &tr, (100, 3)).await.unwrap(), 1);
            tr.commit().await.unwrap();
            let tr = db.create_trx().unwrap();
            assert_eq!(clear_old(space, &tr, (100, 50)).await.unwrap(), 0);
        });
    }
}
