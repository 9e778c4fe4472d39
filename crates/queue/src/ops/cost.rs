//! The size of a transaction's operations in bytes, as the database counts it. It refuses a transaction of more than 10,000,000 (error 2101), so
//! what could be more is counted before it is written.
//!
//! Each mutation counts with its keys and value, and with the key once more at each end of its conflict range. The counts here are a
//! little too high. If one of them can be too low, its comment says when; the transaction is then far from the limit.

use mutant::{bound, mutant};

use crate::keys::joined::Joined;
use crate::keys::keyed::scopes;
use crate::keys::{Space, chunks, ended_by, meta};
use crate::model::history::{MAX_RESULT, MAX_WORKER};
use crate::model::id::ItemId;
use crate::model::kind::Kind;
use crate::model::meta::{MAX_REASON, Meta};
use crate::model::recorder::Recorder;
use crate::ops::item_times;
use crate::ops::scan::Row;

/// The most bytes of one transaction if the work can be split: this, or a single item. FoundationDB recommends at most 1 MB.
pub(crate) fn part_bytes() -> usize {
    bound("transaction-part-bytes", 1_000_000)
}

/// The most bytes of a transaction that cannot be split: the database's limit, less the header of a lease.
pub(crate) const WHOLE: usize = 9_900_000;

/// The overhead of a mutation.
const MUTATION: usize = 44;
/// The overhead of a conflict range, with the byte by which its end is longer than the key.
const RANGE: usize = 25;
/// The value of a counter.
const COUNTER: usize = 8;
/// How many rows the beginning or the end of a hold changes, at most.
const HOLD_ROWS: usize = 5;
/// The length of a time's value.
const DUE: usize = 8;
/// The length of a stamp as an element of a key.
const STAMP_ELEMENT: usize = 1 + 12;
/// The most bytes of the fixed fields of a group of ended items, of one item in it, and of a run.
const ENDED: usize = 4 * 13 + 6 * 13 + 3 * 5;
/// The overhead of an item in a lease's body: three lengths.
const HELD: usize = 12;
/// The most bytes that a failure adds to a side record in addition to its text: itself, and the counts of attempts and crashes.
const FAILURE: usize = (5 + 8 + 4) + 2 * (5 + 4);
/// The most bytes that a record's key has between (q, its name) and the id: a time; and as many for the name.
const NAME: usize = 17;

/// A value that is set.
pub(crate) fn set(key: usize, value: usize) -> usize {
    MUTATION + RANGE + 3 * key + value
}

/// A key, or the range behind a key, that is cleared.
pub(crate) fn clear(key: usize) -> usize {
    MUTATION + RANGE + 4 * key + 4
}

/// A conflict range of one key.
pub(crate) fn conflict(key: usize) -> usize {
    RANGE + 2 * key
}

/// The length of an item's key among records of any kind, at most.
pub(crate) fn key(space: &Space, id: &ItemId) -> usize {
    space.queue.len() + NAME + id.as_bytes().len()
}

/// The cost of making an item ready.
pub(crate) fn ready(space: &Space, id: &ItemId, value: usize, meta: usize) -> usize {
    // With the row of an expiry, whose value may be the unique key in the record.
    let record = if meta > 0 {
        set(space.meta.len() + id.as_bytes().len(), meta) + set(key(space, id), meta)
    } else {
        0
    };
    set(space.ready_key(id).len(), value) + record
}

/// The cost of scheduling an item with a record of this length.
pub(crate) fn aside(space: &Space, id: &ItemId, value: usize, meta: usize) -> usize {
    let key = key(space, id);
    // The row of an expiry, whose value may be the unique key in the record, is the last.
    set(key, meta) + set(key, value) + set(key, DUE) + hold(space, id) + set(key, meta)
}

