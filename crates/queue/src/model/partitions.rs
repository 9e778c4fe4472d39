//! Partitions: one queue in several key ranges, so that fetches of several processes do not want the same items.

use std::time::Duration;

/// The most partitions of a queue. A fetch reads the first key of each now and then.
pub const MAX_PARTITIONS: u8 = 64;

/// How a queue is divided, and how strictly its order is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partitions {
    pub(crate) count: u8,
    pub(crate) max_disorder: Duration,
}

/// A queue cannot have so many partitions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a queue can have 1 to {MAX_PARTITIONS} partitions, not {count}")]
pub struct PartitionsError {
    count: usize,
}

impl Partitions {
    /// This many partitions. A fetched item is at most `max_disorder` younger than the oldest ready item; with a `max_disorder` of zero,
    /// items are fetched in the order of their pushes.
    ///
    /// # Errors
    /// If there cannot be as many, or are none.
    pub fn new(count: usize, max_disorder: Duration) -> Result<Partitions, PartitionsError> {
        let possible = u8::try_from(count).ok().filter(|count| (1..=MAX_PARTITIONS).contains(count));
        Ok(Partitions { count: possible.ok_or(PartitionsError { count })?, max_disorder })
    }

    /// How many partitions pushes use.
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// How much younger than the oldest ready item a fetched item may be.
    pub fn max_disorder(&self) -> Duration {
        self.max_disorder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_partitions_is_bounded() {
        for count in [0, 65, 256, 257, usize::MAX] {
            assert_eq!(Partitions::new(count, Duration::ZERO), Err(PartitionsError { count }));
        }
        assert_eq!(Partitions::new(64, Duration::ZERO).unwrap().count(), 64);
    }
}
