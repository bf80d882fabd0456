//! Error classification: classes for system errors, HTTP statuses, and a program's own errors.

use std::error::Error;
use std::io::ErrorKind;
use std::time::{Duration, UNIX_EPOCH};

pub use ostler_core::class_of_status;
use ostler_core::{ErrorClass, Timestamp};

use crate::error::TaskError;

/// An error that knows its class. Convert one into a [`TaskError`] with [`TaskError::classed`].
pub trait Classed: Error {
    /// The class of the error. The default is transient.
    fn class(&self) -> ErrorClass {
        ErrorClass::Transient
    }

    /// Do not retry before this has passed.
    fn retry_after(&self) -> Option<Duration> {
        None
    }

    /// A suggestion that might help.
    fn hint(&self) -> Option<String> {
        None
    }
}

impl TaskError {
    /// A program's own error, with the class it declares.
    #[must_use]
    pub fn classed(error: &dyn Classed) -> Self {
        let mut failed = Self::with_causes(error.class(), &as_error(error));
        if let Some(wait) = error.retry_after() {
            failed = failed.retry_after(wait);
        }
        match error.hint() {
            Some(hint) => failed.hint(hint),
            None => failed,
        }
    }

    /// An HTTP response that is not a success. `retry_after` is the header of that name, in seconds or as a date, and `now` the
    /// time to count a date from. 400, 403, 404 and similar are permanent; 401 and 402 stop the queue; 429 and a 503 with a
    /// retry time are a rate limit; 408 and 504 are timeouts; everything else is transient.
    #[must_use]
    pub fn from_status(
        status: u16,
        message: impl Into<String>,
        retry_after: Option<&str>,
        now: Timestamp,
    ) -> Self {
        let wait = retry_after.and_then(|header| wait_of(header, now));
        let class = class_of_status(status, wait);
        let failed = Self::of(class, message);
        match wait {
            Some(wait) => failed.retry_after(wait),
            None => failed,
        }
    }
}

