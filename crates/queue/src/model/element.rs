//! The tuple encoding, as far as queue keys use it: byte strings, texts, UUIDs, numbers from 0.
//!
//! A byte string is 0x01, its bytes with each 0x00 written as 0x00 0xFF, and a final 0x00. The encoding is spelled
//! out here, not taken from the tuple layer, because `queues` must read the first element of keys whose rest may be
//! anything. The tests hold it against the tuple layer.

/// Type code of a byte string.
const BYTES: u8 = 0x01;
/// Type code of a text, which is otherwise written alike.
const TEXT: u8 = 0x02;
/// Type code of a UUID.
pub(crate) const UUID: u8 = 0x30;
/// Bytes of a UUID element.
pub(crate) const UUID_LEN: usize = 1 + 16;
/// Type code of a 96-bit versionstamp.
pub(crate) const STAMP: u8 = 0x33;
/// Type code of the integer 0; positive ones of n bytes have `ZERO + n`.
const ZERO: u8 = 0x14;
/// Type code of an integer of one byte, 1 to 255.
pub(crate) const ONE_BYTE: u8 = ZERO + 1;
/// Ends a byte string, unless [`ESCAPE`] follows.
const NIL: u8 = 0x00;
/// Says that the 0x00 before it belongs to the string.
const ESCAPE: u8 = 0xff;

/// Appends `bytes` as a byte-string element.
pub(crate) fn append_bytes(key: &mut Vec<u8>, bytes: &[u8]) {
    append_string(key, BYTES, bytes);
}

/// Appends `text` as a text element.
pub(crate) fn append_text(key: &mut Vec<u8>, text: &str) {
    append_string(key, TEXT, text.as_bytes());
}

/// Appends a UUID element.
pub(crate) fn append_uuid(key: &mut Vec<u8>, uuid: [u8; 16]) {
    key.push(UUID);
    key.extend_from_slice(&uuid);
}

/// Appends an integer element.
pub(crate) fn append_number(key: &mut Vec<u8>, number: u64) {
    let bytes = number.to_be_bytes();
    let zeros = (number.leading_zeros() / 8) as usize;
    key.push(ZERO + (8 - zeros) as u8);
    key.extend_from_slice(&bytes[zeros..]);
}

/// Splits a non-negative integer element off the front; `None` if something else stands there, or a number with leading zeros: no program writes these.
pub(crate) fn split_number(key: &[u8]) -> Option<(u64, &[u8])> {
    let (&code, rest) = key.split_first()?;
    let len = code.checked_sub(ZERO).filter(|len| *len <= 8)?;
    let (bytes, rest) = rest.split_at_checked(usize::from(len))?;
    if bytes.first() == Some(&0) {
        return None;
    }
    Some((bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)), rest))
}

fn append_string(key: &mut Vec<u8>, code: u8, bytes: &[u8]) {
    key.push(code);
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
    split_string(BYTES, key)
}

/// Splits a text element off the front, as its bytes; `None` if something else stands there.
pub(crate) fn split_text(key: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    split_string(TEXT, key)
}

fn split_string(code: u8, key: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = key.strip_prefix(&[code])?;
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
    fn an_unterminated_byte_string_is_refused() {
        assert_eq!(split_bytes(b""), None);
        assert_eq!(split_bytes(b"\x01"), None);
        assert_eq!(split_bytes(b"\x01q\x00\xff"), None);
        assert_eq!(split_bytes(b"\x02q\x00"), None);
    }

    #[test]
    fn a_number_with_leading_zeros_is_refused() {
        assert_eq!(split_number(b"\x16\x00\x07"), None);
        assert_eq!(split_number(b"\x15\x00"), None);
        assert_eq!(split_number(b"\x14"), Some((0, &b""[..])));
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
        fn texts_uuids_and_numbers_match_the_tuple_layer(text: String, uuid: [u8; 16], shift in 0..64_u32, rest: Vec<u8>) {
            let number = u64::from_le_bytes(uuid[..8].try_into().unwrap()) >> shift;
            let mut key = Vec::new();
            append_text(&mut key, &text);
            append_uuid(&mut key, uuid);
            append_number(&mut key, number);
            prop_assert_eq!(split_text(&key).map(|(read, _)| read), Some(text.clone().into_bytes()));
            prop_assert_eq!(key, [pack(&text), vec![0x30], uuid.to_vec(), pack(&number)].concat());
            let mut key = Vec::new();
            append_number(&mut key, number);
            key.extend_from_slice(&rest);
            prop_assert_eq!(split_number(&key), Some((number, rest.as_slice())));
        }

        #[test]
        fn any_bytes_are_read_without_panic(key: Vec<u8>) {
            let _ = split_bytes(&key);
            let _ = split_number(&key);
        }
    }
}
