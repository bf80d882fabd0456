//! `anyhow`: errors of handlers that return `anyhow::Result` (a feature).

use std::fmt;

use ostler_core::ErrorClass;

use crate::classify::class_of;
use crate::error::TaskError;

/// A [`TaskError`] inside an `anyhow::Error`. It is no `std::error::Error` itself: all of those convert into it.
#[derive(Debug)]
struct Wrapped(TaskError);

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.message())
    }
}

impl std::error::Error for Wrapped {}

impl From<TaskError> for anyhow::Error {
    fn from(error: TaskError) -> Self {
        Self::new(Wrapped(error))
    }
}

impl TaskError {
    /// An error of `anyhow`, with its causes as details. If it was made from a `TaskError`, it keeps that one's class, retry time,
    /// step and hint; if from a system error, it has the class of that error.
    #[must_use]
    #[allow(clippy::needless_pass_by_value, reason = "it maps the error of a result")]
    pub fn from_anyhow(error: anyhow::Error) -> Self {
        if let Some(Wrapped(inner)) = error.downcast_ref::<Wrapped>() {
            return inner.clone().with_message(error.to_string());
        }
        match error.chain().find_map(class_of) {
            Some(class) => Self::with_causes(class, error.as_ref()),
            None => Self::with_causes(ErrorClass::Transient, error.as_ref()).assumed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyhow::Context as _;

    use super::*;
    use crate::contract::ClassSource;

    fn limited() -> anyhow::Result<()> {
        Err(TaskError::rate_limited(Duration::from_secs(7), "too many").hint("wait"))?;
        Ok(())
    }

    #[test]
    fn a_task_error_keeps_its_class_through_anyhow_and_its_contexts() {
        let error = limited().context("asking the server").unwrap_err();
        let failure = TaskError::from_anyhow(error).into_failure();
        assert_eq!(
            (failure.class, failure.retry_after),
            (ErrorClass::RateLimited, Some(Duration::from_secs(7)))
        );
        assert_eq!((failure.message.as_str(), failure.hint.as_deref()), ("asking the server", Some("wait")));
        assert!(
            failure.details.is_some_and(|details| details.contains("too many")),
            "the cause is in the details"
        );
    }

    #[test]
    fn a_system_error_has_its_class_and_any_other_none() {
        let missing = std::fs::read("/nonexistent/file").context("reading the file").unwrap_err();
        let failure = TaskError::from_anyhow(missing).into_failure();
        assert_eq!((failure.class, failure.message.as_str()), (ErrorClass::Permanent, "reading the file"));
        let unclassed = TaskError::from_anyhow(anyhow::anyhow!("no idea"));
        assert_eq!(unclassed.classing, ClassSource::Assumed);
        assert_eq!(unclassed.into_failure().message, "no idea");
    }
}
