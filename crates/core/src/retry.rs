//! Retry policy: attempts, backoff and jitter.

use std::time::Duration;

use crate::seed::Seed;

/// How the delay grows with each failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backoff {
    /// Always the base.
    Fixed,
    /// The base times the number of failures.
    Linear,
    /// The base, doubled with each failure.
    Exponential,
}

impl Backoff {
    /// Every shape.
    pub const ALL: [Self; 3] = [Self::Fixed, Self::Linear, Self::Exponential];

    /// The name in the config.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Linear => "linear",
            Self::Exponential => "exponential",
        }
    }

    /// The shape with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shape| shape.name() == name)
    }
}

/// Whether delays are spread, so that a thousand tasks that failed together do not retry together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// Exactly the backoff.
    Off,
    /// Between half the backoff and all of it.
    Half,
}

/// When and how often a failed task is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The maximum number of failed attempts, at least one.
    pub attempts: u32,
    pub backoff: Backoff,
    /// The delay after the first failure.
    pub base: Duration,
    /// The maximum delay.
    pub max: Duration,
    pub jitter: Jitter,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 4,
            backoff: Backoff::Exponential,
            base: Duration::from_secs(1),
            max: Duration::from_secs(300),
            jitter: Jitter::Half,
        }
    }
}

impl RetryPolicy {
    /// The delay after the `failures`-th failure, counted from one. The seed decides where in the jitter's
    /// range it falls: the same seed gives the same delay.
    #[must_use]
    pub fn delay(&self, failures: u32, seed: u64) -> Duration {
        let failures = failures.max(1);
        let grown = match self.backoff {
            Backoff::Fixed => self.base,
            Backoff::Linear => self.base.saturating_mul(failures),
            // Stops at 31 doublings: of a millisecond that is 25 days, and a longer shift would overflow.
            Backoff::Exponential => self.base.saturating_mul(1u32 << (failures - 1).min(31)),
        };
        let capped = grown.min(self.max);
        match self.jitter {
            Jitter::Off => capped,
            Jitter::Half => {
                let millis = u64::try_from(capped.as_millis()).unwrap_or(u64::MAX);
                let half = millis / 2;
                Duration::from_millis(millis - half + Seed::new(seed).below(half.saturating_add(1)))
            }
        }
    }
}