/// The cost of making an item with this side record a dead letter, for a reason of this length.
pub(crate) fn dead(space: &Space, id: &ItemId, value: usize, meta: &[u8], reason: usize) -> usize {
    // The reason is stored twice: with the last attempt, and with the letter.
    aside(space, id, value, meta.len() + 2 * failure(reason)) + unique(space, id, meta)
}

/// The cost of noting the end of an item with this side record, for a reason of this length: the item as if it was a group of its own, and the only
/// member of its batches that ends.
#[inline]
pub(crate) fn ended(space: &Space, id: &ItemId, meta: &[u8], reason: usize) -> usize {
    let recorder = space.recorder.as_ref().filter(|recorder| recorder.may_record());
    let recorded = recorder
        .map_or(0, |recorder| recorded(space, id, meta.len(), reason) + indexed(space, id, meta, recorder));
    recorded + if meta.is_empty() { 0 } else { member_ended(space, meta) }
}

/// The cost of the rows by which an item with this side record is found. Too low, until a recorder has read by which attributes the history is indexed.
fn indexed(space: &Space, id: &ItemId, meta: &[u8], recorder: &Recorder) -> usize {
    let Some(names) = recorder.remembered_index(&space.queue).filter(|_| !meta.is_empty()) else { return 0 };
    let attributes = meta::decode(meta).unwrap_or_default().attributes;
    let row = |name: &String| {
        let pair = ended_by::of_value(&[], 0, name, attributes.get(name)?);
        Some(set(key(space, id) + NAME + STAMP_ELEMENT + pair.len(), 0))
    };
    names.iter().filter_map(row).sum()
}

/// The cost of counting the end of a member of batches: of each the record, the pause and perhaps the migration of its home are read, and the counter, the mark and
/// two counters of its home are written.
fn member_ended(space: &Space, meta: &[u8]) -> usize {
    meta::batches(meta).map(|batch| counted(space, batch)).sum()
}

fn counted(space: &Space, batch: &[u8]) -> usize {
    let key = space.queue.len() + 2 * batch.len() + NAME;
    3 * conflict(key) + 4 * set(key, STAMP_ELEMENT)
}

/// The cost of counting the ends of items in the batches that they have joined while they were running.
pub(crate) fn joined(space: &Space, joined: &Joined) -> usize {
    joined.batches().map(|batch| counted(space, batch.as_bytes())).sum()
}

fn recorded(space: &Space, id: &ItemId, meta: usize, reason: usize) -> usize {
    let key = 2 * key(space, id) + STAMP_ELEMENT;
    2 * set(key, ENDED) + 2 * id.as_bytes().len() + MAX_WORKER + meta + reason.min(MAX_REASON)
}

/// The cost of recording a result of this length, in addition to that of the item's end.
pub(crate) fn result(space: &Space, id: &ItemId, result: usize) -> usize {
    let is_kept = space.recorder.is_some() && result <= MAX_RESULT;
    if is_kept { set(key(space, id), result) } else { 0 }
}

/// The cost of beginning a hold, or of ending one and giving the key its place back.
fn hold(space: &Space, id: &ItemId) -> usize {
    match space.kind {
        Kind::Keyed => HOLD_ROWS * (conflict(key(space, id)) + clear(key(space, id))),
        Kind::Fifo | Kind::Recipe(_) | Kind::Priority(..) => 0,
    }
}

/// How much longer a side record is with another failure.
pub(crate) fn failure(reason: usize) -> usize {
    FAILURE + reason.min(MAX_REASON)
}

/// The cost of clearing the records that an item has until it ends.
pub(crate) fn forget(space: &Space, id: &ItemId, meta: &[u8]) -> usize {
    if meta.is_empty() {
        return 0;
    }
    // An unreadable record may belong to an item with the most chunks possible.
    match meta::decode(meta) {
        Some(meta) => ending(space, id, &meta) + meta.unique_until.map_or(0, |_| clear(key(space, id))),
        None => chunks_of(space, id, u64::MAX),
    }
}

