//! Ids from this machine's clock and chance.

use anyhow::Context as _;
use ostler_core::{Id, Minter};
use ostler_store::{Clock, SystemClock};

/// Makes ids.
#[derive(Default)]
pub(crate) struct Ids(Minter);

impl Ids {
    pub(crate) fn next(&mut self) -> anyhow::Result<Id> {
        let mut chance = [0u8; 16];
        getrandom::fill(&mut chance).context("no randomness from the system")?;
        Ok(self.0.mint(SystemClock.now(), u128::from_le_bytes(chance)))
    }
}
