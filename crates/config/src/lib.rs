//! Reading of the config file, and the contract of a pool kind.
//!
//! - [`Section`]: a table of the file, read key by key. Every fault is collected with its line; unknown keys are refused.
//! - [`duration`], [`size`] and [`money`]: values with units. `${NAME}` in strings is an environment variable.
//! - [`PoolKind`]: reads the keys of one `executor = "…"`. [`PoolSpec`]: what it has read, and how it becomes an executor.
//! - [`LeftoverKeeper`]: what executors keep on disk until tasks are pruned, mostly in the user's [`state_folder`].
//!
//! A crate with an executor depends on this one, so that it reads its own keys; the program only lists the kinds.

pub mod duration;
mod expand;
mod fault;
mod leftovers;
pub mod money;
mod pool_kind;
mod section;
pub mod size;
mod state_folder;

pub use expand::ExpandError;
pub use fault::{ConfigError, ConfigErrors, ConfigFault};
pub use leftovers::{Leftover, LeftoverKeeper, StoreMark, WhyKept};
pub use ostler_core::nearest;
pub use ostler_exec::Resources;
pub use pool_kind::{
    BuildContext, BuildError, ClaimAhead, ClaimRoom, FindingLevel, PoolCommon, PoolDefaults, PoolFinding,
    PoolKind, PoolSpec, SpecObject, TakesPrompts, TaskBudgets, WritablePath,
};
pub use section::{ConfigReader, FoundValue, SecretValues, Section};
pub use state_folder::state_folder;

/// This many cases, always the same ones, with no files left behind.
#[cfg(test)]
fn cases(cases: u32) -> proptest::test_runner::Config {
    let rng_seed = proptest::test_runner::RngSeed::Fixed(0x05_71_e2);
    proptest::test_runner::Config { cases, failure_persistence: None, rng_seed, ..Default::default() }
}
