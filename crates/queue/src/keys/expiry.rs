//! (q, "expiry", time, id): an item that expires at a time, in milliseconds since 1970, if no attempt has begun by then. The value is empty.
//!
//! Written by the push of an item that has an expiry, and by whatever returns such an item that nobody has begun with. Removed when the
//! item ends, or by the sweeper when the time has come. A fetch leaves it, so that it costs a fetch nothing. So there may be a row
//! of an item that is running or was tried before: the sweeper passes that over.

use crate::id::ItemId;
use crate::keys::later;
use crate::keys::range;
use crate::meta::Millis;

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
