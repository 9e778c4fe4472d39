//! (q, "chunk", id, n), n from 1: what a payload is longer than a value may be.
//!
//! The item's value is the payload's beginning, of [`MAX_VALUE`] bytes; chunk n is the n-th following part of that length. Written by
//! the push, in its transaction; they stay where they are until the item is finished, popped or purged.

use crate::keys;
use crate::model::element::{append_number, split_number};
use crate::model::id::ItemId;
use crate::model::sizes::{MAX_VALUE, PAYLOAD_CEILING};

/// Second element of a chunk's key.
pub(crate) const CHUNK: &[u8] = b"chunk";

/// The part of chunk `n`'s key behind the item's id.
pub(crate) fn suffix(n: u64) -> Vec<u8> {
    let mut suffix = Vec::with_capacity(9);
    append_number(&mut suffix, n);
    suffix
}

/// How many chunks a payload of this length has.
pub(crate) fn count(payload_len: u64) -> u64 {
    let most = (PAYLOAD_CEILING / MAX_VALUE) as u64;
    (payload_len.saturating_sub(1) / MAX_VALUE as u64).min(most)
}

/// The key of chunk `n` of an item; `subspace` is the packed (q, "chunk").
pub(crate) fn key(subspace: &[u8], id: &ItemId, n: u64) -> Vec<u8> {
    [subspace, id.as_bytes(), &suffix(n)].concat()
}

/// Whether a key is that of a chunk of this item.
pub(crate) fn is_of(subspace: &[u8], id: &ItemId, key: &[u8]) -> bool {
    let rest = key.strip_prefix(subspace).and_then(|rest| rest.strip_prefix(id.as_bytes()));
    matches!(rest.and_then(split_number), Some((_, [])))
}

/// All chunks of an item, as a range.
///
/// Only ids that are no beginning of others, such as stamps, have it for themselves.
pub(crate) fn range(subspace: &[u8], id: &ItemId) -> (Vec<u8>, Vec<u8>) {
    keys::range(&[subspace, id.as_bytes()].concat())
}

/// The value and the chunks of a payload.
pub(crate) fn split(payload: &[u8]) -> (&[u8], impl Iterator<Item = (u64, &[u8])>) {
    let (value, rest) = payload.split_at(payload.len().min(MAX_VALUE));
    (value, (1..).zip(rest.chunks(MAX_VALUE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_its_value_and_its_chunks() {
        for len in [0, 1, MAX_VALUE, MAX_VALUE + 1, 3 * MAX_VALUE, 3 * MAX_VALUE + 7] {
            let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let (value, chunks) = split(&payload);
            let chunks: Vec<_> = chunks.collect();
            assert_eq!(chunks.len(), len.div_ceil(MAX_VALUE).saturating_sub(1));
            assert_eq!(count(len as u64), chunks.len() as u64);
            let joined =
                chunks.iter().fold(value.to_vec(), |joined, (_, chunk)| [&joined[..], chunk].concat());
            assert_eq!(joined, payload);
        }
    }

    #[test]
    fn chunks_lie_in_their_items_range() {
        let id = ItemId::new(b"\x33abcdefghijkl".as_slice().into());
        let (begin, end) = range(b"chunk", &id);
        for n in [1, 255, 256, u64::MAX] {
            let key = key(b"chunk", &id, n);
            assert!(begin < key && key < end && is_of(b"chunk", &id, &key));
        }
    }

    #[test]
    fn chunks_of_longer_ids_with_the_same_prefix_are_excluded() {
        let (id, longer) =
            (ItemId::new(b"\x14".as_slice().into()), ItemId::new(b"\x14\x15\x01".as_slice().into()));
        let key = key(b"chunk", &longer, 2);
        let (begin, end) = range(b"chunk", &id);
        assert!(begin < key && key < end && !is_of(b"chunk", &id, &key));
    }
}
