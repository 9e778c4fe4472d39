//! The records of batches, in the queue that gets their callbacks.
//!
//! | key, behind (q) | value |
//! |---|---|
//! | "batch", id | how far the batch is: whatever pushes or ends members reads it, so it is short |
//! | "batch-item", id | what is pushed when all members have ended |
//! | "batch-count", id, n | how many members there are (n is 0), or have ended in the way with the code n |
//! | "batch-due", time, id | a row of the [agenda](crate::keys::agenda): when a sweeper looks at the batch. With time 0, a mark: members have ended, or it was committed |
//!
//! The first is written when a batch is made, committed, and closed, and the second only when it is made and closed. Whatever ends members only adds to counters and sets the mark, so
//! the ends of members do not conflict with each other.

use crate::keys::agenda::{Agenda, Event};
use crate::keys::fields::{each, number, pair, put, put_pair, text};
use crate::keys::{Counter, append_bytes, counters, pause, range};
use crate::model::element::{UUID, UUID_LEN, append_number, append_uuid, split_number};
use crate::model::history::Ending;
use crate::model::item_batch::BatchCounts;
use crate::model::new_item::NewItem;
use crate::model::time::Millis;

const BATCH: &[u8] = b"batch";
const ITEM: &[u8] = b"batch-item";
const COUNT: &[u8] = b"batch-count";
const MIGRATE: &[u8] = b"migrate";

/// The number of the counter of members. Those of members that have ended have the codes of their endings.
pub(crate) const MEMBERS: u8 = 0;

/// The time in the key of a mark.
const MARK: Millis = 0;

/// What tells batches of one queue apart.
pub(crate) type Unique = [u8; 16];

/// The packed keys of a queue's batches. They are packed when an operation on batches begins, so that a queue without batches does
/// not pay for them.
#[derive(Debug, Clone)]
pub(crate) struct BatchSpace {
    /// (q, "batch").
    pub(crate) records: Vec<u8>,
    items: Vec<u8>,
    counts: Vec<u8>,
    /// When batches are looked at, marks first.
    pub(crate) due: Agenda,
    pub(crate) pause: Vec<u8>,
    pub(crate) migrate: Vec<u8>,
    pub(crate) nlater: Vec<u8>,
    pub(crate) ndue: Vec<u8>,
}

impl BatchSpace {
    /// The keys of the queue whose packed (q) this is.
    pub(crate) fn new(queue: &[u8]) -> BatchSpace {
        let record = |kind: &[u8]| {
            let mut key = queue.to_vec();
            append_bytes(&mut key, kind);
            key
        };
        BatchSpace {
            records: record(BATCH),
            items: record(ITEM),
            counts: record(COUNT),
            due: Agenda::new(queue, Event::Batch),
            pause: record(pause::PAUSE),
            migrate: record(MIGRATE),
            nlater: Counter::Later.key(queue),
            ndue: Counter::Due.key(queue),
        }
    }

    pub(crate) fn record_key(&self, id: Unique) -> Vec<u8> {
        with_id(self.records.clone(), id)
    }

    /// The key of what is pushed in the end.
    pub(crate) fn item_key(&self, id: Unique) -> Vec<u8> {
        with_id(self.items.clone(), id)
    }

    /// All records.
    pub(crate) fn all_records(&self) -> (Vec<u8>, Vec<u8>) {
        range(&self.records)
    }

    /// Which batch has its record under this key.
    pub(crate) fn decode_record(&self, key: &[u8]) -> Option<Unique> {
        split_id(key.strip_prefix(self.records.as_slice())?)
    }

    pub(crate) fn count_key(&self, id: Unique, what: u8) -> Vec<u8> {
        let mut key = with_id(self.counts.clone(), id);
        append_number(&mut key, u64::from(what));
        key
    }

    /// All counters of a batch.
    pub(crate) fn counts_of(&self, id: Unique) -> (Vec<u8>, Vec<u8>) {
        range(&with_id(self.counts.clone(), id))
    }

    /// The number of a counter of a batch.
    pub(crate) fn decode_count(&self, id: Unique, key: &[u8]) -> Option<u8> {
        let (what, rest) = split_number(key.strip_prefix(with_id(self.counts.clone(), id).as_slice())?)?;
        if rest.is_empty() { u8::try_from(what).ok() } else { None }
    }

