//! The counters: (q, "npush"), (q, "npop"), (q, "ndone"), (q, "nlater"), (q, "ndue"), (q, "nback"),
//! (q, "ndead"), (q, "ncancel"). All are written with the atomic ADD.
//!
//! A watch on `npush` wakes idle consumers; that is why there are two counters of what is ready and not one. A watch on
//! `nlater` wakes sweepers, and one on `ncancel` the holders of leases.

/// Items ever made ready: by a push, by being returned, by their time. Read by `len`.
pub(crate) const NPUSH: &[u8] = b"npush";
/// Items ever taken. Read by `len`.
pub(crate) const NPOP: &[u8] = b"npop";
/// Items ever finished.
pub(crate) const NDONE: &[u8] = b"ndone";
/// Items ever put aside for later.
pub(crate) const NLATER: &[u8] = b"nlater";
/// Items that were put aside and whose time has come. `nlater` less this many wait for theirs.
pub(crate) const NDUE: &[u8] = b"ndue";
/// Items ever made ready or put aside again, by a worker, a sweeper or an operator. `npush` and `nlater` count them each time; so
/// `npush + nlater - ndue - nback` is the number of items ever pushed.
pub(crate) const NBACK: &[u8] = b"nback";
/// Dead letters there are now.
pub(crate) const NDEAD: &[u8] = b"ndead";
/// Items ever cancelled while they were running. Watched by holders of leases.
pub(crate) const NCANCEL: &[u8] = b"ncancel";

/// The operand that adds `n` to a counter.
pub(crate) fn increment(n: usize) -> [u8; 8] {
    (n as u64).to_le_bytes()
}

/// The value of a counter, modulo 2^64; absent means 0.
///
/// The Erlang program reads little-endian numbers of any length, so any length is read here. ADD keeps a
/// counter at the operand's 8 bytes, modulo 2^64, so higher bytes cannot come from counting.
pub(crate) fn decode(value: Option<&[u8]>) -> u64 {
    let value = value.unwrap_or_default();
    value.iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The number of items between the counters: negative only if something else wrote to them.
pub(crate) fn difference(npush: u64, npop: u64) -> i64 {
    // Both wrap at 2^64, so the wrapped difference is right across the wrap.
    npush.wrapping_sub(npop).cast_signed()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn counter_operand_is_eight_bytes_little_endian() {
        // As erlfdb encodes the integer 1 for an atomic operation.
        assert_eq!(increment(1), [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(increment(0x0102), [2, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn counters_of_any_length_are_read() {
        assert_eq!(decode(None), 0);
        assert_eq!(decode(Some(&[])), 0);
        assert_eq!(decode(Some(&[7])), 7);
        assert_eq!(decode(Some(&[0, 1])), 256);
        assert_eq!(decode(Some(&[5, 0, 0, 0, 0, 0, 0, 0, 0, 0])), 5);
    }

    #[test]
    fn counter_difference_is_right_after_a_wrap() {
        assert_eq!(difference(3, 1), 2);
        assert_eq!(difference(1, u64::MAX), 2);
        assert_eq!(difference(0, 1), -1);
    }

    proptest! {
        #[test]
        fn counts_round_trip(n: u32) {
            prop_assert_eq!(decode(Some(&increment(n as usize))), u64::from(n));
        }
    }
}
