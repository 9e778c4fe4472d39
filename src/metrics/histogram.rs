//! How long things take: counts in fixed buckets.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use super::cell::Sharded;

/// The upper bounds of the buckets, in microseconds; what takes longer than the last is counted in the total alone. From a transaction of an
/// embedded database to a minute's work.
pub(crate) const BOUNDS: [u64; 16] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// Durations, counted.
#[derive(Debug, Default)]
pub(crate) struct Histogram(Sharded<Part>);

#[derive(Debug, Default)]
struct Part {
    buckets: [AtomicU64; BOUNDS.len()],
    beyond: AtomicU64,
    nanos: AtomicU64,
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reading {
    /// For each of [`BOUNDS`], how many took so long or less.
    pub(crate) cumulative: [u64; BOUNDS.len()],
    /// How many there were.
    pub(crate) count: u64,
    /// How long they took together.
    pub(crate) sum: Duration,
}

impl Histogram {
    /// Something took so long.
    pub(crate) fn observe(&self, took: Duration) {
        let nanos = took.as_secs().saturating_mul(1_000_000_000).saturating_add(took.subsec_nanos().into());
        let bucket = BOUNDS.partition_point(|bound| bound * 1_000 < nanos);
        let part = self.0.own();
        part.buckets.get(bucket).unwrap_or(&part.beyond).fetch_add(1, Relaxed);
        part.nanos.fetch_add(nanos, Relaxed);
    }

    /// What was counted. While others count, the sum may be ahead of the count, or behind.
    pub(crate) fn read(&self) -> Reading {
        let sum = |cell: fn(&Part, usize) -> &AtomicU64, at| -> u64 {
            self.0.all().map(|part| cell(part, at).load(Relaxed)).sum()
        };
        let mut count = 0;
        let cumulative = std::array::from_fn(|bucket| {
            count += sum(|part, bucket| &part.buckets[bucket], bucket);
            count
        });
        Reading {
            cumulative,
            count: count + sum(|part, _| &part.beyond, 0),
            sum: Duration::from_nanos(sum(|part, _| &part.nanos, 0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::default();
        for micros in [0, 500, 501, 60_000_000, 60_000_001] {
            histogram.observe(Duration::from_micros(micros));
        }
        let reading = histogram.read();
        assert_eq!(reading.cumulative[..2], [2, 3]);
        assert_eq!(reading.cumulative[BOUNDS.len() - 1], 4);
        assert_eq!((reading.count, reading.sum), (5, Duration::from_micros(120_001_002)));
    }
}
