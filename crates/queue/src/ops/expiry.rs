//! Items that expire: they end because no attempt has begun in time; and unique keys that are taken for a time.

use bytes::Bytes;
use foundationdb::Transaction;
use futures::future::{join_all, try_join3};

use crate::keys::{Space, later, meta};
use crate::model::error::QueueError;
use crate::model::history::Ending;
use crate::model::id::ItemId;
use crate::model::meta::{Failure, Meta};
use crate::model::rules::OnExpiry;
use crate::model::time::{Millis, from_millis};
use crate::ops::scan::{Row, decode_meta};
use crate::ops::transition::{After, Before, Record, Subject, Transitions};
use crate::ops::{cost, place, unique};
use crate::run::conflict;
use crate::run::range_read::RangeRead;
use mutant::{bound, mutant};

/// The most rows that one transaction looks at.
fn page_rows() -> usize {
    bound("expiry-page", 500)
}

/// About how many bytes one transaction writes at most, and reads.
fn page_bytes() -> usize {
    bound("expiry-page-bytes", 1 << 20)
}

/// How many items are read at once.
fn together() -> usize {
    bound("expiry-together", 32)
}

/// The failure of an item that expired. It belongs to no attempt.
pub(crate) const EXPIRED: &str = "expired: no attempt began in time";

/// What one transaction did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ExpiredPage {
    /// Items that expired.
    pub(crate) items: usize,
    /// Rows that were removed, theirs included.
    pub(crate) rows: usize,
}

/// The side record of an item that becomes a dead letter because it expired.
pub(crate) fn dead_letter(mut meta: Meta, at: Millis) -> Meta {
    let failure = Failure::new(from_millis(at), 0, EXPIRED);
    // A letter that is retried has failed before, so it does not expire once more.
    meta.failed(&failure);
    Meta { death: Some(failure), ..meta }
}

/// Ends the first items whose expiry has come by `now`, if they are ready or scheduled and no attempt has begun; frees unique keys whose time
/// is over; and removes the rows of all others. There may be more.
///
/// Rows and items that cannot be read, or are another kind's, are passed over.
///
/// # Errors
/// The error of the first unreadable one, if there is nothing else to do.
pub(crate) async fn expire_due(
    space: &Space,
    tr: &Transaction,
    now: Millis,
    on_expiry: OnExpiry,
) -> Result<ExpiredPage, QueueError> {
    // Read without a conflict: a row that is written meanwhile is none of ours.
    let rows = RangeRead::of(space.expiry.by(now)).limit(page_rows()).page(tr).await?;
    let rows: Vec<_> = rows.iter().map(|row| (row.key().to_vec(), row.value().to_vec())).collect();
    let (mut page, mut bytes, mut trouble) = (Page::default(), 0, None);
    for group in rows.chunks(together()) {
        if bytes >= page_bytes() {
            break;
        }
        let found = join_all(group.iter().map(|(key, _)| find(space, tr, key))).await;
        for ((key, unique), found) in group.iter().zip(found) {
            match QueueError::if_readable(found)? {
                Ok((id, found)) => {
                    bytes += page.add(space, tr, key, found)?;
                    bytes += unique::free(space, tr, &id, unique);
                }
                Err(error) => drop(trouble.get_or_insert(error)),
            }
        }
    }
    if page.rows == 0 {
        return trouble.map_or_else(|| Ok(ExpiredPage::default()), Err);
    }
    page.end(space, tr, now, on_expiry).await
}

/// An item that waits for its first attempt.
struct Waiting {
    row: Row,
    /// The key of its record, if it is scheduled; `None`: it is ready.
    key: Option<Vec<u8>>,
}

/// The item of a row, if it expires: it waits, and no attempt has begun.
async fn find(space: &Space, tr: &Transaction, key: &[u8]) -> Result<(ItemId, Option<Waiting>), QueueError> {
    let (time, id) = space.expiry.decode_item(key).ok_or_else(|| QueueError::unreadable(key))?;
    place::check_kind(space, &id)?;
    let bytes = |value: &[u8]| Bytes::copy_from_slice(value);
    let (ready, meta, due) = try_join3(
        tr.get(&space.ready_key(&id), true),
        tr.get(&space.meta_key(&id), true),
        tr.get(&space.due_key(&id), true),
    )
    .await?;
    let expires = |record: &[u8]| {
        let meta = meta::decode(record);
        meta.is_some_and(|meta| {
            meta.expiry() == Some(time) && (meta.may_expire() || mutant("expire-tried-items"))
        })
    };
    if let Some((value, meta)) = ready.zip(meta) {
        let row = Row { id: id.clone(), value: bytes(&value), meta: bytes(&meta) };
        let found = expires(&row.meta).then_some(Waiting { row, key: None });
        return Ok((id, found));
    }
    let Some(due) = due.and_then(|due| later::decode_due(&due)) else { return Ok((id, None)) };
    let key = space.later.key(due, id.as_bytes());
    let Some(record) = tr.get(&key, true).await?.filter(|record| expires(record)) else {
        return Ok((id, None));
    };
    let row = Row { id: id.clone(), value: place::body(space, tr, &id).await?, meta: bytes(&record) };
    Ok((id, Some(Waiting { row, key: Some(key) })))
}

/// What a transaction is to end.
#[derive(Default)]
struct Page {
    items: Vec<Waiting>,
    rows: usize,
}

impl Page {
    /// Removes the row, and keeps the item to be ended. Returns the bytes that this takes.
    fn add(
        &mut self,
        space: &Space,
        tr: &Transaction,
        key: &[u8],
        found: Option<Waiting>,
    ) -> Result<usize, QueueError> {
        // Before the clear: whatever returns the item meanwhile writes the row once more, and it has to stay then.
        if !mutant("expiry-row-without-conflict") {
            conflict::as_reader(tr, key)?;
        }
        tr.clear(key);
        self.rows += 1;
        let bytes = found.as_ref().map_or(0, |Waiting { row, .. }| {
            cost::removing(space, &row.id, &row.meta)
                + cost::ended(space, &row.id, &row.meta, EXPIRED.len())
                + row.value.len()
                + row.meta.len()
        });
        self.items.extend(found);
        Ok(bytes + cost::conflict(key.len()) + cost::clear(key.len()))
    }

    /// Ends the items; fails at commit if another has moved one.
    async fn end(
        self,
        space: &Space,
        tr: &Transaction,
        now: Millis,
        on_expiry: OnExpiry,
    ) -> Result<ExpiredPage, QueueError> {
        let mut transitions = Transitions::begin(space, tr).await?;
        for Waiting { row, key } in &self.items {
            let before = key.as_ref().map_or(Before::Ready, |key| Before::Scheduled(key));
            let (after, record) = match on_expiry {
                OnExpiry::Drop => (After::Ended(Ending::Expired, None), Record::Same(&row.meta)),
                OnExpiry::Dead => {
                    let letter = dead_letter(decode_meta(space, row)?, now);
                    (After::Dead, Record::Changed(Box::new(letter)))
                }
            };
            transitions.add(tr, before, after, Subject { id: &row.id, value: &row.value, record })?;
        }
        transitions.write(tr, None).await?;
        Ok(ExpiredPage { items: self.items.len(), rows: self.rows })
    }
}
