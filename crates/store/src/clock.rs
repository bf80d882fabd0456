//! Where a store gets the time from. Everything that needs `now` is handed a [`Clock`]; nothing else reads one.

use std::time::{Duration, SystemTime};

use ostler_core::{Timestamp, millis};

/// The time, as one store sees it.
pub trait Clock: Send + Sync {
    /// The wall clock: for moments that are kept and shown. May step.
    fn now(&self) -> Timestamp;

    /// Time since some fixed point that all processes of this machine share: for leases. Never steps, and
    /// goes on while the program is stopped.
    fn uptime(&self) -> Duration;
}

/// The clock of this machine. Only the edges of the system make one: the program and the library.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one place where the wall clock is read")]
    fn now(&self) -> Timestamp {
        // A clock before 1970 reads as 1970: ids and ranks need no negative time.
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(millis(since_1970))
    }

    fn uptime(&self) -> Duration {
        monotonic()
    }
}

/// `CLOCK_MONOTONIC`, which all processes of one boot share. `Instant` hides its reading, so the distance to
/// a first reading in each process would not compare.
fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}
