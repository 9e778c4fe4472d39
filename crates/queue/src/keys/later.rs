//! What an item that is put aside for a time has under its id: (q, "body", id), its payload's value, and (q, "due", id), its time.
//!
//! Its side record is in the [agenda](crate::keys::agenda), under the time. Written by pushes for a time and by retries; removed with
//! whatever makes the item ready, or ends it.

use crate::model::time::Millis;

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn times_round_trip(due: u64) {
            prop_assert_eq!(decode_due(&encode_due(due)), Some(due));
        }

        #[test]
        fn any_bytes_are_read_without_panic(value: Vec<u8>) {
            let _ = decode_due(&value);
        }
    }
}
