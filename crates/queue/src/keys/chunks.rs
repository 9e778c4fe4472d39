//! (q, "chunk", id, n), n from 1: what a payload is longer than a value may be.
//!
//! The item's value is the payload's beginning, of [`MAX_VALUE`] bytes; chunk n is the n-th following part of that length. Written by
//! the push, in its transaction; they stay where they are until the item is finished, popped or purged.

use crate::MAX_VALUE;
use crate::id::ItemId;
use crate::keys::element::append_number;

/// Second element of a chunk's key.
pub(crate) const CHUNK: &[u8] = b"chunk";

/// What the key of chunk `n` goes on with behind the item's id.
pub(crate) fn suffix(n: u64) -> Vec<u8> {
    let mut suffix = Vec::with_capacity(9);
    append_number(&mut suffix, n);
    suffix
}

/// All chunks of an item, as a range; `subspace` is the packed (q, "chunk").
pub(crate) fn range(subspace: &[u8], id: &ItemId) -> (Vec<u8>, Vec<u8>) {
    ([subspace, id.as_bytes(), &[0x00]].concat(), [subspace, id.as_bytes(), &[0xff]].concat())
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
            let key = [b"chunk", id.as_bytes(), &suffix(n)].concat();
            assert!(begin < key && key < end);
        }
    }
}
