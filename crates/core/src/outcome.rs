//! Outcomes of attempts and error classes. Every way to finish (success, error, panic, crash, timeout, cancellation, hand-back,
//! death of the node) becomes one [`Outcome`] and takes the one path through [`decide`](crate::decide()).

use std::time::Duration;

/// The class of a failure, on which the rules decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorClass {
    /// May work next time. The default class of an unclassified error.
    Transient,
    /// Part of the work is done and its steps are saved; the rest may work next time.
    Partial,
    /// The attempt exceeded its timeout.
    Timeout,
    /// The attempt was alive but made no progress.
    Stuck,
    /// Will never work: invalid input, not found, forbidden.
    Permanent,
    /// Too many requests: wait until the given time.
    RateLimited,
    /// The allowance of the account is used up: wait until it resets.
    UsageLimit,
    /// Nothing in this queue can work now: bad credentials, no quota.
    QueueStop,
    /// The worker died while running the task: a signal, an abort, out of memory.
    Crash,
    /// The budget is spent.
    Budget,
}

impl ErrorClass {
    /// Every class, in the order of the table in the guide.
    pub const ALL: [Self; 10] = [
        Self::Transient,
        Self::Partial,
        Self::Timeout,
        Self::Stuck,
        Self::Permanent,
        Self::RateLimited,
        Self::UsageLimit,
        Self::QueueStop,
        Self::Crash,
        Self::Budget,
    ];

    /// The name that users see and stores persist.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Partial => "partial",
            Self::Timeout => "timeout",
            Self::Stuck => "stuck",
            Self::Permanent => "permanent",
            Self::RateLimited => "rate_limited",
            Self::UsageLimit => "usage_limit",
            Self::QueueStop => "queue_stop",
            Self::Crash => "crash",
            Self::Budget => "budget",
        }
    }

    /// The class with this name. `lane_stop`, an earlier name of [`QueueStop`](Self::QueueStop), is still accepted.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let name = if name == "lane_stop" { "queue_stop" } else { name };
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    /// Whether it counts against the attempts of a task. With the other classes the task is not to blame: it waits.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        match self {
            Self::Transient | Self::Partial | Self::Timeout | Self::Stuck | Self::Permanent | Self::Crash => {
                true
            }
            Self::RateLimited | Self::UsageLimit | Self::QueueStop | Self::Budget => false,
        }
    }
}

/// The class of an HTTP status.
#[must_use]
pub fn class_of_status(status: u16, retry_after: Option<Duration>) -> ErrorClass {
    match status {
        401 | 402 => ErrorClass::QueueStop,
        429 => ErrorClass::RateLimited,
        503 if retry_after.is_some() => ErrorClass::RateLimited,
        408 | 504 => ErrorClass::Timeout,
        // A conflict, a lock, or too early: it may work next time.
        409 | 423 | 425 => ErrorClass::Transient,
        400..=499 => ErrorClass::Permanent,
        _ => ErrorClass::Transient,
    }
}

/// One failure, as recorded with its attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The class, on which the rules decide.
    pub class: ErrorClass,
    /// One sentence for users.
    pub message: String,
    /// Details for debugging: a stack trace, a response body, the tail of stderr.
    pub details: Option<String>,
    /// The step that failed.
    pub step: Option<String>,
    /// A suggestion that might help.
    pub hint: Option<String>,
    /// Do not retry before this has passed. Wins over the backoff when longer.
    pub retry_after: Option<Duration>,
    /// The exit code of the command, if it exited by itself with a code.
    pub exit_code: Option<u8>,
}

impl Failure {
    /// A failure of this class with only a message.
    #[must_use]
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            details: None,
            step: None,
            hint: None,
            retry_after: None,
            exit_code: None,
        }
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Success,
    /// The attempt failed; the class decides what follows.
    Failed(Failure),
    /// The node that held the lease died.
    NodeDied,
    /// The node handed the task back unfinished: drain, resize, scale-down.
    HandedBack,
    /// The worker stopped because a cancellation was requested.
    Cancelled,
}

impl Outcome {
    /// The ending, as recorded with an attempt.
    #[must_use]
    pub const fn ending(&self) -> Ending {
        match self {
            Self::Success => Ending::Success,
            Self::Failed(failure) => Ending::Failed(failure.class),
            Self::NodeDied => Ending::NodeDied,
            Self::HandedBack => Ending::HandedBack,
            Self::Cancelled => Ending::Cancelled,
        }
    }

    /// The failure, if it was one.
    #[must_use]
    pub const fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) => Some(failure),
            Self::Success | Self::NodeDied | Self::HandedBack | Self::Cancelled => None,
        }
    }
}

/// The kind of an [`Outcome`], without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    Success,
    Failed(ErrorClass),
    NodeDied,
    HandedBack,
    Cancelled,
}

impl Ending {
    /// The name that users see and stores persist.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failed(class) => class.name(),
            Self::NodeDied => "node_died",
            Self::HandedBack => "handed_back",
            Self::Cancelled => "cancelled",
        }
    }

    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "success" => Some(Self::Success),
            "node_died" => Some(Self::NodeDied),
            "handed_back" => Some(Self::HandedBack),
            "cancelled" => Some(Self::Cancelled),
            class => ErrorClass::named(class).map(Self::Failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorClass;

    #[test]
    fn every_class_is_found_by_its_name_and_an_earlier_name_is_still_read() {
        for class in ErrorClass::ALL {
            assert_eq!(ErrorClass::named(class.name()), Some(class));
        }
        assert_eq!(ErrorClass::named("lane_stop"), Some(ErrorClass::QueueStop));
        assert_eq!(ErrorClass::named("stop"), None);
    }
}