/// The cost of moving an item from one of these places to another.
pub(crate) fn moving(space: &Space, id: &ItemId, value: usize, meta: &[u8]) -> usize {
    let key = key(space, id);
    let records = 2 * set(key, 0) + 3 * clear(key) + conflict(key);
    records + value + meta.len() + unique(space, id, meta) + hold(space, id)
}

/// The cost of clearing an item in any state, with its records.
pub(crate) fn removing(space: &Space, id: &ItemId, meta: &[u8]) -> usize {
    let key = key(space, id);
    2 * conflict(key) + 3 * clear(key) + forget(space, id, meta) + hold(space, id)
}

/// The cost of fetching a row, on a lease or for good.
pub(crate) fn take(space: &Space, row: &Row, meta: &Meta) -> usize {
    let key = key(space, &row.id);
    // A fetch for good ends members of batches.
    let record = match row.meta.len() {
        0 => 0,
        len => len + clear(key) + member_ended(space, &row.meta),
    };
    take_plain(space, row.id.as_bytes().len(), row.value.len()) + record + ending(space, &row.id, meta)
}

/// The cost of fetching a row without a side record.
pub(crate) fn take_plain(space: &Space, id: usize, value: usize) -> usize {
    let key = space.ready.len() + id;
    let own = match space.kind {
        // All rows are cleared as one range.
        Kind::Fifo => 0,
        Kind::Recipe(_) | Kind::Priority(..) => conflict(key) + clear(key),
        Kind::Keyed if mutant("each-item-costs-a-move-of-its-key") => {
            6 * (conflict(2 * key) + clear(2 * key))
        }
        // All rows of a key are cleared as one range: see [`served`].
        Kind::Keyed => 0,
    };
    HELD + id + value + own
}

/// The cost of serving a key of a keyed queue, of which an item has this id, in addition to that of its items: it moves in the index, its items are cleared as one range, and its
/// two or three scopes count what they start.
pub(crate) fn served(space: &Space, id: &ItemId) -> usize {
    let (item, key) = (space.ready.len() + id.as_bytes().len(), id.key().unwrap_or_default());
    // The longest row that has the key once: its place among the active keys, with a position.
    let row = (space.queue.len() + NAME + id.as_bytes().len()).saturating_sub(STAMP_ELEMENT);
    let moves = 2 * (conflict(row) + clear(row));
    // The scope of the whole queue counts once in a fetch.
    let counts = scopes(&key).count().saturating_sub(1) * set(row, COUNTER);
    moves + conflict(item) + clear(item) + counts
}

/// The cost of clearing the chunks, the unique key and the rows of the times of an item.
fn ending(space: &Space, id: &ItemId, meta: &Meta) -> usize {
    meta.payload_len.map_or(0, |len| chunks_of(space, id, len))
        + item_times::cleared(meta) * clear(key(space, id))
        + unique_of(space, id, meta)
}

/// The cost of clearing the chunks of a payload of this length.
fn chunks_of(space: &Space, id: &ItemId, payload_len: u64) -> usize {
    // A stamp's are cleared as a range.
    let clears = if id.is_stamped() { 1 } else { chunks::count(payload_len) };
    clear(key(space, id)).saturating_mul(usize::try_from(clears).unwrap_or(usize::MAX))
}

/// The cost of freeing the unique key in a side record, and of reading or setting it.
fn unique(space: &Space, id: &ItemId, meta: &[u8]) -> usize {
    // An unreadable record has no key that could be freed.
    if meta.is_empty() { 0 } else { meta::decode(meta).map_or(0, |meta| unique_of(space, id, &meta)) }
}

