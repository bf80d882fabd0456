//! Seeded random numbers: the rules take a seed, never a generator of their own.

/// A small seeded generator (the SplitMix64 step of Steele, Lea and Flood, 2014).
///
/// The same seed gives the same numbers on every machine, so that two stores that decide about one task
/// decide alike, and a failing test can be repeated from the seed that it prints.
#[derive(Clone, Debug)]
pub struct Seed(u64);

impl Seed {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[allow(clippy::should_implement_trait, reason = "a generator that never ends needs no Option")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; zero when `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // The high half of a 128-bit product: the bias is negligible at 64 bits.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// True with a probability of `percent` in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
