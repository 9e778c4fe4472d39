//! The encoding of a side record: tagged [fields](crate::keys::fields), in any order.
//!
//! (q, "meta", id) holds the record of a ready item, written by any process that makes it ready, removed by the take. The same encoding stands in
//! leases, and in the records of delayed items and dead letters. A reader keeps fields it does not know.

use crate::keys::fields::{each, number, pair, put, put_pair, text};
use crate::model::item_batch::BatchId;
use crate::model::meta::{Failure, Meta};
use crate::model::time::{from_millis, millis};

/// Second element of the key of a ready item's side record.
pub(crate) const META: &[u8] = b"meta";

const ATTEMPTS: u8 = 1;
const CRASHES: u8 = 2;
const FAILURE: u8 = 3;
const ATTRIBUTE: u8 = 4;
const CONTENT_TYPE: u8 = 5;
const TRACE_PARENT: u8 = 6;
const ENQUEUED_AT: u8 = 7;
const PAYLOAD_LEN: u8 = 8;
const UNIQUE: u8 = 9;
const DEATH: u8 = 10;
const EXPIRES: u8 = 12;
const UNIQUE_UNTIL: u8 = 14;
/// A side record that could not be read, as it was. It is written when an item dies, and readers keep it as it is.
pub(crate) const UNREADABLE: u8 = 11;
/// A batch that the item is a member of; there may be several. Dead letters do not have it: they have ended for their batches.
pub(crate) const BATCH: u8 = 13;

/// Whether a field of this tag is none that this version knows the meaning of.
fn is_unknown(tag: u8) -> bool {
    tag == UNREADABLE || tag > UNIQUE_UNTIL
}

impl Meta {
    /// Adds a field that this version does not know ([`Meta::unknown_fields`]). `false` if the tag is one that this version knows the meaning of; then nothing is added.
    pub fn add_unknown_field(&mut self, tag: u8, content: Vec<u8>) -> bool {
        let unknown = is_unknown(tag);
        if unknown {
            self.unknown.push((tag, content));
        }
        unknown
    }
}

/// The most bytes that are kept of a side record that cannot be read: with a reason it must fit into a value.
const MAX_KEPT: usize = 90_000;

/// The side record that could not be read, as it was, of an item that became a dead letter for that.
pub(crate) fn unreadable(meta: &Meta) -> Option<&[u8]> {
    meta.unknown.iter().find(|(tag, _)| *tag == UNREADABLE).map(|(_, record)| record.as_slice())
}

/// The record of an item whose side record cannot be read: its bytes.
pub(crate) fn as_it_is(record: &[u8]) -> Meta {
    Meta { unknown: vec![(UNREADABLE, record[..record.len().min(MAX_KEPT)].to_vec())], ..Meta::default() }
}

/// The batches in a side record, as they are stored. Decodes nothing else, so that the end of an item does not pay for what it does not need.
pub(crate) fn batches(record: &[u8]) -> impl Iterator<Item = &[u8]> {
    let fields = each(record).map_while(|field| field);
    fields.filter(|(tag, _)| *tag == BATCH).map(|(_, content)| content)
}

/// Adds a batch to a side record, unless the record has it.
pub(crate) fn add_batch(record: &mut Vec<u8>, batch: &BatchId) {
    if !batches(record).any(|known| known == batch.as_bytes()) {
        put(record, BATCH, &[batch.as_bytes()]);
    }
}

/// The record's value.
pub(crate) fn encode(meta: &Meta) -> Vec<u8> {
    let mut out = Vec::new();
    if meta.attempts > 0 {
        put(&mut out, ATTEMPTS, &[&meta.attempts.to_le_bytes()]);
    }
    if meta.crashes > 0 {
        put(&mut out, CRASHES, &[&meta.crashes.to_le_bytes()]);
    }
    for failure in &meta.failures {
        failure_field(&mut out, FAILURE, failure);
    }
    for (name, value) in &meta.attributes {
        put_pair(&mut out, ATTRIBUTE, name, value);
    }
    if let Some(text) = &meta.content_type {
        put(&mut out, CONTENT_TYPE, &[text.as_bytes()]);
    }
    if let Some(text) = &meta.trace_parent {
        put(&mut out, TRACE_PARENT, &[text.as_bytes()]);
    }
    if let Some(at) = meta.enqueued_at {
        put(&mut out, ENQUEUED_AT, &[&millis(at).to_le_bytes()]);
    }
    if let Some(len) = meta.payload_len {
        put(&mut out, PAYLOAD_LEN, &[&len.to_le_bytes()]);
    }
    if let Some(key) = &meta.unique {
        put(&mut out, UNIQUE, &[key]);
    }
    if let Some(death) = &meta.death {
        failure_field(&mut out, DEATH, death);
    }
    if let Some(at) = meta.expiry() {
        put(&mut out, EXPIRES, &[&at.to_le_bytes()]);
    }
    for batch in &meta.batches {
        put(&mut out, BATCH, &[batch.as_bytes()]);
    }
    if let Some(until) = meta.unique_end() {
        put(&mut out, UNIQUE_UNTIL, &[&until.to_le_bytes()]);
    }
    for (tag, content) in &meta.unknown {
        put(&mut out, *tag, &[content]);
    }
    out
}

