//! Time and randomness, also for the queue layer, which reads neither by itself.

use std::time::{Instant, SystemTime};

use kvqueue_queue::{VersionHistory, from_millis, millis};
use uuid::Uuid;

/// The time of day, in whole milliseconds as records have it. Spans are measured with the monotonic clock instead.
pub(crate) fn now() -> SystemTime {
    from_millis(millis(SystemTime::now()))
}

/// An empty history of the database's versions, by this process's monotonic clock.
pub(crate) fn version_history() -> VersionHistory {
    let begun = Instant::now();
    VersionHistory::new(move || begun.elapsed())
}

/// A random number, not for secrets: the random half of a UUID, whose fixed bits are mixed in.
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
