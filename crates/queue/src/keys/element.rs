//! The tuple encoding, as far as queue keys use it: byte strings.
//!
//! A byte string is 0x01, its bytes with each 0x00 written as 0x00 0xFF, and a final 0x00. The encoding is spelled
//! out here, not taken from the tuple layer, because `queues` must read the first element of keys whose rest may be
//! anything. The tests hold it against the tuple layer.

/// Type code of a byte string.
const BYTES: u8 = 0x01;
/// Ends a byte string, unless [`ESCAPE`] follows.
const NIL: u8 = 0x00;
/// Says that the 0x00 before it belongs to the string.
const ESCAPE: u8 = 0xff;

/// Appends `bytes` as a byte-string element.
pub(crate) fn append_bytes(key: &mut Vec<u8>, bytes: &[u8]) {
    key.push(BYTES);
    for &byte in bytes {
        key.push(byte);
        if byte == NIL {
            key.push(ESCAPE);
        }
    }
    key.push(NIL);
}

/// Splits a byte-string element off the front; `None` if something else stands there.
pub(crate) fn split_bytes(key: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (&BYTES, mut rest) = key.split_first()? else { return None };
    let mut bytes = Vec::new();
    loop {
        match rest {
            [NIL, ESCAPE, after @ ..] => {
                bytes.push(NIL);
                rest = after;
            }
            [NIL, after @ ..] => return Some((bytes, after)),
            [byte, after @ ..] => {
                bytes.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use foundationdb::tuple::{Bytes, pack};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_byte_string_without_its_end_is_none() {
        assert_eq!(split_bytes(b""), None);
        assert_eq!(split_bytes(b"\x01"), None);
        assert_eq!(split_bytes(b"\x01q\x00\xff"), None);
        assert_eq!(split_bytes(b"\x02q\x00"), None);
    }

    proptest! {
        #[test]
        fn elements_round_trip_and_match_the_tuple_layer(bytes: Vec<u8>, rest: Vec<u8>) {
            let mut key = Vec::new();
            append_bytes(&mut key, &bytes);
            prop_assert_eq!(&key, &pack(&(Bytes::from(bytes.as_slice()),)));

            // A rest that begins with 0xFF would change where the element ends; no tuple element does.
            prop_assume!(rest.first() != Some(&0xff));
            key.extend_from_slice(&rest);
            prop_assert_eq!(split_bytes(&key), Some((bytes, rest.as_slice())));
        }

        #[test]
        fn any_bytes_are_read_without_panic(key: Vec<u8>) {
            let _ = split_bytes(&key);
        }
    }
}
