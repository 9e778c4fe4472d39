//! Pages of items that are on a lease. Reads that conflict with nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::time::Duration;

use foundationdb::future::{FdbKeyValue, FdbValues};
use foundationdb::options::StreamingMode;
use foundationdb::{RangeOption, Transaction};
use futures::future::try_join_all;

use crate::MAX_TAKE_BYTES;
use crate::error::QueueError;
use crate::id::ItemId;
use crate::keys::leases::{self, Header, LeaseId};
use crate::keys::{Space, after as behind, range};
use crate::ops::aside::size;
use crate::ops::scan::{self, Row};
use crate::ops::{lease, progress, version};
use crate::view::{Cursor, ItemPage, ItemState, ItemView, LeaseView};

/// The most leases that one page reads.
const MOST_LEASES: usize = 1_000;

/// The bytes of leases after which a page ends. It has one lease more at most.
const MOST_BYTES: usize = 1_000_000;

/// The most bytes of leases that are searched for an item: as much as a transaction has time for.
pub(crate) const MOST_SEARCHED: usize = 100_000_000;

/// How many leases whose items are not in their headers are read at once.
const TOGETHER: usize = 16;

/// The index behind all items of a lease.
const BEHIND_ALL: u32 = u32::MAX;

/// The items of leases that are not acknowledged, by lease.
pub(crate) async fn page(
    space: &Space,
    tr: &Transaction,
    after: Option<&Cursor>,
    k: NonZeroUsize,
) -> Result<ItemPage, QueueError> {
    let version = version::now(tr).await?;
    let (first, end) = range(&space.leases);
    // The page before may have ended within a lease: begin with that.
    let mut begin = after.and_then(Cursor::lease).map_or(first, |id| leases::key(&space.leases, id));
    let (mut page, mut place) = (ItemPage::default(), after.cloned());
    // Leases looked at, bytes of their items as they are stored in them, and with all parts of their payloads.
    let (mut looked, mut bytes, mut whole) = (0, 0, 0_u64);
    loop {
        let rows = tr.get_range(&some(&begin, &end), 1, true).await?;
        for (id, header) in headers(space, &rows) {
            let Some(id) = id else {
                page.unreadable += 1;
                continue;
            };
            if page.items.len() >= k.get() || looked >= MOST_LEASES || bytes >= MOST_BYTES {
                page.next = place;
                return Ok(page);
            }
            looked += 1;
            let skipped = match place {
                Some(Cursor::Leased(of, index)) if of == id => Some(index),
                _ => None,
            };
            let open = open(space, tr, id, header, skipped).await?;
            let Some((header, open)) = open else {
                page.unreadable += 1;
                place = Some(Cursor::Leased(id, BEHIND_ALL));
                continue;
            };
            let lease = view(id, &header, version);
            let mut progress = progress::read(space, tr, id, &header).await?.0;
            bytes += progress.values().map(|progress| progress.message.len()).sum::<usize>();
            for (index, row) in &open {
                bytes += row.value.len() + row.meta.len();
                whole += size(space, row).unwrap_or(0);
                let is_full = page.items.len() >= k.get() || whole > MAX_TAKE_BYTES as u64;
                if is_full && !page.items.is_empty() {
                    page.next = place;
                    return Ok(page);
                }
                let item = item(space, tr, row, lease).await?;
                page.items.push(ItemView { progress: progress.remove(index), ..item });
                place = Some(Cursor::Leased(id, *index));
            }
            place = Some(Cursor::Leased(id, BEHIND_ALL));
        }
        let Some(last) = rows.iter().next_back().filter(|_| rows.more()) else { return Ok(page) };
        begin = behind(last.key());
    }
}

/// Where a running item is.
#[derive(Debug)]
pub(crate) struct RunningRecord {
    pub(crate) lease: LeaseId,
    pub(crate) header: Header,
    /// The item's index in the lease.
    pub(crate) index: usize,
    pub(crate) row: Row,
}

/// The item of this id, if it is on a lease and not acknowledged.
///
/// # Errors
/// As [`find_each`].
pub(crate) async fn find(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
) -> Result<Option<RunningRecord>, QueueError> {
    Ok(find_each(space, tr, BTreeSet::from([id])).await?.items.remove(id))
}

/// The running ones of some items.
#[derive(Debug, Default)]
pub(crate) struct RunningItems {
    pub(crate) items: BTreeMap<ItemId, RunningRecord>,
    /// The key of a lease that cannot be read: others of the items may be on it.
    pub(crate) unreadable: Option<Vec<u8>>,
}

