//! Random numbers that can be had again.

use std::time::Duration;

/// Numbers from a seed (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    /// From `KVQUEUE_TEST_SEED`, or a new seed; printed, for a failing test to be repeated.
    pub(crate) fn new() -> Self {
        let seed = Self::seed();
        println!("KVQUEUE_TEST_SEED={seed}");
        Self(seed)
    }

    /// `KVQUEUE_TEST_SEED`, or a new seed.
    pub(crate) fn seed() -> u64 {
        let given = std::env::var("KVQUEUE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        given.unwrap_or_else(|| uuid::Uuid::now_v7().as_u64_pair().1)
    }

    /// From a seed.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// Numbers of its own for a concurrent task.
    pub(crate) fn branch(&mut self) -> Self {
        Self(self.below(u64::MAX))
    }

    /// With this chance in a thousand.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// One of these.
    pub(crate) fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// From `low` up to `high`.
    pub(crate) fn time_between(&mut self, low: Duration, high: Duration) -> Duration {
        low + self.time_below(high - low)
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    /// Shorter than `end`.
    pub(crate) fn time_below(&mut self, end: Duration) -> Duration {
        Duration::from_nanos(self.below(end.as_nanos() as u64))
    }
}
