//! Pages of items that are on a lease. Reads that conflict with nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::time::Duration;

use foundationdb::Transaction;
use foundationdb::future::FdbKeyValue;
use futures::future::try_join_all;
use mutant::bound;

use crate::keys;
use crate::keys::leases::Header;
use crate::keys::{Space, leases, range};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::lease_id::LeaseId;
use crate::model::sizes::MAX_TAKE_BYTES;
use crate::model::view::{Cursor, ItemPage, ItemState, ItemView, LeaseView};
use crate::ops::aside::size;
use crate::ops::scan::Row;
use crate::ops::{lease, progress, scan};
use crate::run::range_read::{RangeRead, RowPage};
use crate::run::version;

/// The most leases that one page reads.
fn most_leases() -> usize {
    bound("running-page-leases", 1_000)
}

/// The bytes of leases after which a page ends. It has one lease more at most.
fn most_bytes() -> usize {
    bound("running-page-bytes", 1_000_000)
}

/// The most bytes of leases that are searched for an item: as much as a transaction has time for.
pub(crate) const MOST_SEARCHED: usize = 100_000_000;

/// How many leases are read at once, and of how many pieces, unless one alone has more.
fn together() -> usize {
    bound("running-together", 16)
}

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
    let begin = match after {
        Some(Cursor::Leased(id, BEHIND_ALL)) => keys::after(&leases::key(&space.leases, *id)),
        // The page before ended within a lease: begin with that.
        Some(Cursor::Leased(id, _)) => leases::key(&space.leases, *id),
        _ => first,
    };
    let mut filling = Filling { k: k.get(), version, place: after.cloned(), ..Filling::default() };
    let mut pages = RangeRead::of((begin, end)).page_limit(most_leases()).pages(tr);
    while let Some(rows) = pages.next_page().await? {
        let found = headers(space, &rows);
        let mut rest = found.as_slice();
        while !rest.is_empty() {
            // Each lease has an item that is not acknowledged.
            let (group, behind) = rest.split_at(group_len(rest, k.get() - filling.page.items.len()));
            rest = behind;
            for (id, opened) in open_each(space, tr, group, filling.place.as_ref()).await? {
                if !filling.add(space, tr, id, opened).await? {
                    return Ok(ItemPage { next: filling.place, ..filling.page });
                }
            }
        }
    }
    Ok(filling.page)
}

/// A page that is being filled.
#[derive(Debug, Default)]
struct Filling {
    /// The most items.
    k: usize,
    version: u64,
    page: ItemPage,
    /// What was added or passed over last.
    place: Option<Cursor>,
    /// How many leases were looked at.
    looked: usize,
    /// Bytes of items as they are stored in leases.
    bytes: usize,
    /// The same with all parts of their payloads.
    whole: u64,
}

impl Filling {
    /// Adds the items of a lease; `false`: the page ends before the last of them.
    async fn add(
        &mut self,
        space: &Space,
        tr: &Transaction,
        id: Option<LeaseId>,
        opened: Option<Opened>,
    ) -> Result<bool, QueueError> {
        let Some(id) = id else {
            self.page.unreadable += 1;
            return Ok(true);
        };
        if self.page.items.len() >= self.k || self.looked >= most_leases() || self.bytes >= most_bytes() {
            return Ok(false);
        }
        self.looked += 1;
        let Some((header, open)) = opened else {
            self.page.unreadable += 1;
            self.place = Some(Cursor::Leased(id, BEHIND_ALL));
            return Ok(true);
        };
        let lease = view(id, &header, self.version);
        let mut progress = progress::read(space, tr, id, &header).await?.0;
        self.bytes += progress.values().map(|progress| progress.message.len()).sum::<usize>();
        for (index, row) in &open {
            self.bytes += row.value.len() + row.meta.len();
            self.whole += size(space, row).unwrap_or(0);
            let is_full = self.page.items.len() >= self.k || self.whole > MAX_TAKE_BYTES as u64;
            if is_full && !self.page.items.is_empty() {
                return Ok(false);
            }
            let item = item(space, tr, row, lease).await?;
            self.page.items.push(ItemView { progress: progress.remove(index), ..item });
            self.place = Some(Cursor::Leased(id, *index));
        }
        self.place = Some(Cursor::Leased(id, BEHIND_ALL));
        Ok(true)
    }
}

/// A lease's row: its id and its header, if they can be read.
pub(crate) type LeaseRow = (Option<LeaseId>, Option<Header>);

/// The header of a lease, and those of its items that are not acknowledged, each with its index.
pub(crate) type Opened = (Header, Vec<(u32, Row)>);

/// How many of the first leases are read at once: at most `most`, and one at least.
pub(crate) fn group_len(leases: &[LeaseRow], most: usize) -> usize {
    let mut pieces = 0;
    let fit = leases.iter().take(most.min(together())).take_while(|(_, header)| {
        pieces += header.as_ref().map_or(0, |header| header.pieces as usize);
        pieces <= together()
    });
    fit.count().max(1)
}

