//! The running items of a keyed queue, from the rows of its leases.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::rows::IndexRows;
use crate::keys::leases;
use crate::keys::leases::Header;
use crate::model::id_layout::split_id;
use crate::model::lease_id::LeaseId;

/// The most bytes of bodies of one queue that are kept in memory.
const MOST_BYTES: usize = 500_000_000;

/// Leases of one queue. Their bodies come before their headers.
#[derive(Debug, Default)]
pub(crate) struct LeaseRows {
    bodies: BTreeMap<LeaseId, Vec<u8>>,
    bytes: usize,
    /// Whether a lease is of another layout, or there were too many bytes.
    pub(crate) is_unreadable: bool,
}

impl LeaseRows {
    /// Notes a piece of a body; `rest` is what follows (q, "held") in its key.
    pub(crate) fn show_piece(&mut self, rest: &[u8], value: &[u8]) {
        let Some((id, number)) = leases::decode_piece_key(&[], rest) else { return };
        // Of other kinds of queues nothing is kept.
        if number > 0 && !self.bodies.contains_key(&id) || number == 0 && !is_keyed(value) {
            return;
        }
        self.bytes += value.len();
        if self.bytes > MOST_BYTES {
            self.is_unreadable = true;
            self.bodies.clear();
        } else {
            self.bodies.entry(id).or_default().extend_from_slice(value);
        }
    }

    /// Notes a header, and with it the lease's items; `rest` is what follows (q, "lease") in its key.
    pub(crate) fn show_header(&mut self, rest: &[u8], value: &[u8], index: &mut IndexRows) {
        let (id, header) = (leases::decode_key(&[], rest), Header::decode(value));
        let Some((id, header)) = id.zip(header) else {
            self.is_unreadable = true;
            return;
        };
        let body = match header.inline() {
            Some(body) => Some(body.clone()),
            None => self.bodies.remove(&id).map(Bytes::from),
        };
        let Some(body) = body.filter(|body| is_keyed(body)) else { return };
        let items = leases::decode_body(body).filter(|items| items.len() == header.acknowledged.count());
        let Some(items) = items else {
            self.is_unreadable = true;
            return;
        };
        header.acknowledged.open().for_each(|index_of| index.is_running(&items[index_of].id));
    }
}

/// Whether a body begins with an item that has a key.
fn is_keyed(body: &[u8]) -> bool {
    let id = body.split_first_chunk().and_then(|(len, rest)| rest.get(..u32::from_le_bytes(*len) as usize));
    id.is_some_and(|id| split_id(id).is_some())
}