fn as_error<'a>(error: &'a (dyn Classed + 'a)) -> &'a (dyn Error + 'a) {
    error
}

/// The delay that a `Retry-After` header asks for: seconds, or a date. `None` if it cannot be parsed.
#[must_use]
pub fn wait_of(header: &str, now: Timestamp) -> Option<Duration> {
    let header = header.trim();
    if let Ok(seconds) = header.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(header).ok()?.duration_since(UNIX_EPOCH).ok()?;
    let at = Timestamp::from_millis(i64::try_from(at.as_millis()).ok()?);
    Some(at.since(now))
}

/// The class of an error converted with `?`: system errors have one, all others have none.
pub(crate) fn class_of(error: &(dyn Error + 'static)) -> Option<ErrorClass> {
    if error.is::<tokio::time::error::Elapsed>() {
        return Some(ErrorClass::Timeout);
    }
    if error.is::<serde_json::Error>()
        || error.is::<std::string::FromUtf8Error>()
        || error.is::<std::str::Utf8Error>()
    {
        return Some(ErrorClass::Permanent);
    }
    error.downcast_ref::<std::io::Error>().and_then(|error| class_of_io(error.kind()))
}

/// System errors that will be the same next time.
const PERMANENT: [ErrorKind; 7] = [
    ErrorKind::NotFound,
    ErrorKind::PermissionDenied,
    ErrorKind::InvalidInput,
    ErrorKind::InvalidData,
    ErrorKind::IsADirectory,
    ErrorKind::NotADirectory,
    ErrorKind::Unsupported,
];

fn class_of_io(kind: ErrorKind) -> Option<ErrorClass> {
    if kind == ErrorKind::TimedOut {
        Some(ErrorClass::Timeout)
    } else if PERMANENT.contains(&kind) {
        Some(ErrorClass::Permanent)
    } else if kind == ErrorKind::Other {
        // Not from the system: a custom error wrapped in an `io::Error`.
        None
    } else {
        Some(ErrorClass::Transient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::ClassSource;

    const NOW: Timestamp = Timestamp::from_millis(1_445_412_420_000);

    fn status(status: u16, header: Option<&str>) -> (ErrorClass, Option<Duration>) {
        let failure = TaskError::from_status(status, "no", header, NOW).into_failure();
        (failure.class, failure.retry_after)
    }

    #[test]
    fn every_answer_of_http_has_its_class() {
        for permanent in [400, 403, 404, 405, 410, 413, 422] {
            assert_eq!(status(permanent, None).0, ErrorClass::Permanent, "{permanent}");
        }
        for transient in [409, 500, 502, 503, 599] {
            assert_eq!(status(transient, None).0, ErrorClass::Transient, "{transient}");
        }
        assert_eq!(status(401, None).0, ErrorClass::QueueStop);
        assert_eq!(status(402, None).0, ErrorClass::QueueStop);
        assert_eq!(status(408, None).0, ErrorClass::Timeout);
        assert_eq!(status(429, None).0, ErrorClass::RateLimited);
        assert_eq!(status(503, Some("7")).0, ErrorClass::RateLimited);
    }

    #[test]
    fn a_time_to_wait_is_read_in_seconds_or_as_a_date() {
        assert_eq!(status(429, Some(" 120 ")).1, Some(Duration::from_secs(120)));
        // A minute from now.
        assert_eq!(status(429, Some("Wed, 21 Oct 2015 07:28:00 GMT")).1, Some(Duration::from_secs(60)));
        assert_eq!(status(429, Some("Tue, 21 Oct 2014 07:28:00 GMT")).1, Some(Duration::ZERO), "long past");
        assert_eq!(status(429, Some("soon")).1, None);
        assert_eq!(status(429, Some("-5")).1, None);
    }

    #[test]
    fn errors_of_the_system_have_their_class_and_all_others_are_transient() {
        let of = |kind: ErrorKind| TaskError::from(std::io::Error::from(kind)).into_failure().class;
        assert_eq!(of(ErrorKind::NotFound), ErrorClass::Permanent);
        assert_eq!(of(ErrorKind::TimedOut), ErrorClass::Timeout);
        assert_eq!(of(ErrorKind::ConnectionReset), ErrorClass::Transient);
        let bad = serde_json::from_str::<u32>("x").unwrap_err();
        assert_eq!(TaskError::from(bad).into_failure().class, ErrorClass::Permanent);
        assert_eq!(TaskError::from(std::fmt::Error).into_failure().class, ErrorClass::Transient);
    }

    #[test]
    fn the_source_of_the_class_is_known() {
        let io = |kind: ErrorKind| TaskError::from(std::io::Error::from(kind));
        for given in [
            TaskError::transient("once more"),
            TaskError::permanent("never"),
            TaskError::from_status(500, "down", None, NOW),
            TaskError::classed(&Empty(std::fmt::Error)),
            io(ErrorKind::NotFound),
            io(ErrorKind::ConnectionReset),
        ] {
            assert_eq!(given.clone().into_end().classing, ClassSource::Given, "{given:?}");
        }
        for assumed in [TaskError::from(std::fmt::Error), TaskError::from(std::io::Error::other("mine"))] {
            assert_eq!(assumed.clone().into_end().classing, ClassSource::Assumed, "{assumed:?}");
            assert_eq!(
                assumed.hint("look").into_end().classing,
                ClassSource::Assumed,
                "more words do not class it"
            );
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("the account is empty")]
    struct Empty(#[source] std::fmt::Error);

    impl Classed for Empty {
        fn class(&self) -> ErrorClass {
            ErrorClass::QueueStop
        }

        fn hint(&self) -> Option<String> {
            Some("put money in".to_owned())
        }
    }

    #[test]
    fn an_error_of_the_program_s_own_says_its_class() {
        let failure = TaskError::classed(&Empty(std::fmt::Error)).into_failure();
        assert_eq!(
            (failure.class, failure.message.as_str()),
            (ErrorClass::QueueStop, "the account is empty")
        );
        assert_eq!(failure.hint.as_deref(), Some("put money in"));
        assert!(failure.details.is_some_and(|details| details.contains("caused by")));
    }
}
