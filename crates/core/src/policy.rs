//! What a task may use: how often it may fail, how long it may take. A value given with the task wins over
//! the queue's, and that over the default.

use std::time::Duration;

use crate::retry::{Backoff, Jitter, RetryPolicy};

/// The rules that hold for one attempt, all filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// When and how often to try again.
    pub retry: RetryPolicy,
    /// At this many crashes the task is put in quarantine.
    pub max_crashes: u32,
    /// At this many deaths of its node the task is put in quarantine.
    pub max_node_deaths: u32,
    /// How long one attempt may take.
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

/// What was said about a task, or about all tasks of a queue. What is left out comes from further up.
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
    /// Nothing said.
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

    /// Whether nothing was said.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// The rules that hold: these, then `queue`'s, then the defaults.
    #[must_use]
    pub fn resolve(&self, queue: &Self) -> Policy {
        let default = Policy::default();
        let retry = RetryPolicy {
            attempts: self.attempts.or(queue.attempts).unwrap_or(default.retry.attempts),
            backoff: self.backoff.or(queue.backoff).unwrap_or(default.retry.backoff),
            base: self.base.or(queue.base).unwrap_or(default.retry.base),
            max: self.max.or(queue.max).unwrap_or(default.retry.max),
            jitter: self.jitter.or(queue.jitter).unwrap_or(default.retry.jitter),
        };
        Policy {
            retry,
            max_crashes: self.max_crashes.or(queue.max_crashes).unwrap_or(default.max_crashes),
            max_node_deaths: self
                .max_node_deaths
                .or(queue.max_node_deaths)
                .unwrap_or(default.max_node_deaths),
            timeout: self.timeout.or(queue.timeout).unwrap_or(default.timeout),
        }
    }
}
