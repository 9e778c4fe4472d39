//! (q, counter): numbers, all written with the atomic ADD. Each [`Counter`] has a key of its own.

use crate::keys::append_bytes;

/// A counter of a queue.
///
/// There are two of what is ready and not one, so that only what makes items ready wakes idle consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    /// Items ever made ready: by a push, by being returned, by their time. Read by `len`, watched by idle consumers.
    Push,
    /// Items ever taken. Read by `len`.
    Pop,
    /// Items ever finished.
    Done,
    /// Items ever put aside for later. Watched by sweepers.
    Later,
    /// Items that were put aside and whose time has come. `nlater` less this many wait for theirs.
    Due,
    /// Items ever made ready or put aside again, by a worker, a sweeper or an operator. `npush` and `nlater` count them each time; so
    /// `npush + nlater - ndue - nback` is the number of items ever pushed.
    Back,
    /// Dead letters there are now.
    Dead,
    /// Items ever cancelled while they were running. Watched by holders of leases.
    Cancel,
}

impl Counter {
    /// All counters.
    pub(crate) const ALL: [Counter; 8] = [
        Counter::Push,
        Counter::Pop,
        Counter::Done,
        Counter::Later,
        Counter::Due,
        Counter::Back,
        Counter::Dead,
        Counter::Cancel,
    ];

    /// The counters that a migration compares, in the order of their keys: all but `nback`, which changes only with another and which a
    /// migration copies as a row, and `ncancel`.
    pub(crate) const COMPARED: [Counter; 6] =
        [Counter::Dead, Counter::Done, Counter::Due, Counter::Later, Counter::Pop, Counter::Push];

    /// Second element of its key.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Counter::Push => "npush",
            Counter::Pop => "npop",
            Counter::Done => "ndone",
            Counter::Later => "nlater",
            Counter::Due => "ndue",
            Counter::Back => "nback",
            Counter::Dead => "ndead",
            Counter::Cancel => "ncancel",
        }
    }

    /// Its key in the queue whose packed (q) this is.
    pub(crate) fn key(self, queue: &[u8]) -> Vec<u8> {
        let mut key = queue.to_vec();
        append_bytes(&mut key, self.name().as_bytes());
        key
    }
}

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
    use crate::testing::listed_in_keyspace;

    #[test]
    fn the_page_lists_the_counters_in_their_order() {
        assert_eq!(listed_in_keyspace("Counters"), Counter::ALL.map(Counter::name));
    }

    #[test]
    fn each_counter_has_a_place_of_its_own_and_the_compared_ones_are_in_the_order_of_their_keys() {
        for (at, counter) in Counter::ALL.into_iter().enumerate() {
            assert_eq!(counter as usize, at);
        }
        assert!(Counter::COMPARED.is_sorted_by_key(|counter| counter.name()));
    }

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