    /// The key of the row of a batch's time.
    pub(crate) fn due_key(&self, time: Millis, id: Unique) -> Vec<u8> {
        with_id(self.due.at(time), id)
    }

    /// The key of a batch's mark.
    pub(crate) fn mark_key(&self, id: Unique) -> Vec<u8> {
        self.due_key(MARK, id)
    }

    /// All marks.
    pub(crate) fn marks(&self) -> (Vec<u8>, Vec<u8>) {
        self.due.by(MARK)
    }

    /// The deadlines up to a time.
    pub(crate) fn deadlines_by(&self, time: Millis) -> (Vec<u8>, Vec<u8>) {
        (self.marks().1, self.due.by(time).1)
    }

    /// Time and batch of a row; a mark has the time 0. `None` if it is of another layout.
    pub(crate) fn decode_due(&self, key: &[u8]) -> Option<(Millis, Unique)> {
        self.due.split(key).and_then(|(time, id)| Some((time, split_id(id)?)))
    }
}

fn with_id(mut key: Vec<u8>, id: Unique) -> Vec<u8> {
    append_uuid(&mut key, id);
    key
}

fn split_id(rest: &[u8]) -> Option<Unique> {
    match rest.split_first()? {
        (&UUID, id) if rest.len() == UUID_LEN => id.try_into().ok(),
        _ => None,
    }
}

/// The parameter of SET_VERSIONSTAMPED_VALUE for a mark: each transaction gives it another value.
pub(crate) const PENDING_MARK: [u8; 14] = {
    let mut value = [0xff; 14];
    // The position of the stamp, little endian.
    let mut at = 10;
    while at < 14 {
        value[at] = 0;
        at += 1;
    }
    value
};

/// The version of the transaction that set a mark.
pub(crate) fn mark_version(value: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*value.first_chunk()?))
}

const CREATED: u8 = 1;
const COMMITTED: u8 = 2;
const DEADLINE: u8 = 3;
const ROW: u8 = 4;
const PAYLOAD: u8 = 5;
const ATTRIBUTE: u8 = 6;
const CONTENT_TYPE: u8 = 7;
const ITEM_KEY: u8 = 8;
const PRIORITY: u8 = 9;

/// The record of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) created: Millis,
    /// Since when no more members can be added.
    pub(crate) committed: Option<Millis>,
    pub(crate) deadline: Option<Millis>,
    /// The time of its row by time.
    pub(crate) row: Option<Millis>,
    /// What is pushed in the end, if an earlier version has made the batch; otherwise it is under a key of its own.
    pub(crate) callback: Option<NewItem>,
}

impl Record {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Record { created, committed, deadline, row, callback } = self;
        let mut out = Vec::new();
        put(&mut out, CREATED, &[&created.to_le_bytes()]);
        for (tag, time) in [(COMMITTED, committed), (DEADLINE, deadline), (ROW, row)] {
            if let Some(time) = time {
                put(&mut out, tag, &[&time.to_le_bytes()]);
            }
        }
        if let Some(callback) = callback {
            put_callback(&mut out, callback);
        }
        out
    }

    /// Reads a record; `None` if it is not one. Fields that this version does not know are passed over.
    pub(crate) fn decode(value: &[u8]) -> Option<Record> {
        let (mut created, mut committed, mut deadline, mut row) = (None, None, None, None);
        let mut has_callback = false;
        for field in each(value) {
            let (tag, content) = field?;
            match tag {
                CREATED => created = Some(number(content)?),
                COMMITTED => committed = Some(number(content)?),
                DEADLINE => deadline = Some(number(content)?),
                ROW => row = Some(number(content)?),
                PAYLOAD => has_callback = true,
                _ => {}
            }
        }
        let callback = if has_callback { Some(decode_callback(value)?) } else { None };
        Some(Record { created: created?, committed, deadline, row, callback })
    }
}

/// The value of what is pushed in the end.
pub(crate) fn encode_callback(callback: &NewItem) -> Vec<u8> {
    let mut out = Vec::new();
    put_callback(&mut out, callback);
    out
}

