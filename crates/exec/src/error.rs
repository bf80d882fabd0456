//! What a Rust handler fails with.

use std::time::Duration;

use ostler_core::{ErrorClass, Failure};

use crate::classify::class_of;
use crate::contract::{AttemptResult, ClassSource};

/// An error of a handler, with the class that says what follows.
///
/// Any error becomes one with `?`. Those of the system have their class: a file that is not there is permanent, a time-out is a
/// time-out. All others are *transient*, the class of an error that nobody classed, unless the pool assumes otherwise;
/// [`Classed`](crate::Classed) gives an error its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskError {
    /// Apart, so that a result of a handler is small.
    failure: Box<Failure>,
    classing: ClassSource,
}

impl TaskError {
    /// May work next time.
    #[must_use]
    pub fn transient(message: impl Into<String>) -> Self {
        Self::of(ErrorClass::Transient, message)
    }

    /// Will never work.
    #[must_use]
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::of(ErrorClass::Permanent, message)
    }

    /// Part of it is done; this step failed.
    #[must_use]
    pub fn partial(step: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of(ErrorClass::Partial, message).in_step(step)
    }

    /// Too many requests: not before this has passed.
    #[must_use]
    pub fn rate_limited(retry_after: Duration, message: impl Into<String>) -> Self {
        Self::of(ErrorClass::RateLimited, message).retry_after(retry_after)
    }

    /// Nothing in this lane can work now: bad credentials, no quota.
    #[must_use]
    pub fn queue_stop(message: impl Into<String>) -> Self {
        Self::of(ErrorClass::QueueStop, message)
    }

    /// Not before this has passed.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.failure.retry_after = Some(wait);
        self
    }

    /// What might help.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.failure.hint = Some(hint.into());
        self
    }

    /// More for whoever looks closer.
    #[must_use]
    pub fn details(mut self, details: impl Into<String>) -> Self {
        self.failure.details = Some(details.into());
        self
    }

    pub(crate) fn of(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { failure: Box::new(Failure::new(class, message)), classing: ClassSource::Given }
    }

    /// An error with what caused it.
    pub(crate) fn with_causes(class: ErrorClass, error: &dyn std::error::Error) -> Self {
        let mut details = String::new();
        let mut cause = error.source();
        while let Some(error) = cause {
            details.push_str(&format!("caused by: {error}\n"));
            cause = error.source();
        }
        let failed = Self::of(class, error.to_string());
        if details.is_empty() { failed } else { failed.details(details) }
    }

    /// In this step, unless it says so itself.
    #[must_use]
    pub(crate) fn in_step(mut self, step: impl Into<String>) -> Self {
        self.failure.step.get_or_insert_with(|| step.into());
        self
    }

    /// As the rules see it.
    #[must_use]
    pub fn into_failure(self) -> Failure {
        *self.failure
    }

    /// As the end of an attempt.
    pub(crate) fn into_end(self) -> AttemptResult {
        AttemptResult { classing: self.classing, ..AttemptResult::failed(*self.failure) }
    }
}

impl<E: std::error::Error + 'static> From<E> for TaskError {
    fn from(error: E) -> Self {
        match class_of(&error) {
            Some(class) => Self::with_causes(class, &error),
            None => {
                Self { classing: ClassSource::Assumed, ..Self::with_causes(ErrorClass::Transient, &error) }
            }
        }
    }
}