fn unique_of(space: &Space, id: &ItemId, meta: &Meta) -> usize {
    let Some(unique) = &meta.unique else { return 0 };
    let len = space.unique_key(unique).len();
    // With the row of its time.
    set(len, id.as_bytes().len()) + conflict(len) + meta.unique_until.map_or(0, |_| clear(key(space, id)))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use bytes::Bytes;

    use super::*;
    use crate::client::queue::Queue;
    use crate::model::recorder::Recording;
    use crate::model::stamp::Stamp;
    use crate::ops::ended::begin;
    use crate::testing::on_database;

    #[test]
    fn cost_of_an_item_includes_its_keys() {
        let space = Space::new(&[b'p'; 100], b"q", Kind::Fifo).unwrap();
        let id = ItemId::new(vec![0; 13].into());
        let key = space.ready_key(&id).len();
        assert_eq!(ready(&space, &id, 1_000, 0), 44 + key + 1_000 + 24 + 2 * key + 1);
        assert!(ready(&space, &id, 1_000, 50) > ready(&space, &id, 1_000, 0) + 3 * key + 50);
        assert!(aside(&space, &id, 0, 0) >= 2 * set(space.body_key(&id).len(), 0));
        assert!(self::key(&space, &id) >= space.later.key(u64::MAX, id.as_bytes()).len());
        assert!(self::key(&space, &id) >= space.expiry.key(u64::MAX, id.as_bytes()).len());
    }

    #[test]
    fn a_unique_key_is_counted_as_it_is_stored() {
        let space = Space::new(b"", b"q", Kind::Fifo).unwrap();
        let id = ItemId::new(vec![0; 13].into());
        let with = |unique: Option<Vec<u8>>| meta::encode(&Meta { attempts: 1, unique, ..Meta::default() });
        // A byte 0 is stored as two.
        let (none, long) = (with(None), with(Some(vec![0; 1_000])));
        assert!(forget(&space, &id, &long) >= forget(&space, &id, &none) + 4 * 2_000);
        assert_eq!(forget(&space, &id, &[]), 0);
    }

    #[test]
    fn the_end_of_an_item_that_is_found_by_attributes_is_not_counted_too_low() {
        on_database(async |db| {
            let recorder = Recorder::new(Recording::On, Some("w".repeat(128)), SystemTime::now);
            let queue = Queue::new(&[b'p'; 50], b"q").unwrap().with_recorder(&recorder);
            let space = queue.space();
            let names: Vec<String> = (0..8).map(|n| format!("{n}{}", "\0".repeat(100))).collect();
            recorder.remember_index(&space.queue, 0, 0, names.clone().into());
            for present in [0, 1, 8] {
                let attributes =
                    names[..present].iter().map(|name| (name.clone(), "\0".repeat(200))).collect();
                let meta = meta::encode(&Meta { attempts: 1, attributes, ..Meta::default() }).into();
                let row = Row { id: ItemId::from(Stamp::new([7; 10], 7)), value: Bytes::new(), meta };
                let counted = ended(space, &row.id, &row.meta, 0);
                let tr = db.create_trx().unwrap();
                let version = tr.get_read_version().await.unwrap().cast_unsigned();
                recorder.remember_index(&space.queue, version, recorder.now(), names.clone().into());
                let mut endings = begin(space, &tr).await.unwrap();
                endings.add_done(&row.id, &row.meta);
                endings.write(&tr, None).await.unwrap();
                let real = usize::try_from(tr.get_approximate_size().await.unwrap()).unwrap();
                assert!(counted >= real && counted < 6 * real, "{present}: {counted} counted, {real} needed");
            }
        });
    }

    #[test]
    fn cost_of_a_recipe_row_includes_its_conflict_and_clear() {
        let row =
            Row { id: ItemId::new(vec![0; 25].into()), value: vec![0; 10].into(), meta: Vec::new().into() };
        let of = |kind| take(&Space::new(b"", b"q", kind).unwrap(), &row, &Meta::default());
        assert_eq!(of(Kind::Fifo), 12 + 25 + 10);
        assert!(of(Kind::Recipe(crate::model::kind::Packing::Raw)) > 6 * 25 + 10);
    }
}
