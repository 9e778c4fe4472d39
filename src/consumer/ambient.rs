//! The clock on the wall and chance, as the daemon hands them to the queue layer, which has neither.

use std::time::{SystemTime, UNIX_EPOCH};

use kvqueue_queue::Millis;
use uuid::Uuid;

/// Milliseconds since 1970, for what is to happen at a time of day. Spans are measured with the monotonic clock.
pub(crate) fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}

/// A random number: for spreading, not for secrets. The last half of a UUID is random but for a few bits, which are mixed in.
pub(crate) fn random() -> u64 {
    let z = Uuid::now_v7().as_u64_pair().1;
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_of_random_numbers_vary() {
        let numbers: Vec<u64> = (0..100).map(|_| random()).collect();
        for half in [0, 32] {
            let high = numbers.iter().filter(|number| (*number >> half) & 0x8000_0000 != 0).count();
            assert!((20..80).contains(&high), "{high} of 100");
        }
    }
}
