//! Clock: the store's source of time. All code that needs `now` gets a [`Clock`]; nothing else reads the system clock.

use std::time::{Duration, SystemTime};

use ostler_core::{Timestamp, millis};

/// The time as seen by one store.
pub trait Clock: Send + Sync {
    /// The wall clock, for timestamps that are stored and shown. May step.
    fn now(&self) -> Timestamp;

    /// Time since a fixed point that all processes of this machine share, for leases. Never steps, and
    /// advances while the program is stopped.
    fn uptime(&self) -> Duration;
}

/// The clock of this machine. Only the program and the library create one.
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

/// `CLOCK_MONOTONIC`, which all processes of one boot share. `Instant` hides its reading, so durations since
/// a first reading in each process would not be comparable.
fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}