fn put_callback(out: &mut Vec<u8>, callback: &NewItem) {
    put(out, PAYLOAD, &[&callback.payload]);
    for (name, value) in &callback.attributes {
        put_pair(out, ATTRIBUTE, name, value);
    }
    if let Some(text) = &callback.content_type {
        put(out, CONTENT_TYPE, &[text.as_bytes()]);
    }
    if let Some(key) = &callback.key {
        put(out, ITEM_KEY, &[key]);
    }
    if callback.priority != 0 {
        put(out, PRIORITY, &[&callback.priority.to_le_bytes()]);
    }
}

/// Reads what is pushed in the end; `None` if it is something else. Fields that this version does not know are passed over.
pub(crate) fn decode_callback(value: &[u8]) -> Option<NewItem> {
    let (mut callback, mut has_payload) = (NewItem::default(), false);
    for field in each(value) {
        let (tag, content) = field?;
        match tag {
            PAYLOAD => (callback.payload, has_payload) = (content.to_vec().into(), true),
            ATTRIBUTE => callback.attributes.extend([pair(content)?]),
            CONTENT_TYPE => callback.content_type = Some(text(content)?),
            ITEM_KEY => callback.key = Some(content.to_vec()),
            PRIORITY => callback.priority = i64::from_le_bytes(content.try_into().ok()?),
            _ => {}
        }
    }
    has_payload.then_some(callback)
}

/// Whether a record says that the batch is committed; `None` if it is not a record. Decodes nothing else.
pub(crate) fn is_committed(value: &[u8]) -> Option<bool> {
    let mut committed = false;
    for field in each(value) {
        committed |= field?.0 == COMMITTED;
    }
    Some(committed)
}

/// Adds the value of a counter to the counts of a batch.
pub(crate) fn add_count(counts: &mut BatchCounts, what: u8, value: &[u8]) {
    let number = counters::decode(Some(value));
    let field = match what {
        MEMBERS => &mut counts.members,
        code => match Ending::of(code) {
            Ending::Done => &mut counts.done,
            Ending::Dead => &mut counts.dead,
            Ending::Cancelled => &mut counts.cancelled,
            Ending::Expired => &mut counts.expired,
            Ending::Taken => &mut counts.taken,
            Ending::Unknown(_) => &mut counts.other,
        },
    };
    *field = field.saturating_add(number);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_round_trip(
            (payload, created, committed) in any::<(Vec<u8>, u64, Option<u64>)>(),
            (deadline, row) in any::<(Option<u64>, Option<u64>)>(),
            attributes in prop::collection::btree_map(".{0,8}", ".{0,8}", 0..4),
            (content_type, key, priority) in any::<(Option<String>, Option<Vec<u8>>, i64)>(),
        ) {
            let callback =
                NewItem { payload: payload.into(), attributes, content_type, key, priority, ..NewItem::default() };
            prop_assert_eq!(decode_callback(&encode_callback(&callback)), Some(callback.clone()));
            // An earlier version had the callback in the record.
            for callback in [None, Some(callback)] {
                let record = Record { created, committed, deadline, row, callback };
                let value = record.encode();
                prop_assert_eq!(is_committed(&value), Some(committed.is_some()));
                prop_assert_eq!(Record::decode(&value), Some(record));
            }
        }

        #[test]
        fn keys_round_trip_and_marks_sort_first((time, id, what) in any::<(u64, Unique, u8)>()) {
            let keys = BatchSpace::new(b"p");
            prop_assert_eq!(keys.decode_record(&keys.record_key(id)), Some(id));
            prop_assert_eq!(keys.decode_count(id, &keys.count_key(id, what)), Some(what));
            prop_assert_eq!(keys.decode_due(&keys.due_key(time, id)), Some((time, id)));
            let (begin, end) = keys.due.by(time);
            prop_assert!((&begin..&end).contains(&&keys.due_key(time, id)));
            prop_assert!((&begin..&end).contains(&&keys.mark_key([0xff; 16])));
            prop_assert!(time == 0 || keys.mark_key([0xff; 16]) < keys.due_key(time, id));
            prop_assert!(time == u64::MAX || keys.due_key(time + 1, [0; 16]) >= end);
        }

        #[test]
        fn any_bytes_are_read_without_panic(value: Vec<u8>) {
            let keys = BatchSpace::new(b"");
            let _ = (Record::decode(&value), decode_callback(&value), is_committed(&value), mark_version(&value));
            let _ = (keys.decode_record(&value), keys.decode_count([0; 16], &value), keys.decode_due(&value));
        }
    }
}
