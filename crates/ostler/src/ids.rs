//! Generates ids from the system clock and system randomness.

use std::sync::{Arc, Mutex, PoisonError};

use ostler_core::{Minter, Seed};
use ostler_runtime::Ids;
use ostler_store::{Clock, SystemClock};

/// Returns a generator of time-ordered ids. It is seeded once from the system's randomness.
///
/// # Errors
/// When the system provides no randomness.
pub fn ids() -> Result<Ids, getrandom::Error> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes)?;
    let (low, high) = (u128::from_le_bytes(bytes) as u64, (u128::from_le_bytes(bytes) >> 64) as u64);
    let made = Mutex::new((Minter::new(), Seed::new(low), Seed::new(high)));
    Ok(Arc::new(move || {
        let (minter, low, high) = &mut *made.lock().unwrap_or_else(PoisonError::into_inner);
        minter.mint(SystemClock.now(), u128::from(high.next()) << 64 | u128::from(low.next()))
    }))
}
