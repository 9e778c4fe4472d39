//! The writes of one new item.

use std::borrow::Cow;

use foundationdb::Transaction;
use foundationdb::options::MutationType;

use crate::keys::{Space, chunks, items, later, meta, recipes};
use crate::model::kind::{Kind, Packing};
use crate::model::pushed::Spot;
use crate::model::sizes::MAX_VALUE;
use crate::model::stored::State;
use crate::model::time::millis;
use crate::ops::item_times;
use crate::ops::push::Entry;

/// Writes an item and what goes with it, wherever it is to wait. Counting it is the caller's.
pub(super) fn put(space: &Space, tr: &Transaction, spot: &Spot, entry: &Entry<'_>) {
    let mut meta = entry.meta();
    let times =
        meta.as_ref().filter(|_| entry.state() != State::Dead).map_or_else(Vec::new, item_times::of_new);
    let StoredValue { value, is_in_parts, chunks } = stored_value(space, entry.payload);
    if is_in_parts {
        meta.get_or_insert_default().payload_len = Some(entry.payload.len() as u64);
    }
    let record = match entry.state() {
        State::Ready => None,
        State::Later(due) => Some(space.later.at(millis(due))),
        State::Dead => Some(space.dead.clone()),
    };
    match record {
        None => {
            let is_parted = space.kind == Kind::Fifo && matches!(spot, Spot::Behind(..));
            let before = if is_parted { &space.parted } else { &space.ready };
            set(tr, spot, before, &[], &value);
            if let Some(meta) = meta.as_ref().filter(|meta| !meta.is_empty()) {
                set(tr, spot, &space.meta, &[], &meta::encode(meta));
            }
        }
        Some(record) => {
            set(tr, spot, &record, &[], &meta::encode(&meta.unwrap_or_default()));
            set(tr, spot, &space.bodies, &[], &value);
            if let State::Later(due) = entry.state() {
                set(tr, spot, &space.dues, &[], &later::encode_due(millis(due)));
            }
        }
    }
    for (n, chunk) in chunks {
        set(tr, spot, &space.chunks, &chunks::suffix(n), chunk);
    }
    for (event, time, value) in times {
        set(tr, spot, &space.agenda(event).at(time), &[], &value);
    }
    if let Some(key) = entry.unique() {
        set_id(tr, &space.unique_key(key), spot);
    }
}

/// A payload as it is stored.
pub(crate) struct StoredValue<'p> {
    pub(crate) value: Cow<'p, [u8]>,
    /// It does not fit into a value as that is packed: it is stored as it is, and its side record has its length.
    pub(crate) is_in_parts: bool,
    /// Its chunks with their numbers.
    pub(crate) chunks: Vec<(u64, &'p [u8])>,
}

/// The value and the chunks of a payload.
pub(crate) fn stored_value<'p>(space: &Space, payload: &'p [u8]) -> StoredValue<'p> {
    match packed(space.kind.packing(), payload) {
        Some(value) => StoredValue { value, is_in_parts: false, chunks: Vec::new() },
        None => {
            let (value, chunks) = chunks::split(payload);
            StoredValue { value: value.into(), is_in_parts: true, chunks: chunks.collect() }
        }
    }
}

/// The stored form of a payload that fits into one value.
fn packed(packing: Packing, payload: &[u8]) -> Option<Cow<'_, [u8]>> {
    if payload.len() > MAX_VALUE {
        return None;
    }
    match packing {
        Packing::Raw => Some(payload.into()),
        Packing::Tuple => Some(recipes::pack_value(packing, payload).into())
            .filter(|value: &Cow<'_, _>| value.len() <= MAX_VALUE),
    }
}

/// Sets a key of the item: `before`, its id, `after`.
fn set(tr: &Transaction, spot: &Spot, before: &[u8], after: &[u8], value: &[u8]) {
    match spot {
        Spot::User(user) => {
            let key = items::pending_record(before, *user, after);
            tr.atomic_op(&key, value, MutationType::SetVersionstampedKey);
        }
        Spot::Behind(before_stamp, user) => {
            let key = items::pending_record(&[before, before_stamp].concat(), *user, after);
            tr.atomic_op(&key, value, MutationType::SetVersionstampedKey);
        }
        Spot::Id(id) => tr.set(&[before, id.as_bytes(), after].concat(), value),
    }
}

/// Sets a key to the item's id.
fn set_id(tr: &Transaction, key: &[u8], spot: &Spot) {
    match spot {
        // The same parameter serves for a value that is nothing but the id.
        Spot::User(user) => {
            let value = items::pending_record(&[], *user, &[]);
            tr.atomic_op(key, &value, MutationType::SetVersionstampedValue);
        }
        Spot::Behind(before_stamp, user) => {
            let value = items::pending_record(before_stamp, *user, &[]);
            tr.atomic_op(key, &value, MutationType::SetVersionstampedValue);
        }
        Spot::Id(id) => tr.set(key, id.as_bytes()),
    }
}
