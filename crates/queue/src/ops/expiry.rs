//! Items that expire: they end because no attempt has begun in time; and unique keys that are taken for a time.

use bytes::Bytes;
use foundationdb::options::{MutationType, StreamingMode};
use foundationdb::{RangeOption, Transaction};
use futures::future::{join_all, try_join3};

use crate::keys::{Space, counters, expiry, later, meta};
use crate::model::error::QueueError;
use crate::model::history::Ending;
use crate::model::holds::HoldCause;
use crate::model::id::ItemId;
use crate::model::meta::{Failure, Meta, Millis};
use crate::model::rules::OnExpiry;
use crate::ops::keyed::changes::Changes;
use crate::ops::locate::ScheduledRecord;
use crate::ops::relocate::Movable;
use crate::ops::scan::Row;
use crate::ops::{cost, delete, ended, place, relocate, unique};
use crate::run::conflict;
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

/// The end of an item that expired and leaves the queue, in the history.
const GONE: (Ending, Option<&str>) = (Ending::Expired, None);

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
    let failure = Failure::new(at, 0, EXPIRED);
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
    let option = RangeOption {
        limit: Some(page_rows()),
        mode: StreamingMode::WantAll,
        ..RangeOption::from(expiry::by(&space.expiry, now))
    };
    // Read without a conflict: a row that is written meanwhile is none of ours.
    let rows = tr.get_range(&option, 1, true).await?;
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
                    bytes += page.add(space, tr, key, &id, found)?;
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
enum Waiting {
    Ready(Row),
    Scheduled(ScheduledRecord, Bytes),
}

/// The item of a row, if it expires: it waits, and no attempt has begun.
async fn find(space: &Space, tr: &Transaction, key: &[u8]) -> Result<(ItemId, Option<Waiting>), QueueError> {
    let (time, id) = expiry::decode(&space.expiry, key).ok_or_else(|| QueueError::unreadable(key))?;
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
            meta.expires == Some(time) && (meta.may_expire() || mutant("expire-tried-items"))
        })
    };
    if let Some((value, meta)) = ready.zip(meta) {
        let row = Row { id: id.clone(), value: bytes(&value), meta: bytes(&meta) };
        let found = expires(&row.meta).then_some(Waiting::Ready(row));
        return Ok((id, found));
    }
    let Some(due) = due.and_then(|due| later::decode_due(&due)) else { return Ok((id, None)) };
    let key = later::key(&space.later, due, &id);
    let Some(record) = tr.get(&key, true).await?.filter(|record| expires(record)) else {
        return Ok((id, None));
    };
    let record = ScheduledRecord { key, due, record: bytes(&record) };
    let value = place::body(space, tr, &id).await?;
    Ok((id, Some(Waiting::Scheduled(record, value))))
}

/// What a transaction is to end.
#[derive(Default)]
struct Page {
    ready: Vec<Row>,
    scheduled: Vec<(ItemId, ScheduledRecord, Bytes)>,
    rows: usize,
}

impl Page {
    /// Removes the row, and keeps the item to be ended. Returns the bytes that this takes.
    fn add(
        &mut self,
        space: &Space,
        tr: &Transaction,
        key: &[u8],
        id: &ItemId,
        found: Option<Waiting>,
    ) -> Result<usize, QueueError> {
        // Before the clear: whatever returns the item meanwhile writes the row once more, and it has to stay then.
        if !mutant("expiry-row-without-conflict") {
            conflict::as_reader(tr, key)?;
        }
        tr.clear(key);
        self.rows += 1;
        let item = |value: usize, record: &[u8]| {
            cost::removing(space, id, record)
                + cost::ended(space, id, record, EXPIRED.len())
                + value
                + record.len()
        };
        let bytes = match found {
            None => 0,
            Some(Waiting::Ready(row)) => {
                let bytes = item(row.value.len(), &row.meta);
                self.ready.push(row);
                bytes
            }
            Some(Waiting::Scheduled(record, value)) => {
                let bytes = item(value.len(), &record.record);
                self.scheduled.push((id.clone(), record, value));
                bytes
            }
        };
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
        let items = self.ready.len() + self.scheduled.len();
        let page = ExpiredPage { items, rows: self.rows };
        match on_expiry {
            OnExpiry::Drop => {
                relocate::remove(space, tr, Movable::Ready, &self.ready.iter().collect::<Vec<_>>()).await?;
                ended::of_rows(space, tr, GONE, &self.ready).await?;
                let scheduled = self.scheduled.into_iter().map(|(id, record, _)| (id, record));
                delete::all_waiting(space, tr, scheduled, GONE).await?;
            }
            OnExpiry::Dead => self.bury(space, tr, now).await?,
        }
        Ok(page)
    }

    /// Makes the items dead letters.
    async fn bury(self, space: &Space, tr: &Transaction, now: Millis) -> Result<(), QueueError> {
        let mut changes = Changes::default();
        let add = |counter: &[u8], n: usize| {
            if n > 0 {
                tr.atomic_op(counter, &counters::increment(n), MutationType::Add);
            }
        };
        // A scheduled one counts as if its time had come, and it had been popped.
        add(&space.npop, self.ready.len() + self.scheduled.len());
        add(&space.npush, self.scheduled.len());
        add(&space.ndue, self.scheduled.len());
        place::count_dead(space, tr, self.ready.len() + self.scheduled.len());
        let mut endings = ended::begin(space, tr).await?;
        let mut dead = |id: &ItemId, value: &[u8], meta: Meta| {
            let letter = dead_letter(meta, now);
            place::dead(space, tr, id, value, &letter);
            endings.add_dead(id, &letter);
        };
        for Row { id, value, meta } in &self.ready {
            let key = space.ready_key(id);
            conflict::as_reader(tr, &key)?;
            tr.clear(&key);
            tr.clear(&space.meta_key(id));
            dead(id, value, decode(space, id, meta)?);
            changes.removed_ready(space, id);
            changes.put_away(space, id, HoldCause::Dead);
        }
        for (id, ScheduledRecord { key, record, .. }, value) in &self.scheduled {
            conflict::as_reader(tr, key)?;
            tr.clear(key);
            tr.clear(&space.due_key(id));
            dead(id, value, decode(space, id, record)?);
            changes.came_back(space, id);
            changes.put_away(space, id, HoldCause::Dead);
        }
        endings.write(tr, None).await?;
        changes.write(space, tr).await
    }
}

fn decode(space: &Space, id: &ItemId, record: &[u8]) -> Result<Meta, QueueError> {
    meta::decode(record).ok_or_else(|| QueueError::unreadable(&space.meta_key(id)))
}
