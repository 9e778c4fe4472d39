//! Cancelling the items of a page that match, of one state.

use std::num::NonZeroUsize;

use foundationdb::Transaction;
use mutant::bound;

use crate::keys::leases::Header;
use crate::keys::{Space, after, append_bytes, leases, meta, range};
use crate::model::cancel::CancelCounts;
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::kind::Kind;
use crate::model::lease_id::LeaseId;
use crate::model::meta::Meta;
use crate::model::place::Place;
use crate::model::time::from_millis;
use crate::model::view::{Cursor, ItemState};
use crate::ops::aside::delayed;
use crate::ops::cancel::CANCELLED;
use crate::ops::locate::state_of;
use crate::ops::running::open;
use crate::ops::scan::Row;
use crate::ops::transition::{Before, Subject, Transitions};
use crate::ops::{cancel, cost, lease, partitions, ready};
use crate::run::range_read::RangeRead;

/// The most items that one transaction looks at.
const PAGE: NonZeroUsize = NonZeroUsize::new(500).expect("500 is not 0");
/// About how many bytes one transaction writes at most, and reads of leases.
fn page_bytes() -> usize {
    bound("cancel-page-bytes", 1 << 20)
}
/// After so many pages of leases none of which can be read, the search ends.
const MOST_PAGES: usize = 50;
/// The most leases that one transaction reads at a time.
fn page_leases() -> usize {
    bound("cancel-page-leases", 100)
}

/// The result for a page of items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CancelPage {
    pub(crate) counts: CancelCounts,
    /// Where the next page begins; `None` behind the last of all.
    pub(crate) next: Option<Cursor>,
}

impl CancelPage {
    /// Whether an item is to be cancelled. One that cannot be read is counted, and stays.
    fn wants(&mut self, id: &ItemId, record: &[u8], is_wanted: &impl Fn(&ItemId, &Meta) -> bool) -> bool {
        match meta::decode(record) {
            Some(meta) => is_wanted(id, &meta),
            None => {
                self.counts.unreadable += 1;
                false
            }
        }
    }
}

/// Ready items, in their order. Of one key, if it is given.
pub(crate) async fn ready(
    space: &Space,
    tr: &Transaction,
    behind: Option<&Cursor>,
    key: Option<&[u8]>,
    is_wanted: impl Fn(&ItemId, &Meta) -> bool,
) -> Result<CancelPage, QueueError> {
    let mut page = CancelPage::default();
    let key = key.filter(|_| space.kind == Kind::Keyed);
    let behind = behind.and_then(Cursor::item).cloned().or_else(|| key.map(before_key));
    let spaces = partitions::read_all(space, tr).await?;
    let rows = if spaces.len() > 1 {
        partitions::find(&spaces, tr, PAGE, behind.as_ref().and_then(ItemId::stamp)).await?
    } else {
        ready::find(space, tr, PAGE, &Place { behind, skip: 0 }).await?
    };
    let (mut wanted, mut bytes) = (Vec::new(), 0);
    for row in &rows {
        if key.is_some_and(|key| row.id.key().as_deref() != Some(key)) {
            page.next = None;
            break;
        }
        page.next = Some(Cursor::Item(row.id.clone()));
        if page.wants(&row.id, &row.meta, &is_wanted) {
            bytes += cost::removing(space, &row.id, &row.meta);
            bytes += cost::ended(space, &row.id, &row.meta, 0);
            wanted.push(row);
        }
        if bytes >= page_bytes() {
            break;
        }
    }
    end(space, tr, wanted.iter().map(|row| (Before::Ready, &row.id, &row.meta[..]))).await?;
    page.counts.cancelled = wanted.len();
    Ok(page)
}

/// Cancels items that do not run: by where each is, its id and its side record.
async fn end<'a>(
    space: &Space,
    tr: &Transaction,
    items: impl ExactSizeIterator<Item = (Before<'a>, &'a ItemId, &'a [u8])>,
) -> Result<(), QueueError> {
    if items.len() == 0 {
        return Ok(());
    }
    let mut transitions = Transitions::begin(space, tr).await?;
    for (before, id, record) in items {
        transitions.add(tr, before, CANCELLED, Subject::new(id, &[], record))?;
    }
    transitions.write(tr, None).await
}

