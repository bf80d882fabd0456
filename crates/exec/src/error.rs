//! What a Rust handler fails with.

use std::time::Duration;

use ostler_core::{ErrorClass, Failure};

use crate::classing::class_of;

/// An error of a handler, with the class that says what follows.
///
/// Any error becomes one with `?`. Those of the system have their class: a file that is not there is permanent, a time-out is a
/// time-out. All others are *transient*, the class of an error that nobody classed; [`Classed`](crate::Classed) says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskError(Failure);

impl TaskError {
    /// May work next time.
    #[must_use]
    pub fn transient(message: impl Into<String>) -> Self {
        Self(Failure::new(ErrorClass::Transient, message))
    }

    /// Will never work.
    #[must_use]
    pub fn permanent(message: impl Into<String>) -> Self {
        Self(Failure::new(ErrorClass::Permanent, message))
    }

    /// Part of it is done; this step failed.
    #[must_use]
    pub fn partial(step: impl Into<String>, message: impl Into<String>) -> Self {
        Self(Failure { step: Some(step.into()), ..Failure::new(ErrorClass::Partial, message) })
    }

    /// Too many requests: not before this has passed.
    #[must_use]
    pub fn rate_limited(retry_after: Duration, message: impl Into<String>) -> Self {
        Self(Failure { retry_after: Some(retry_after), ..Failure::new(ErrorClass::RateLimited, message) })
    }

    /// Nothing in this lane can work now: bad credentials, no quota.
    #[must_use]
    pub fn lane_stop(message: impl Into<String>) -> Self {
        Self(Failure::new(ErrorClass::LaneStop, message))
    }

    /// Not before this has passed.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.0.retry_after = Some(wait);
        self
    }

    /// What might help.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// More for whoever looks closer.
    #[must_use]
    pub fn details(mut self, details: impl Into<String>) -> Self {
        self.0.details = Some(details.into());
        self
    }

    pub(crate) fn of(class: ErrorClass, message: impl Into<String>) -> Self {
        Self(Failure::new(class, message))
    }

    /// An error with what caused it.
    pub(crate) fn with_causes(class: ErrorClass, error: &dyn std::error::Error) -> Self {
        let mut details = String::new();
        let mut cause = error.source();
        while let Some(error) = cause {
            details.push_str(&format!("caused by: {error}\n"));
            cause = error.source();
        }
        let failure = Failure::new(class, error.to_string());
        Self(Failure { details: (!details.is_empty()).then_some(details), ..failure })
    }

    /// In this step, unless it says so itself.
    #[must_use]
    pub(crate) fn in_step(mut self, step: &str) -> Self {
        self.0.step.get_or_insert_with(|| step.to_owned());
        self
    }

    /// As the rules see it.
    #[must_use]
    pub fn into_failure(self) -> Failure {
        self.0
    }
}

impl<E: std::error::Error + 'static> From<E> for TaskError {
    fn from(error: E) -> Self {
        Self::with_causes(class_of(&error), &error)
    }
}
