//! Leases in a transaction: taking one, looking for it, extending it.

use bytes::Bytes;
use foundationdb::Transaction;
use mutant::mutant;

use crate::keys::leases::{Header, Held};
use crate::keys::{Space, leases, tokens};
use crate::model::error::QueueError;
use crate::model::lease_id::LeaseId;
use crate::model::session_id::SessionId;
use crate::ops::progress;
use crate::ops::scan::Row;
use crate::run::conflict;
use crate::run::range_read::RangeRead;

/// The rows of a take, as a lease holds them.
pub(crate) fn hold(rows: Vec<Row>) -> Vec<Held> {
    rows.into_iter().map(|Row { id, value, meta }| Held { id, meta, value }).collect()
}

/// An item in a lease as the row that it was.
#[inline]
pub(crate) fn row(held: &Held) -> Row {
    Row { id: held.id.clone(), value: held.value.clone(), meta: held.meta.clone() }
}

/// The same with the batches that it has joined since. Each item of each acknowledgement comes by here.
#[inline]
pub(crate) fn row_now(header: &Header, index: usize, held: &Held) -> Row {
    if header.joined.is_empty() || mutant("joined-batch-is-forgotten") {
        return row(held);
    }
    Row { meta: header.joined.record_of(index, &held.meta), ..row(held) }
}

/// Writes a new lease; returns its header.
pub(crate) fn put(
    space: &Space,
    tr: &Transaction,
    id: LeaseId,
    (deadline, length): (u64, u64),
    items: &[Held],
) -> Header {
    let (header, pieces) = Header::new(deadline, length, items);
    write(space, tr, id, &header, &pieces);
    header
}

/// Writes a new lease on items that nobody has begun with: its holder does not yet know of it, or never will.
pub(crate) fn put_served(
    space: &Space,
    tr: &Transaction,
    id: LeaseId,
    (deadline, length): (u64, u64),
    items: &[Held],
) {
    let (header, pieces) = Header::new(deadline, length, items);
    write(space, tr, id, &Header { served: true, ..header }, &pieces);
}

fn write(space: &Space, tr: &Transaction, id: LeaseId, header: &Header, pieces: &[Bytes]) {
    for (piece, bytes) in (0..).zip(pieces) {
        tr.set(&leases::piece_key(&space.held, id, piece), bytes);
    }
    tr.set(&leases::key(&space.leases, id), &header.encode());
}

/// Makes sure that of two attempts of a session that overlap only one commits. Nothing is stored for it.
pub(crate) fn fence(space: &Space, tr: &Transaction, session: SessionId) -> Result<(), QueueError> {
    let key = tokens::key(&space.tokens, session);
    conflict::as_reader(tr, &key)?;
    conflict::as_writer(tr, &key)
}

/// Reads a lease's header; `None` if there is no such lease, any more or yet. Conflicts with a transaction that changes it.
pub(crate) async fn header(
    space: &Space,
    tr: &Transaction,
    id: LeaseId,
) -> Result<Option<Header>, QueueError> {
    let key = leases::key(&space.leases, id);
    match tr.get(&key, false).await? {
        None => Ok(None),
        Some(value) => Header::decode(&value).map(Some).ok_or_else(|| QueueError::unreadable(&key)),
    }
}

/// The items of a lease, acknowledged ones included, each with the batches that it has joined. Without `snapshot` it conflicts with transactions that change them.
pub(crate) async fn body(
    space: &Space,
    tr: &Transaction,
    id: LeaseId,
    header: &Header,
    snapshot: bool,
) -> Result<Vec<Held>, QueueError> {
    let mut body = header.inline().map(|inline| inline.to_vec()).unwrap_or_default();
    if header.pieces > 0 {
        let mut piece = 0;
        let mut pages = RangeRead::of(leases::piece_range(&space.held, id)).snapshot(snapshot).pages(tr);
        while let Some(page) = pages.next_page().await? {
            for row in page.iter() {
                if row.key() == leases::piece_key(&space.held, id, piece) {
                    body.extend_from_slice(row.value());
                    piece += 1;
                }
            }
        }
        if piece < u64::from(header.pieces) {
            return Err(QueueError::unreadable(&leases::piece_key(&space.held, id, piece)));
        }
    }
    let mut items = leases::decode_body(Bytes::from(body))
        .filter(|items| items.len() == header.acknowledged.count())
        .ok_or_else(|| QueueError::unreadable(&leases::key(&space.leases, id)))?;
    if !header.joined.is_empty() {
        for (index, held) in items.iter_mut().enumerate() {
            held.meta = header.joined.record_of(index, &held.meta);
        }
    }
    Ok(items)
}

/// Writes a changed header, or clears the lease if all its items are acknowledged.
pub(crate) fn update(space: &Space, tr: &Transaction, id: LeaseId, header: &Header) {
    let key = leases::key(&space.leases, id);
    if header.acknowledged.open().next().is_some() {
        tr.set(&key, &header.encode());
        return;
    }
    tr.clear(&key);
    progress::clear(space, tr, id, header);
    if header.pieces > 0 {
        let (begin, end) = leases::piece_range(&space.held, id);
        tr.clear_range(&begin, &end);
    }
}
