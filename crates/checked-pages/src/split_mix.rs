//! A random generator for tests.

/// `SplitMix64`, by Sebastiano Vigna: a small generator with a full period. The same number gives the
/// same sequence in every version.
#[derive(Debug, Clone)]
pub struct SplitMix(pub u64);

impl SplitMix {
    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "an endless generator is no use as an iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of [0, 1).
    pub fn unit(&mut self) -> f64 {
        let high = u32::try_from(self.next() >> 32).expect("32 bits are left");
        f64::from(high) / (f64::from(u32::MAX) + 1.0)
    }
}
