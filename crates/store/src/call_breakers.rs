//! Call breakers: named circuit breakers around calls that handlers make, shared by all processes. The rules are in
//! `ostler_core::Breaker`.

use ostler_core::{BreakerPolicy, BreakerState, CallResult, Timestamp};

use crate::bounds::check_name;
use crate::error::Error;
use crate::gates::{BreakerScope, BreakerSetting, check_breaker};

/// Breakers that a store remembers; beyond it, it forgets the one that changed least recently. A closed breaker that has counted
/// nothing is not remembered.
pub const MAX_CALL_BREAKERS: usize = 1_000;

/// What a caller wants of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerUse {
    /// Whether it may make a call.
    Ask,
    /// It has made a call that the breaker let pass.
    Report(CallResult),
}

/// A breaker that is not closed, or has counted something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallBreakerRecord {
    pub name: String,
    pub state: BreakerState,
    pub changed_at: Timestamp,
}

/// Rejects a name or a policy that no breaker can have.
///
/// # Errors
/// A sentence that names the field and its range.
pub fn check_call_breaker(name: &str, policy: BreakerPolicy) -> Result<(), Error> {
    check_name("breaker", name)?;
    check_breaker(&BreakerSetting { policy, scope: BreakerScope::Queue })
}
