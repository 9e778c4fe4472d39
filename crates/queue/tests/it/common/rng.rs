//! Reproducible randomness.

/// SplitMix64: small, and good enough to choose what a test does next.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// The seeds to test with: `KVQUEUE_TEST_SEED` alone, or as many as `KVQUEUE_TEST_SEEDS` says, or `count`. An eighth of `count` on a
/// cluster, where a commit takes milliseconds.
pub(crate) fn seeds(count: u64) -> std::ops::Range<u64> {
    let variable = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name} is {text:?}, not a number")))
    };
    match variable("KVQUEUE_TEST_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let is_cluster = std::env::var_os("KVQUEUE_TEST_CLUSTER_FILE").is_some();
            let count = if is_cluster { count.div_ceil(8) } else { count };
            0..variable("KVQUEUE_TEST_SEEDS").unwrap_or(count)
        }
    }
}
