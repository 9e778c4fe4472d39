//! How the ids of items are laid out, by the kinds of queues.
//!
//! An id is what the key of an item goes on with behind the part of the queue. In a FIFO queue that is the stamp of its push, and in a partition from 1 on
//! the number of the partition before that; in a keyed queue `(key, stamp)`; in the recipes' queues `(index, random)` and `(priority, count, random)`. Foreign programs may
//! push items to a recipe's queue whose ids are laid out otherwise.

use foundationdb::tuple::{Bytes as TupleBytes, Element, pack, unpack};

use crate::model::element::{ONE_BYTE, STAMP, append_bytes, split_bytes};
use crate::model::id::ItemId;
use crate::model::stamp::Stamp;

/// The part of an item's key behind the subspace: its stamp as a tuple element.
pub(crate) fn suffix(stamp: Stamp) -> [u8; 1 + Stamp::LEN] {
    let mut suffix = [STAMP; 1 + Stamp::LEN];
    suffix[1..].copy_from_slice(stamp.as_bytes());
    suffix
}

/// The stamp in a suffix, if it is one.
pub(crate) fn suffix_stamp(suffix: &[u8]) -> Option<Stamp> {
    let (&STAMP, stamp) = suffix.split_first()? else { return None };
    <[u8; Stamp::LEN]>::try_from(stamp).ok().map(Stamp::from)
}

/// What stands before the stamp in the id of an item of partition `i`.
pub(crate) fn before_stamp(i: u8) -> Vec<u8> {
    if i == 0 { Vec::new() } else { vec![ONE_BYTE, i] }
}

/// The id of an item, as bytes.
pub(crate) fn in_partition(i: u8, stamp: Stamp) -> Vec<u8> {
    let mut id = before_stamp(i);
    id.extend_from_slice(&suffix(stamp));
    id
}

/// The partition in an item's id; 0 if the id is not of this layout.
pub(crate) fn partition_of(id: &[u8]) -> u8 {
    const LEN: usize = 2 + 1 + Stamp::LEN;
    match id {
        [ONE_BYTE, i, STAMP, ..] if id.len() == LEN => *i,
        _ => 0,
    }
}

/// Partition and stamp in an item's id; `None` if the id is not of this layout.
pub(crate) fn split_partition(id: &[u8]) -> Option<(u8, Stamp)> {
    match id {
        [ONE_BYTE, i @ 1..=u8::MAX, rest @ ..] => Some((*i, suffix_stamp(rest)?)),
        _ => Some((0, suffix_stamp(id)?)),
    }
}

/// What stands between the queue's part of an item's key and its stamp: the key as an element.
pub(crate) fn key_element(key: &[u8]) -> Vec<u8> {
    let mut element = Vec::new();
    append_bytes(&mut element, key);
    element
}

/// The key and the stamp in the id of a keyed queue's item; `None` if it is the id of another kind.
pub(crate) fn split_id(id: &[u8]) -> Option<(Vec<u8>, Stamp)> {
    let (key, rest) = split_bytes(id)?;
    Some((key, suffix_stamp(rest)?))
}

/// The length of the random element in bytes.
pub const RANDOM: usize = 20;

/// The id of an item of a queue.
pub(crate) fn queue_id(index: i64, random: &[u8; RANDOM]) -> ItemId {
    ItemId::new(pack(&(index, TupleBytes::from(random.as_slice()))).into())
}

/// The id of an item of a priority queue.
pub(crate) fn priority_id(priority: i64, count: i64, random: &[u8; RANDOM]) -> ItemId {
    ItemId::new(pack(&(priority, count, TupleBytes::from(random.as_slice()))).into())
}

/// Whether an id is laid out as those of a queue, `(index, random)`.
pub(crate) fn is_queue_id(id: &[u8]) -> bool {
    matches!(&elements(id)[..], [Element::Int(_), Element::Bytes(random)] if random.len() == RANDOM)
}

/// Whether an id is laid out as those of a priority queue, `(priority, count, random)`.
pub(crate) fn is_priority_id(id: &[u8]) -> bool {
    matches!(&elements(id)[..], [_, Element::Int(_), Element::Bytes(random)] if random.len() == RANDOM)
}

/// The type code of a tuple within a tuple.
pub(crate) const NESTED: u8 = 0x05;

/// The deepest that tuples may be nested in what others have written. They are read by recursion, and the stack has an end.
const MAX_NESTING: usize = 64;

/// The elements of a packed tuple; none if it is none, or may be nested too deep.
pub(crate) fn elements(tuple: &[u8]) -> Vec<Element<'_>> {
    // Within the text or byte string that most values begin with that byte is a byte like any other.
    let nested = tuple[leading_string(tuple)..].iter().filter(|byte| **byte == NESTED).count();
    if nested > MAX_NESTING { Vec::new() } else { unpack(tuple).unwrap_or_default() }
}

/// The length of the text or byte string that a tuple begins with; 0 if it begins with something else.
pub(crate) fn leading_string(tuple: &[u8]) -> usize {
    if !matches!(tuple, [1 | 2, ..]) {
        return 0;
    }
    // It ends with a byte 0; one of its own is followed by 0xFF.
    let mut from = 1;
    while let Some(zero) = tuple[from..].iter().position(|byte| *byte == 0) {
        from += zero + 1;
        if tuple.get(from) != Some(&0xff) {
            return from;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use foundationdb::tuple::Versionstamp;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ids_of_partitions_round_trip_and_match_the_tuple_layer(i: u8, transaction: [u8; 10], user: u16) {
            let stamp = Stamp::new(transaction, user);
            let id = in_partition(i, stamp);
            prop_assert_eq!((partition_of(&id), split_partition(&id)), (i, Some((i, stamp))));
            let stamp = Versionstamp::complete(transaction, user);
            prop_assert_eq!(id, if i == 0 { pack(&(stamp,)) } else { pack(&(i64::from(i), stamp)) });
        }

        #[test]
        fn ids_of_keyed_queues_round_trip(key: Vec<u8>, stamp: [u8; Stamp::LEN]) {
            let stamp = Stamp::from(stamp);
            let id = [key_element(&key), suffix(stamp).to_vec()].concat();
            prop_assert_eq!(split_id(&id), Some((key, stamp)));
        }

        #[test]
        fn ids_of_the_two_recipes_are_distinguished(numbers: (i64, i64), random: [u8; RANDOM]) {
            let (queue, priority) = (queue_id(numbers.0, &random), priority_id(numbers.0, numbers.1, &random));
            prop_assert!(is_queue_id(queue.as_bytes()) && !is_priority_id(queue.as_bytes()));
            prop_assert!(is_priority_id(priority.as_bytes()) && !is_queue_id(priority.as_bytes()));
        }

        #[test]
        fn an_id_has_a_partition_if_it_has_a_stamp(bytes: Vec<u8>) {
            prop_assert_eq!(partition_of(&bytes), split_partition(&bytes).map_or(0, |(partition, _)| partition));
        }
    }
}
