//! (q, "val", stamp): the items that are ready, in commit order. The value is the payload, as it was pushed.
//!
//! Written by pushes with a versionstamped key, read and cleared by pops.

use crate::model::element::STAMP;
#[cfg(test)]
use crate::model::id_layout::{suffix, suffix_stamp};
use crate::model::stamp::Stamp;

/// Second element of an item's key.
pub(crate) const VAL: &[u8] = b"val";

/// The parameter of SET_VERSIONSTAMPED_KEY for push number `user` of a transaction.
///
/// `subspace` is the packed (q, "val"). Behind the key comes the stamp's position in it, 4 bytes little endian.
#[cfg(test)]
pub(crate) fn pending(subspace: &[u8], user: u16) -> Vec<u8> {
    pending_record(subspace, user, &[])
}

/// The parameter of SET_VERSIONSTAMPED_KEY for a record of push number `user` whose key is `before`, the stamp as an element,
/// `after`.
pub(crate) fn pending_record(before: &[u8], user: u16, after: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(before.len() + 1 + Stamp::LEN + after.len() + 4);
    key.extend_from_slice(before);
    key.push(STAMP);
    let position = u32::try_from(key.len()).expect("names and prefixes are bounded far below 2^32 bytes");
    key.extend_from_slice(&[0xff; 10]);
    key.extend_from_slice(&user.to_be_bytes());
    key.extend_from_slice(after);
    key.extend_from_slice(&position.to_le_bytes());
    key
}

/// The key of an item; `subspace` is the packed (q, "val").
#[cfg(test)]
pub(crate) fn key(subspace: &[u8], stamp: Stamp) -> Vec<u8> {
    [subspace, &suffix(stamp)].concat()
}

/// The stamp in an item's key; `None` if the key is no item of this queue.
#[cfg(test)]
pub(crate) fn decode(subspace: &[u8], key: &[u8]) -> Option<Stamp> {
    suffix_stamp(key.strip_prefix(subspace)?)
}

#[cfg(test)]
mod tests {
    use foundationdb::tuple::{Bytes, Subspace, Versionstamp};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::stamped;

    #[test]
    fn a_malformed_item_key_is_refused() {
        let item = b"val\x33abcdefghijkl";
        assert!(decode(b"val", item).is_some());
        assert_eq!(decode(b"val", &item[..item.len() - 1]), None);
        assert_eq!(decode(b"val", b"val\x33abcdefghijklm"), None);
        assert_eq!(decode(b"val", b"val\x32abcdefghijkl"), None);
        assert_eq!(decode(b"val", b"val"), None);
        assert_eq!(decode(b"val", b"vol\x33abcdefghijkl"), None);
    }

    proptest! {
        #[test]
        fn stamped_keys_round_trip(subspace: Vec<u8>, user: u16, transaction: [u8; 10]) {
            let key = stamped(pending(&subspace, user), transaction);
            let stamp = Stamp::new(transaction, user);
            prop_assert_eq!(&key, &super::key(&subspace, stamp));
            prop_assert_eq!(decode(&subspace, &key), Some(stamp));
        }

        #[test]
        fn the_parameter_matches_the_tuple_layer(name: Vec<u8>, user: u16) {
            let space = Subspace::from_bytes(name).subspace(&Bytes::from(VAL));
            let expected = space.pack_with_versionstamp(&Versionstamp::incomplete(user));
            prop_assert_eq!(pending(space.bytes(), user), expected);
        }
    }
}
