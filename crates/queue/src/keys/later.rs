//! (q, "later", due, id): an item that becomes ready at a time, in milliseconds since 1970. The value is its side record.
//!
//! Written by pushes for a time and by retries; removed by the sweeper that makes the item ready. Its payload's value is at
//! (q, "body", id), and its time at (q, "due", id).

use crate::model::element::{append_number, split_number};
use crate::model::id::ItemId;
use crate::model::meta::Millis;

/// Second element of the key of an item put aside.
pub(crate) const LATER: &[u8] = b"later";
/// Second element of the key of the value of an item put aside, and of a dead letter.
pub(crate) const BODY: &[u8] = b"body";

/// Second element of the key of an item's time: (q, "due", id). Written with the item's record, so that its id leads to it.
///
/// Versions of kvqueue before this record neither write nor clear it. So a reader makes sure that the item's record is there under the
/// time, and otherwise looks for it among all.
pub(crate) const DUE: &[u8] = b"due";

/// The value of an item's time.
pub(crate) fn encode_due(due: Millis) -> [u8; 8] {
    due.to_le_bytes()
}

/// The time in such a value; `None` if it is of another layout.
pub(crate) fn decode_due(value: &[u8]) -> Option<Millis> {
    value.try_into().ok().map(Millis::from_le_bytes)
}

/// The beginning of all keys with this time; `subspace` is the packed (q, "later").
pub(crate) fn at(subspace: &[u8], due: Millis) -> Vec<u8> {
    let mut key = subspace.to_vec();
    append_number(&mut key, due);
    key
}

/// The key of an item.
pub(crate) fn key(subspace: &[u8], due: Millis, id: &ItemId) -> Vec<u8> {
    let mut key = at(subspace, due);
    key.extend_from_slice(id.as_bytes());
    key
}

/// Time and item of a key; `None` if it is of another layout.
pub(crate) fn decode(subspace: &[u8], key: &[u8]) -> Option<(Millis, ItemId)> {
    let (due, id) = split_number(key.strip_prefix(subspace)?)?;
    (!id.is_empty()).then(|| (due, ItemId::new(id.to_vec().into())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_round_trip_and_sort_by_time(subspace: Vec<u8>, a: (u64, [u8; 13]), b: (u64, [u8; 13])) {
            let of = |(due, id): (u64, [u8; 13])| key(&subspace, due, &ItemId::new(id.to_vec().into()));
            prop_assert_eq!(decode(&subspace, &of(a)), Some((a.0, ItemId::new(a.1.to_vec().into()))));
            prop_assert_eq!(of(a).cmp(&of(b)), a.cmp(&b));
        }

        #[test]
        fn times_round_trip(due: u64) {
            prop_assert_eq!(decode_due(&encode_due(due)), Some(due));
        }

        #[test]
        fn any_bytes_are_read_without_panic(key: Vec<u8>) {
            let _ = (decode(&[], &key), decode_due(&key));
        }
    }
}
