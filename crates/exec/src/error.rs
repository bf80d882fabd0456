//! `TaskError`: the error of a Rust handler.

use std::time::Duration;

use ostler_core::{ErrorClass, Failure};

use crate::classify::class_of;
use crate::contract::{AttemptResult, ClassSource};

/// An error of a handler, with the class that decides what follows.
///
/// Any error converts with `?`. System errors have a class: a missing file is permanent, a timeout is a
/// timeout. All others are *transient*, the class of an unclassified error, unless the pool assumes another;
/// implement [`Classed`](crate::Classed) to give an error its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskError {
    /// Boxed, so that the `Result` of a handler is small.
    failure: Box<Failure>,
    pub(crate) classing: ClassSource,
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

    /// Part of the work is done; this step failed.
    #[must_use]
    pub fn partial(step: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of(ErrorClass::Partial, message).in_step(step)
    }

    /// Too many requests: do not retry before this has passed.
    #[must_use]
    pub fn rate_limited(retry_after: Duration, message: impl Into<String>) -> Self {
        Self::of(ErrorClass::RateLimited, message).retry_after(retry_after)
    }

    /// The allowance of the account is used up: nothing that uses it starts before this has passed, in any queue.
    #[must_use]
    pub fn usage_limit(resets_in: Duration, message: impl Into<String>) -> Self {
        Self::of(ErrorClass::UsageLimit, message).retry_after(resets_in)
    }

    /// Nothing in this queue can work now: bad credentials, no quota.
    #[must_use]
    pub fn queue_stop(message: impl Into<String>) -> Self {
        Self::of(ErrorClass::QueueStop, message)
    }

    /// Do not retry before this has passed.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.failure.retry_after = Some(wait);
        self
    }

    /// A suggestion that might help.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.failure.hint = Some(hint.into());
        self
    }

    /// Details for debugging.
    #[must_use]
    pub fn details(mut self, details: impl Into<String>) -> Self {
        self.failure.details = Some(details.into());
        self
    }

    /// The class that decides what follows.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        self.failure.class
    }

    /// The message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.failure.message
    }

    /// The same with another message; the former one is a detail.
    #[cfg(feature = "anyhow")]
    pub(crate) fn with_message(mut self, message: String) -> Self {
        if message != self.failure.message {
            let cause = std::mem::replace(&mut self.failure.message, message);
            let details = self.failure.details.take().unwrap_or_default();
            self.failure.details = Some(format!("caused by: {cause}\n{details}"));
        }
        self
    }

    pub(crate) fn of(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { failure: Box::new(Failure::new(class, message)), classing: ClassSource::Given }
    }

    /// The same, but nothing says that this is its class.
    pub(crate) fn assumed(self) -> Self {
        Self { classing: ClassSource::Assumed, ..self }
    }

    /// An error with its causes.
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

    /// Sets the step, unless one is set.
    #[must_use]
    pub(crate) fn in_step(mut self, step: impl Into<String>) -> Self {
        self.failure.step.get_or_insert_with(|| step.into());
        self
    }

    /// An error that another part of the program has classed.
    #[must_use]
    pub fn from_failure(failure: Failure) -> Self {
        Self { failure: Box::new(failure), classing: ClassSource::Given }
    }

    /// The failure that the rules decide on.
    #[must_use]
    pub fn into_failure(self) -> Failure {
        *self.failure
    }

    /// The error as the result of an attempt.
    pub(crate) fn into_end(self) -> AttemptResult {
        AttemptResult { classing: self.classing, ..AttemptResult::failed(*self.failure) }
    }
}

impl<E: std::error::Error + 'static> From<E> for TaskError {
    fn from(error: E) -> Self {
        match class_of(&error) {
            Some(class) => Self::with_causes(class, &error),
            None => Self::with_causes(ErrorClass::Transient, &error).assumed(),
        }
    }
}