/// Reads a record's value; `None` if it is not one.
pub(crate) fn decode(value: &[u8]) -> Option<Meta> {
    let mut meta = Meta::default();
    for field in each(value) {
        let (tag, content) = field?;
        read_field(&mut meta, tag, content)?;
    }
    Some(meta)
}

fn read_field(meta: &mut Meta, tag: u8, content: &[u8]) -> Option<()> {
    match tag {
        ATTEMPTS => meta.attempts = u32::from_le_bytes(content.try_into().ok()?),
        CRASHES => meta.crashes = u32::from_le_bytes(content.try_into().ok()?),
        FAILURE => meta.failures.push(read_failure(content)?),
        ATTRIBUTE => meta.attributes.extend([pair(content)?]),
        CONTENT_TYPE => meta.content_type = Some(text(content)?),
        TRACE_PARENT => meta.trace_parent = Some(text(content)?),
        ENQUEUED_AT => meta.enqueued_at = Some(from_millis(number(content)?)),
        PAYLOAD_LEN => meta.payload_len = Some(number(content)?),
        UNIQUE => meta.unique = Some(content.to_vec()),
        DEATH => meta.death = Some(read_failure(content)?),
        EXPIRES => meta.expires = Some(from_millis(number(content)?)),
        UNIQUE_UNTIL => meta.unique_until = Some(from_millis(number(content)?)),
        BATCH => match BatchId::from_bytes(content) {
            Some(batch) => meta.batches.push(batch),
            // The form of a later version is kept.
            None => meta.unknown.push((tag, content.to_vec())),
        },
        _ => meta.unknown.push((tag, content.to_vec())),
    }
    Some(())
}

fn failure_field(out: &mut Vec<u8>, tag: u8, failure: &Failure) {
    let at = millis(failure.at);
    put(out, tag, &[&at.to_le_bytes(), &failure.attempt.to_le_bytes(), failure.reason.as_bytes()]);
}

fn read_failure(content: &[u8]) -> Option<Failure> {
    let (at, rest) = content.split_first_chunk::<8>()?;
    let (attempt, reason) = rest.split_first_chunk::<4>()?;
    Some(Failure {
        at: from_millis(u64::from_le_bytes(*at)),
        attempt: u32::from_le_bytes(*attempt),
        reason: text(reason)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn failure() -> impl Strategy<Value = Failure> {
        (any::<u64>(), any::<u32>(), ".{0,20}").prop_map(|(at, attempt, reason)| Failure {
            at: from_millis(at),
            attempt,
            reason,
        })
    }

    prop_compose! {
        fn any_meta()(
            (attempts, crashes) in any::<(u32, u32)>(),
            failures in prop::collection::vec(failure(), 0..4),
            attributes in prop::collection::btree_map(".{0,8}", ".{0,8}", 0..4),
            (content_type, trace_parent) in any::<(Option<String>, Option<String>)>(),
            (enqueued_at, payload_len) in any::<(Option<u64>, Option<u64>)>(),
            (expires, unique_until) in any::<(Option<u64>, Option<u64>)>(),
            unique in any::<Option<Vec<u8>>>(),
            death in prop::option::of(failure()),
            batches in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..=255), any::<[u8; 16]>()), 0..3),
            unknown in prop::collection::vec((prop::sample::select(vec![11_u8, 15, 200]), any::<Vec<u8>>()), 0..3),
        ) -> Meta {
            Meta {
                attempts, crashes, failures, attributes, content_type, trace_parent, payload_len, unique, death, unknown,
                enqueued_at: enqueued_at.map(from_millis),
                expires: expires.map(from_millis),
                unique_until: unique_until.map(from_millis),
                batches: batches.iter().map(|(home, unique)| BatchId::with_unique(home, *unique)).collect(),
            }
        }
    }

    proptest! {
        #[test]
        fn records_round_trip(meta in any_meta()) {
            let record = encode(&meta);
            prop_assert!(batches(&record).eq(meta.batches.iter().map(BatchId::as_bytes)));
            prop_assert_eq!(decode(&record), Some(meta));
        }

        #[test]
        fn any_bytes_are_read_without_panic(value: Vec<u8>) {
            let _ = (decode(&value), batches(&value).count());
        }

        #[test]
        fn a_truncated_record_does_not_decode_to_the_original(meta in any_meta(), cut in 1..5_usize) {
            let mut value = encode(&meta);
            prop_assume!(!value.is_empty());
            value.truncate(value.len() - cut.min(value.len()));
            prop_assert_ne!(decode(&value), Some(meta));
        }
    }
}
