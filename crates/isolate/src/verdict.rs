//! Verdicts: what the end of a call means for its attempt. One table, for both isolations.
//!
//! | cause | class | why |
//! |---|---|---|
//! | cpu, wall | timeout | as any work that takes too long; retried |
//! | memory | transient | a warm isolate, or what a request returned, may have been the larger part of it; retried |
//! | stack, output, log lines, timers, never settles, module | permanent | the same code with the same payload does it again |
//! | thrown, unhandled rejection | what the error says in `class`; without one the pool decides (`unclassed`) | |
//! | cancelled | none: the attempt is cancelled | |

use std::time::Duration;

use ostler_core::{ErrorClass, Failure};
use ostler_exec::{AttemptResult, ClassSource};

use crate::end::{ErrorLabels, FunctionEnd, ThrownError};
use crate::function::FunctionFault;

/// What the end of a call means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Failed(Failure, ClassSource),
    Cancelled,
}

/// The verdict on a call that has no output.
pub(crate) fn verdict(end: &FunctionEnd) -> Verdict {
    let class = match end {
        FunctionEnd::Cpu | FunctionEnd::Wall => ErrorClass::Timeout,
        FunctionEnd::Memory => ErrorClass::Transient,
        FunctionEnd::Stack
        | FunctionEnd::Output
        | FunctionEnd::LogLines
        | FunctionEnd::Timers
        | FunctionEnd::NeverSettles
        | FunctionEnd::Module(_) => ErrorClass::Permanent,
        FunctionEnd::Thrown(error) | FunctionEnd::UnhandledRejection(error) => return thrown(end, error),
        FunctionEnd::Cancelled => return Verdict::Cancelled,
    };
    Verdict::Failed(Failure::new(class, end.to_string()), ClassSource::Given)
}

fn thrown(end: &FunctionEnd, error: &ThrownError) -> Verdict {
    let ErrorLabels { class, retry_after_ms, step, hint } =
        error.labels.as_deref().cloned().unwrap_or_default();
    let class = class.as_deref().and_then(ErrorClass::named);
    let failure = Failure {
        details: Some(error.stack.clone()).filter(|stack| !stack.is_empty()),
        step,
        hint,
        retry_after: retry_after_ms.map(Duration::from_millis),
        ..Failure::new(class.unwrap_or(ErrorClass::Transient), end.to_string())
    };
    // A class that this version does not know counts as none.
    Verdict::Failed(failure, if class.is_some() { ClassSource::Given } else { ClassSource::Assumed })
}

/// The verdict on a call that only the end of its process ended.
pub(crate) fn deaf(end: &FunctionEnd) -> Failure {
    let failure = match verdict(end) {
        Verdict::Failed(failure, _) => failure,
        Verdict::Cancelled => Failure::new(ErrorClass::Transient, end.to_string()),
    };
    let hint = "it was in a builtin of the engine that cannot be interrupted";
    Failure { hint: Some(hint.to_owned()), ..failure }
}

/// The verdict on a call whose engine had no memory to go on with, so that its process ended.
pub(crate) fn exhausted() -> Failure {
    let end = FunctionEnd::Memory;
    let hint = "its engine could not go on without more memory, and its host process ended";
    Failure { hint: Some(hint.to_owned()), ..Failure::new(ErrorClass::Transient, end.to_string()) }
}

impl Verdict {
    /// The result of the attempt.
    pub(crate) fn result(self) -> AttemptResult {
        match self {
            Self::Failed(failure, classing) => AttemptResult { classing, ..AttemptResult::failed(failure) },
            Self::Cancelled => AttemptResult::cancelled(),
        }
    }
}

/// The failure of an attempt whose kind has no usable function.
pub(crate) fn unusable(kind: &str, fault: &FunctionFault) -> Failure {
    let (class, message) = match fault {
        FunctionFault::Missing(_) => (ErrorClass::Permanent, fault.to_string()),
        FunctionFault::Module(why) => {
            (ErrorClass::Permanent, format!("the function \"{kind}\" cannot be used: {why}"))
        }
        FunctionFault::Unreadable(_) => (ErrorClass::Transient, fault.to_string()),
    };
    Failure::new(class, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thrown_as(class: Option<&str>) -> ThrownError {
        let labels = ErrorLabels { class: class.map(str::to_owned), ..ErrorLabels::default() };
        ThrownError { labels: Some(Box::new(labels)), ..ThrownError::new("RangeError", "too far") }
    }

    #[test]
    fn each_cause_has_its_class() {
        use ClassSource::{Assumed, Given};
        use ErrorClass::{Permanent, RateLimited, Timeout, Transient};
        for (end, class, source) in [
            (FunctionEnd::Cpu, Timeout, Given),
            (FunctionEnd::Wall, Timeout, Given),
            (FunctionEnd::Memory, Transient, Given),
            (FunctionEnd::Stack, Permanent, Given),
            (FunctionEnd::Output, Permanent, Given),
            (FunctionEnd::LogLines, Permanent, Given),
            (FunctionEnd::Timers, Permanent, Given),
            (FunctionEnd::NeverSettles, Permanent, Given),
            (FunctionEnd::Module("no".to_owned()), Permanent, Given),
            (FunctionEnd::Thrown(thrown_as(None)), Transient, Assumed),
            (FunctionEnd::Thrown(thrown_as(Some("new"))), Transient, Assumed),
            (FunctionEnd::Thrown(thrown_as(Some("transient"))), Transient, Given),
            (FunctionEnd::Thrown(thrown_as(Some("permanent"))), Permanent, Given),
            (FunctionEnd::UnhandledRejection(thrown_as(Some("rate_limited"))), RateLimited, Given),
            (FunctionEnd::UnhandledRejection(thrown_as(None)), Transient, Assumed),
        ] {
            let Verdict::Failed(failure, by) = verdict(&end) else { panic!("{end:?} is a failure") };
            assert_eq!((failure.class, by), (class, source), "{end:?}");
            assert_eq!(failure.message, end.to_string());
        }
        assert_eq!(verdict(&FunctionEnd::Cancelled), Verdict::Cancelled);
    }

    #[test]
    fn what_an_error_says_is_kept() {
        let labels = ErrorLabels {
            class: Some("partial".to_owned()),
            retry_after_ms: Some(7_000),
            step: Some("move".to_owned()),
            hint: Some("wait".to_owned()),
        };
        let error = ThrownError {
            stack: "    at a.js:1:2".to_owned(),
            labels: Some(Box::new(labels)),
            ..ThrownError::new("RangeError", "too far")
        };
        let Verdict::Failed(failure, _) = verdict(&FunctionEnd::Thrown(error)) else { panic!("a failure") };
        let expected = Failure {
            details: Some("    at a.js:1:2".to_owned()),
            step: Some("move".to_owned()),
            hint: Some("wait".to_owned()),
            retry_after: Some(Duration::from_secs(7)),
            ..Failure::new(ErrorClass::Partial, "RangeError: too far")
        };
        assert_eq!(failure, expected);
    }
}
