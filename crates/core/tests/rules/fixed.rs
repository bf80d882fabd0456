//! Property tests with a fixed seed: a failing build fails again on the next machine.

use proptest::test_runner::{Config, RngSeed};

/// This many cases, always the same ones, with no files left behind.
pub(crate) fn cases(cases: u32) -> Config {
    Config { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(0x05_71_e2), ..Config::default() }
}
