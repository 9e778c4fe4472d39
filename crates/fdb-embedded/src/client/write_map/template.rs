//! Templates: keys and values with a place for the versionstamp.

use crate::engine::mutation::{STAMP_LEN, Stamp};
use crate::range_set::{KeyRange, key_after};

/// Bytes of the stamp's offset at the end of a template.
pub const STAMP_OFFSET_LEN: usize = 4;

/// A template, as the client gave it: the bytes, followed by the offset of the stamp.
pub(super) fn template(mut bytes: Vec<u8>, offset: usize) -> Vec<u8> {
    bytes.extend_from_slice(&place(offset));
    bytes
}

/// The offset of a stamp, as it follows a key or value.
pub fn place(offset: usize) -> [u8; STAMP_OFFSET_LEN] {
    u32::try_from(offset).expect("it was given as four bytes").to_le_bytes()
}

/// Splits a template into its key and the offset of the stamp.
pub fn split_template(template: &[u8]) -> (&[u8], usize) {
    match template.split_last_chunk::<STAMP_OFFSET_LEN>() {
        Some((key, offset)) => (key, u32::from_le_bytes(*offset) as usize),
        None => (template, 0),
    }
}

/// The range in which `key` will lie when its versionstamp, which is above `read_version`, is
/// known.
pub fn stamped_range(key: &[u8], offset: usize, read_version: i64) -> KeyRange {
    // With capacity for the offset of the stamp.
    let mut lowest = Vec::with_capacity(key.len() + STAMP_OFFSET_LEN);
    lowest.extend_from_slice(key);
    Stamp::new(read_version, 0).place(&mut lowest, offset);
    let mut after_highest = key_after(key);
    Stamp([0xff; STAMP_LEN]).place(&mut after_highest, offset);
    (lowest, after_highest)
}

/// The range of `key` with its versionstamp.
pub fn stamped_key(key: &[u8], offset: usize, stamp: Stamp) -> KeyRange {
    let mut key = key.to_vec();
    stamp.place(&mut key, offset);
    let after = key_after(&key);
    (key, after)
}