/// Those of the items that are on leases and not acknowledged. Leases that cannot be read are passed over.
///
/// Nothing in the database leads from an item to its lease, since that would cost each fetch of each item. So this reads the headers of all leases, by the page.
/// Short leases have their items in there. The others have the least and the greatest id there, so that the pieces of most of them are not read.
///
/// # Errors
/// [`QueueError::TooMuchRunning`], if they have more than [`MOST_SEARCHED`] bytes.
pub(crate) async fn find_each(
    space: &Space,
    tr: &Transaction,
    mut ids: BTreeSet<&ItemId>,
) -> Result<RunningItems, QueueError> {
    let (mut begin, end) = range(&space.leases);
    let (mut bytes, mut all) = (0, RunningItems::default());
    while let Some(first) = ids.first().copied() {
        let too_much = || QueueError::TooMuchRunning { id: first.clone() };
        let rows = tr.get_range(&some(&begin, &end), 1, true).await?;
        bytes += rows.iter().map(|row| row.key().len() + row.value().len()).sum::<usize>();
        let found: Vec<_> =
            headers(space, &rows).into_iter().map(|(lease, header)| lease.zip(header)).collect();
        if let Some((row, _)) = rows.iter().zip(&found).find(|(_, lease)| lease.is_none()) {
            all.unreadable = Some(row.key().to_vec());
        }
        let found = found.into_iter().flatten().filter(|(_, header)| header.may_have(&ids));
        let (short, long): (Vec<_>, Vec<_>) = found.partition(|(_, header)| header.pieces == 0);
        for (lease, header) in short {
            let found = in_lease(space, tr, &ids, (lease, header)).await?;
            all.add(space, vec![(lease, found)], &mut ids);
        }
        for group in long.chunks(TOGETHER) {
            // All pieces but the last are full.
            bytes += group.iter().map(|(_, header)| header.pieces as usize * leases::PIECE).sum::<usize>();
            if bytes > MOST_SEARCHED {
                return Err(too_much());
            }
            let found = group.iter().map(|lease| in_lease(space, tr, &ids, lease.clone()));
            let found = try_join_all(found).await?;
            let leases = group.iter().map(|(lease, _)| *lease);
            all.add(space, leases.zip(found).collect(), &mut ids);
        }
        let last = rows.iter().next_back().filter(|_| rows.more());
        if ids.is_empty() || last.is_none() {
            break;
        }
        if bytes > MOST_SEARCHED {
            return Err(too_much());
        }
        begin = last.map_or(begin, |last| behind(last.key()));
    }
    Ok(all)
}

impl RunningItems {
    /// Adds what was found on leases; `None`: a lease cannot be read.
    fn add(
        &mut self,
        space: &Space,
        found: Vec<(LeaseId, Option<Vec<RunningRecord>>)>,
        ids: &mut BTreeSet<&ItemId>,
    ) {
        for (lease, records) in found {
            if records.is_none() {
                self.unreadable = Some(leases::key(&space.leases, lease));
            }
            for record in records.into_iter().flatten() {
                ids.remove(&record.row.id);
                self.items.insert(record.row.id.clone(), record);
            }
        }
    }
}

/// Those of the items that are on this lease and not acknowledged; `None` if it cannot be read.
async fn in_lease(
    space: &Space,
    tr: &Transaction,
    ids: &BTreeSet<&ItemId>,
    (lease, header): (LeaseId, Header),
) -> Result<Option<Vec<RunningRecord>>, QueueError> {
    let open = open(space, tr, lease, Some(header), None).await?;
    let Some((header, open)) = open else { return Ok(None) };
    let found = open.into_iter().filter(|(_, row)| ids.contains(&row.id));
    let record = |(index, row)| RunningRecord { lease, header: header.clone(), index: index as usize, row };
    Ok(Some(found.map(record).collect()))
}

/// A running item, for people.
pub(crate) async fn show(
    space: &Space,
    tr: &Transaction,
    found: &RunningRecord,
) -> Result<ItemView, QueueError> {
    let version = version::now(tr).await?;
    let item = item(space, tr, &found.row, view(found.lease, &found.header, version)).await?;
    let mut progress = progress::read(space, tr, found.lease, &found.header).await?.0;
    let index = u32::try_from(found.index).ok();
    Ok(ItemView { progress: index.and_then(|index| progress.remove(&index)), ..item })
}

