//! (q, "expiry", time, id): what is over for an item at a time, in milliseconds since 1970. The value is empty, or the item's unique key.
//!
//! An item may expire: if no attempt has begun by then, none begins any more. And it may have its unique key for a time: then the value is that
//! key, and it is free from then on. If both are at the same time, one row serves for both.
//!
//! Written by the push of such an item, and by whatever returns an item that may expire and that nobody has begun with. Removed by the sweeper
//! when the time has come, and where it is for an expiry alone, when the item ends. A fetch leaves it, so that it costs a fetch nothing. So there
//! may be a row of an item that is running, was tried before, or has ended: the sweeper passes that over.

use crate::keys::{later, range};
use crate::model::id::ItemId;
use crate::model::meta::{Meta, Millis};

/// Second element of the key of an item's expiry.
pub(crate) const EXPIRY: &[u8] = b"expiry";

/// The beginning of all keys with this time; `subspace` is the packed (q, "expiry").
pub(crate) fn at(subspace: &[u8], expires: Millis) -> Vec<u8> {
    later::at(subspace, expires)
}

/// The key of an item.
pub(crate) fn key(subspace: &[u8], expires: Millis, id: &ItemId) -> Vec<u8> {
    later::key(subspace, expires, id)
}

/// The value of an item's row of this time.
pub(crate) fn value(meta: &Meta, time: Millis) -> &[u8] {
    match &meta.unique {
        Some(key) if meta.unique_until == Some(time) => key,
        _ => b"",
    }
}

/// Time and item of a key; `None` if it is of another layout.
pub(crate) fn decode(subspace: &[u8], key: &[u8]) -> Option<(Millis, ItemId)> {
    later::decode(subspace, key)
}

/// The rows of all items that expire by `now`.
pub(crate) fn by(subspace: &[u8], now: Millis) -> (Vec<u8>, Vec<u8>) {
    let (begin, end) = range(subspace);
    (begin, now.checked_add(1).map_or(end, |next| at(subspace, next)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_range_by_a_time_holds_what_expires_by_then(now: u64, expires: u64, id: [u8; 13]) {
            let key = key(b"\x01q\x00", expires, &ItemId::new(id.to_vec().into()));
            let (begin, end) = by(b"\x01q\x00", now);
            prop_assert_eq!((begin..end).contains(&key), expires <= now);
        }
    }
}
