//! Task policy: retries, timeouts and quarantine limits. A value set on the task overrides that of its kind, which overrides
//! the queue's, which overrides the default.

use std::time::Duration;

use crate::retry::{Backoff, Jitter, RetryPolicy};

/// The resolved policy of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// When and how often to retry.
    pub retry: RetryPolicy,
    /// At this many crashes the task is quarantined.
    pub max_crashes: u32,
    /// At this many deaths of its node the task is quarantined.
    pub max_node_deaths: u32,
    /// The timeout of one attempt.
    pub timeout: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            retry: RetryPolicy::default(),
            max_crashes: 3,
            max_node_deaths: 10,
            timeout: Duration::from_secs(300),
        }
    }
}

/// Policy values set on a task, a kind or a queue. A value that is `None` is inherited from the next level up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Overrides {
    /// See [`RetryPolicy::attempts`].
    pub attempts: Option<u32>,
    /// See [`RetryPolicy::backoff`].
    pub backoff: Option<Backoff>,
    /// See [`RetryPolicy::base`].
    pub base: Option<Duration>,
    /// See [`RetryPolicy::max`].
    pub max: Option<Duration>,
    /// See [`RetryPolicy::jitter`].
    pub jitter: Option<Jitter>,
    /// See [`Policy::max_crashes`].
    pub max_crashes: Option<u32>,
    /// See [`Policy::max_node_deaths`].
    pub max_node_deaths: Option<u32>,
    /// See [`Policy::timeout`].
    pub timeout: Option<Duration>,
}

impl Overrides {
    /// Nothing set.
    pub const NONE: Self = Self {
        attempts: None,
        backoff: None,
        base: None,
        max: None,
        jitter: None,
        max_crashes: None,
        max_node_deaths: None,
        timeout: None,
    };

    /// Whether nothing is set.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// These values, with missing ones taken from the next level up, `further`.
    #[must_use]
    pub fn or(&self, further: &Self) -> Self {
        Self {
            attempts: self.attempts.or(further.attempts),
            backoff: self.backoff.or(further.backoff),
            base: self.base.or(further.base),
            max: self.max.or(further.max),
            jitter: self.jitter.or(further.jitter),
            max_crashes: self.max_crashes.or(further.max_crashes),
            max_node_deaths: self.max_node_deaths.or(further.max_node_deaths),
            timeout: self.timeout.or(further.timeout),
        }
    }

    /// The resolved policy: these values, then those of `further`, then the defaults.
    #[must_use]
    pub fn resolve(&self, further: &Self) -> Policy {
        let (said, default) = (self.or(further), Policy::default());
        let retry = RetryPolicy {
            attempts: said.attempts.unwrap_or(default.retry.attempts),
            backoff: said.backoff.unwrap_or(default.retry.backoff),
            base: said.base.unwrap_or(default.retry.base),
            max: said.max.unwrap_or(default.retry.max),
            jitter: said.jitter.unwrap_or(default.retry.jitter),
        };
        Policy {
            retry,
            max_crashes: said.max_crashes.unwrap_or(default.max_crashes),
            max_node_deaths: said.max_node_deaths.unwrap_or(default.max_node_deaths),
            timeout: said.timeout.unwrap_or(default.timeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_nearer_to_the_task_wins_and_what_is_left_out_comes_from_further_up() {
        let attempts = |attempts| Overrides { attempts: Some(attempts), ..Overrides::NONE };
        let slow = Overrides { timeout: Some(Duration::from_secs(9)), ..attempts(3) };
        let (task, kind, queue) = (attempts(1), slow, attempts(5));
        let policy = task.resolve(&kind.or(&queue));
        assert_eq!((policy.retry.attempts, policy.timeout), (1, Duration::from_secs(9)));
        assert_eq!(Overrides::NONE.resolve(&kind.or(&queue)).retry.attempts, 3);
        assert_eq!(Overrides::NONE.resolve(&Overrides::NONE.or(&queue)).retry.attempts, 5);
        assert_eq!(Overrides::NONE.resolve(&Overrides::NONE), Policy::default());
    }
}