/// The place before all items of a key.
fn before_key(key: &[u8]) -> ItemId {
    let mut id = Vec::new();
    append_bytes(&mut id, key);
    ItemId::new(id.into())
}

/// Scheduled and retrying items by their time, or those of one of these states.
pub(crate) async fn waiting(
    space: &Space,
    tr: &Transaction,
    state: Option<ItemState>,
    behind: Option<&Cursor>,
    is_wanted: impl Fn(&ItemId, &Meta) -> bool,
) -> Result<CancelPage, QueueError> {
    let (mut page, mut bytes) = (CancelPage::default(), 0);
    let mut wanted = Vec::new();
    for (due, id, record) in delayed(space, tr, behind.and_then(Cursor::due), PAGE).await? {
        page.next = Some(Cursor::Due(from_millis(due), id.clone()));
        let is_of_state = state.is_none_or(|state| state == state_of(&record));
        if !is_of_state || !space.kind.owns(&id) || !page.wants(&id, &record, &is_wanted) {
            continue;
        }
        bytes += cost::removing(space, &id, &record) + cost::ended(space, &id, &record, 0);
        let key = space.later.key(due, id.as_bytes());
        wanted.push((key, id, record));
        page.counts.cancelled += 1;
        if bytes >= page_bytes() {
            break;
        }
    }
    end(space, tr, wanted.iter().map(|(key, id, record)| (Before::Scheduled(key), id, &record[..]))).await?;
    Ok(page)
}

/// Running items, lease by lease.
pub(crate) async fn running(
    space: &Space,
    tr: &Transaction,
    behind: Option<&Cursor>,
    is_wanted: impl Fn(&ItemId, &Meta) -> bool,
) -> Result<CancelPage, QueueError> {
    let mut page = CancelPage::default();
    let (first, end) = range(&space.leases);
    let begin = behind.and_then(Cursor::lease).map_or(first, |id| after(&leases::key(&space.leases, id)));
    let mut pages = RangeRead::of((begin, end)).page_limit(page_leases()).pages(tr);
    let mut found: Vec<LeaseId> = Vec::new();
    // A lease that cannot be read is of a later version, and stays. A page may have only such leases, and others may follow.
    for _ in 0..MOST_PAGES {
        let Some(rows) = pages.next_page().await? else { break };
        found.extend(rows.iter().filter_map(|row| leases::decode_key(&space.leases, row.key())));
        if !found.is_empty() {
            break;
        }
    }
    let mut bytes = 0;
    for id in found {
        page.next = Some(Cursor::Leased(id, u32::MAX));
        // Once more, with a conflict.
        let header = QueueError::if_readable(lease::header(space, tr, id).await)?;
        let Ok(Some(header)) = header else { continue };
        bytes += of_lease(space, tr, (id, header), &mut page, &is_wanted).await?;
        if bytes >= page_bytes() {
            break;
        }
    }
    cancel::clear_old(space, tr, (page_leases(), 1)).await?;
    Ok(page)
}

/// Cancels the items of a lease that match. Returns about how many bytes it has read and written.
async fn of_lease(
    space: &Space,
    tr: &Transaction,
    (id, header): (LeaseId, Header),
    page: &mut CancelPage,
    is_wanted: &impl Fn(&ItemId, &Meta) -> bool,
) -> Result<usize, QueueError> {
    let Some((header, open)) = open(space, tr, id, Some(header), None).await? else { return Ok(0) };
    let mut bytes = 0;
    let mut wanted: Vec<(usize, &Row)> = Vec::new();
    for (index, row) in &open {
        bytes += row.value.len() + row.meta.len();
        if space.kind.owns(&row.id) && page.wants(&row.id, &row.meta, is_wanted) {
            bytes += cost::removing(space, &row.id, &row.meta);
            bytes += cost::ended(space, &row.id, &row.meta, 0);
            wanted.push((*index as usize, row));
        }
    }
    if !wanted.is_empty() {
        cancel::running(space, tr, (id, header), &wanted).await?;
        page.counts.cancelled += wanted.len();
    }
    Ok(bytes)
}