/// The id and the header of each lease, if they can be read. Rows are not `Send`, so nothing borrows from them.
fn headers(space: &Space, rows: &FdbValues) -> Vec<(Option<LeaseId>, Option<Header>)> {
    let decode =
        |row: &FdbKeyValue| (leases::decode_key(&space.leases, row.key()), Header::decode(row.value()));
    rows.iter().map(decode).collect()
}

/// Some leases.
fn some<'a>(begin: &'a [u8], end: &'a [u8]) -> RangeOption<'a> {
    let mode = StreamingMode::WantAll;
    RangeOption { limit: Some(MOST_LEASES), mode, ..RangeOption::from((begin, end)) }
}

/// The header of a lease, and its items behind an index that are not acknowledged, each with its index. `None` if it cannot be read.
pub(crate) async fn open(
    space: &Space,
    tr: &Transaction,
    id: LeaseId,
    header: Option<Header>,
    skipped: Option<u32>,
) -> Result<Option<(Header, Vec<(u32, Row)>)>, QueueError> {
    let Some(header) = header else { return Ok(None) };
    let Ok(held) = QueueError::if_readable(lease::body(space, tr, id, &header, true).await)? else {
        return Ok(None);
    };
    let is_wanted = |index: &u32| skipped.is_none_or(|skipped| *index > skipped);
    let indexes = header.acknowledged.open().filter_map(|index| u32::try_from(index).ok()).filter(is_wanted);
    let rows = indexes.map(|index| (index, lease::row(&held[index as usize]))).collect();
    Ok(Some((header, rows)))
}

/// An item of a lease. One that cannot be read says why.
async fn item(space: &Space, tr: &Transaction, row: &Row, lease: LeaseView) -> Result<ItemView, QueueError> {
    let read = scan::items(space, tr, std::slice::from_ref(row)).await;
    let read = QueueError::if_readable(read)?;
    let item = match read {
        Ok(mut items) => items.pop().ok_or_else(String::new),
        Err(error) => Err(error.to_string()),
    };
    Ok(ItemView {
        id: row.id.clone(),
        state: ItemState::Running,
        item,
        due: None,
        lease: Some(lease),
        progress: None,
        age: None,
    })
}

fn view(id: LeaseId, header: &Header, version: u64) -> LeaseView {
    // Versions are microseconds, roughly.
    let span = |from: u64, to: u64| Duration::from_micros(to.saturating_sub(from));
    LeaseView {
        id,
        extended: span(header.set_at(), version),
        left: (!header.has_run_out(version)).then(|| span(version, header.deadline)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::approach::Approach;
    use crate::queue::Queue;
    use crate::session::{FetchOptions, Session};
    use crate::testing::on_database;

    #[test]
    fn the_items_of_leases_that_cannot_have_an_item_are_not_read() {
        on_database(async |db| {
            let queue = Queue::new(b"", b"q").unwrap();
            let space = queue.space();
            let mut session = Session::new(queue.clone());
            let (mut leases, mut approach) = (Vec::new(), Approach::Front);
            for _ in 0..8 {
                session.push(db, &[[b'x'; 3_000]; 3]).await.unwrap();
                let k = NonZeroUsize::new(3).unwrap();
                let mut options = FetchOptions::new(k, Duration::from_mins(10), &mut approach);
                leases.push(session.fetch(db, &mut options).await.unwrap().lease.unwrap());
            }
            // The bodies of all leases but one are damaged.
            let tr = db.create_trx().unwrap();
            let wanted = &leases[5];
            for other in leases.iter().filter(|lease| lease.id() != wanted.id()) {
                tr.set(&leases::piece_key(&space.held, other.id(), 0), b"x");
            }
            tr.commit().await.unwrap();
            let tr = db.create_trx().unwrap();
            let id = &wanted.items()[1].id;
            let found = find_each(space, &tr, BTreeSet::from([id])).await.unwrap();
            assert_eq!((found.items[id].lease, found.items[id].index), (wanted.id(), 1));
            assert_eq!(found.unreadable, None);
            // Of a lease that may have the item, the body is read.
            let found = find_each(space, &tr, BTreeSet::from([&leases[2].items()[1].id])).await.unwrap();
            assert!(found.items.is_empty() && found.unreadable.is_some());
        });
    }
}