/// Opens leases; of the one that `place` is in, the items behind that.
pub(crate) async fn open_each(
    space: &Space,
    tr: &Transaction,
    leases: &[LeaseRow],
    place: Option<&Cursor>,
) -> Result<Vec<(Option<LeaseId>, Option<Opened>)>, QueueError> {
    let open = leases.iter().map(async |(id, header)| {
        let Some(of) = *id else { return Ok((None, None)) };
        let skipped = match place {
            Some(Cursor::Leased(id, index)) if *id == of => Some(*index),
            _ => None,
        };
        Ok::<_, QueueError>((*id, open(space, tr, of, header.clone(), skipped).await?))
    });
    try_join_all(open).await
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
/// These are short, and say which of the leases may have an item. So few bodies are read.
///
/// # Errors
/// [`QueueError::TooMuchRunning`], if they have more than [`MOST_SEARCHED`] bytes.
pub(crate) async fn find_each(
    space: &Space,
    tr: &Transaction,
    ids: BTreeSet<&ItemId>,
) -> Result<RunningItems, QueueError> {
    find_up_to(space, tr, ids, MOST_SEARCHED).await
}

async fn find_up_to(
    space: &Space,
    tr: &Transaction,
    mut ids: BTreeSet<&ItemId>,
    most_bytes: usize,
) -> Result<RunningItems, QueueError> {
    let mut pages = RangeRead::of(range(&space.leases)).page_limit(most_leases()).pages(tr);
    let (mut bytes, mut all) = (0, RunningItems::default());
    while let Some(first) = ids.first().copied()
        && let Some(rows) = pages.next_page().await?
    {
        let too_much = || QueueError::TooMuchRunning { id: first.clone() };
        bytes += rows.byte_len();
        let found = headers(space, &rows);
        let is_unreadable = |row: &LeaseRow| row.0.is_none() || row.1.is_none();
        if let Some((row, _)) = rows.iter().zip(&found).find(|(_, lease)| is_unreadable(lease)) {
            all.unreadable = Some(row.key().to_vec());
        }
        let may_have = |row: &LeaseRow| row.1.as_ref().is_some_and(|header| header.may_have(&ids));
        let found: Vec<LeaseRow> =
            found.into_iter().filter(|row| !is_unreadable(row) && may_have(row)).collect();
        let mut rest = found.as_slice();
        while !rest.is_empty() && !ids.is_empty() {
            if bytes > most_bytes {
                return Err(too_much());
            }
            let (group, behind) = rest.split_at(group_len(rest, usize::MAX));
            rest = behind;
            for (lease, opened) in open_each(space, tr, group, None).await? {
                bytes += lease.map_or(0, |lease| all.add(space, lease, opened, &mut ids));
            }
        }
        if bytes > most_bytes && rows.has_more() && !ids.is_empty() {
            return Err(too_much());
        }
    }
    Ok(all)
}

impl RunningItems {
    /// Adds those of the items that are on this lease; `None`: it cannot be read. Returns how many bytes its items have.
    fn add(
        &mut self,
        space: &Space,
        lease: LeaseId,
        opened: Option<Opened>,
        ids: &mut BTreeSet<&ItemId>,
    ) -> usize {
        let Some((header, open)) = opened else {
            self.unreadable = Some(leases::key(&space.leases, lease));
            return 0;
        };
        let mut bytes = 0;
        for (index, row) in open {
            bytes += row.id.as_bytes().len() + row.meta.len() + row.value.len();
            if ids.remove(&row.id) {
                let (id, index) = (row.id.clone(), index as usize);
                self.items.insert(id, RunningRecord { lease, header: header.clone(), index, row });
            }
        }
        bytes
    }
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
pub(crate) fn headers(space: &Space, rows: &RowPage) -> Vec<LeaseRow> {
    let decode =
        |row: &FdbKeyValue| (leases::decode_key(&space.leases, row.key()), Header::decode(row.value()));
    rows.iter().map(decode).collect()
}

/// The header of a lease, and its items behind an index that are not acknowledged, each with its index. `None` if it cannot be read.
pub(crate) async fn open(
    space: &Space,
    tr: &Transaction,
    id: LeaseId,
    header: Option<Header>,
    skipped: Option<u32>,
) -> Result<Option<Opened>, QueueError> {
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
    use bytes::Bytes;
    use foundationdb::Database;

    use super::*;
    use crate::client::approach::Approach;
    use crate::client::queue::Queue;
    use crate::client::session::{FetchOptions, Session};
    use crate::keys::leases::Held;
    use crate::model::session_id::SessionId;
    use crate::testing::on_database;

    const LEASES: usize = 500;
    const ITEMS: usize = 10;

    fn id_of(number: usize) -> ItemId {
        ItemId::new([&[0x33; 5][..], &number.to_be_bytes()].concat().into())
    }

    fn lease_id(number: usize) -> LeaseId {
        LeaseId { session: SessionId([1; 16]), number: number as u64 }
    }

    /// Leases of small items. Each has an item of each part of all ids, as in a keyed queue.
    async fn put_leases(db: &Database, space: &Space) {
        let tr = db.create_trx().unwrap();
        for number in 0..LEASES {
            let item = |nth| Held {
                id: id_of(nth * LEASES + number),
                meta: Bytes::new(),
                value: vec![b'x'; 300].into(),
            };
            let items: Vec<_> = (0..ITEMS).map(item).collect();
            lease::put(space, &tr, lease_id(number), (1, 1), &items);
        }
        tr.commit().await.unwrap();
    }

    #[test]
    fn few_bytes_are_read_for_one_item_among_many_leases_of_small_items() {
        on_database(async |db| {
            let queue = Queue::new(b"", b"q").unwrap();
            let space = queue.space();
            put_leases(db, space).await;
            // The items have 1,500,000 bytes.
            let most = LEASES * 150 + 10_000;
            let tr = db.create_trx().unwrap();
            for number in [0, 777, ITEMS * LEASES - 1] {
                let id = id_of(number);
                let mut found = find_up_to(space, &tr, BTreeSet::from([&id]), most).await.unwrap();
                let found = found.items.remove(&id).unwrap();
                assert_eq!((found.lease, found.index), (lease_id(number % LEASES), number / LEASES));
            }
            for gone in (0..20).map(|n| ItemId::new([id_of(n * 199).as_bytes(), b"-"].concat().into())) {
                let found = find_up_to(space, &tr, BTreeSet::from([&gone]), most).await.unwrap();
                assert!(found.items.is_empty() && found.unreadable.is_none());
            }
            let (id, none) = (id_of(777), 40_000);
            let refused = find_up_to(space, &tr, BTreeSet::from([&id]), none).await;
            assert!(matches!(refused, Err(QueueError::TooMuchRunning { .. })), "{refused:?}");
        });
    }

    #[test]
    fn pages_of_running_items_end_within_leases_and_go_on_there() {
        on_database(async |db| {
            let queue = Queue::new(b"", b"q").unwrap();
            let space = queue.space();
            put_leases(db, space).await;
            let tr = db.create_trx().unwrap();
            let bounds = mutant::Bounds::default().with("running-page-leases", 1).enter();
            // A page of one lease.
            let (mut after, mut found) = (None, Vec::new());
            while found.len() < 5 * ITEMS {
                let page = page(space, &tr, after.as_ref(), NonZeroUsize::new(100).unwrap()).await.unwrap();
                assert_eq!(page.items.len(), ITEMS);
                found.extend(page.items);
                after = page.next;
            }
            drop(bounds);
            for k in [1, 7, 250] {
                let (mut after, mut found) = (None, Vec::new());
                for _ in 0..8 {
                    let page = page(space, &tr, after.as_ref(), NonZeroUsize::new(k).unwrap()).await.unwrap();
                    assert_eq!((page.items.len(), page.unreadable), (k, 0));
                    found.extend(page.items.into_iter().map(|item| item.id));
                    after = page.next;
                }
                let nth = |n: usize| id_of(n % ITEMS * LEASES + n / ITEMS);
                assert_eq!(found, (0..8 * k).map(nth).collect::<Vec<_>>());
            }
        });
    }

    /// A lease as an earlier version wrote it: the body is in the header.
    #[test]
    fn an_item_is_found_in_the_header_of_an_earlier_version() {
        on_database(async |db| {
            let queue = Queue::new(b"", b"q").unwrap();
            let space = queue.space();
            let part = |part: &[u8]| [&u32::try_from(part.len()).unwrap().to_le_bytes(), part].concat();
            let value = [b'x'; 2_000];
            let body: Vec<u8> =
                [1, 2].map(|n| [part(id_of(n).as_bytes()), part(&[]), part(&value)].concat()).concat();
            // Format, deadline, length, two items, no pieces, and no item is acknowledged.
            let header = [
                &[1][..],
                &9_u64.to_le_bytes(),
                &5_u64.to_le_bytes(),
                &2_u32.to_le_bytes(),
                &0_u32.to_le_bytes(),
                &[0],
                &body,
            ];
            let tr = db.create_trx().unwrap();
            tr.set(&leases::key(&space.leases, lease_id(3)), &header.concat());
            tr.commit().await.unwrap();
            let tr = db.create_trx().unwrap();
            let found = find(space, &tr, &id_of(2)).await.unwrap().unwrap();
            assert_eq!((found.lease, found.index, &found.row.value[..]), (lease_id(3), 1, &value[..]));
            assert!(find(space, &tr, &id_of(3)).await.unwrap().is_none());
            // A change of the header leaves the body there.
            let mut header = found.header;
            header.acknowledged.insert(0);
            lease::update(space, &tr, lease_id(3), &header);
            let header = lease::header(space, &tr, lease_id(3)).await.unwrap().unwrap();
            let items = lease::body(space, &tr, lease_id(3), &header, false).await.unwrap();
            assert_eq!(items.iter().map(|item| &item.id).collect::<Vec<_>>(), [&id_of(1), &id_of(2)]);
        });
    }

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
                leases.push(session.fetch(db, &mut options).await.unwrap().got.unwrap());
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
