//! Behaviours of test work, and a handler that performs them.

use std::time::Duration;

use ostler_core::ErrorClass;

use crate::context::Context;
use crate::error::TaskError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Returns the text of its payload.
    Echo(String),
    /// Fails with this class.
    Fail(ErrorClass),
    /// Fails without a class.
    FailUnclassed,
    Panic,
    /// Writes a line, waits forever, and ignores stop signals.
    Hang,
    /// Blocks its thread for this long, and ignores stop signals.
    Block(Duration),
    /// Waits for the stop signal, then stops.
    StopWhenTold,
    /// Waits for the stop signal, then finishes its work and succeeds.
    FinishWhenTold,
    /// Waits for the stop signal, writes a line before and after, and continues for this long.
    FinishAfter(Duration),
    /// Returns this many bytes.
    BigOutput(usize),
    /// Logs this many lines.
    Flood(usize),
}

impl Behaviour {
    /// The payload that makes [`act`] behave like this.
    #[must_use]
    pub fn payload(&self) -> String {
        match self {
            Self::Echo(text) => format!("echo {text}"),
            Self::Fail(class) => format!("fail {}", class.name()),
            Self::FailUnclassed => "fail-unclassed".to_owned(),
            Self::Panic => "panic".to_owned(),
            Self::Hang => "hang".to_owned(),
            Self::Block(time) => format!("block {}", time.as_millis()),
            Self::StopWhenTold => "stop".to_owned(),
            Self::FinishWhenTold => "finish".to_owned(),
            Self::FinishAfter(time) => format!("finish-after {}", time.as_millis()),
            Self::BigOutput(bytes) => format!("big {bytes}"),
            Self::Flood(lines) => format!("flood {lines}"),
        }
    }
}

/// A handler that behaves as its payload says.
///
/// # Errors
/// When the behaviour is to fail.
///
/// # Panics
/// When the behaviour is to panic.
pub async fn act(payload: String, context: Context) -> Result<Option<String>, TaskError> {
    let (what, how) = payload.split_once(' ').unwrap_or((&payload, ""));
    let number = || how.parse::<u64>().unwrap_or(0);
    match what {
        "echo" => Ok(Some(how.to_owned())),
        "fail" => Err(failure(ErrorClass::named(how))),
        "fail-unclassed" => Err(std::fmt::Error.into()),
        "panic" => panic!("as requested"),
        "hang" => {
            context.log("waiting");
            std::future::pending().await
        }
        "block" => {
            let until = std::time::Instant::now() + Duration::from_millis(number());
            while std::time::Instant::now() < until {
                std::thread::park_timeout(Duration::from_millis(5));
            }
            Ok(None)
        }
        "stop" => {
            context.log("waiting");
            context.cancelled().await;
            Err(TaskError::transient("stopped"))
        }
        "finish" => {
            context.log("waiting");
            context.cancelled().await;
            Ok(Some("\"finished\"".to_owned()))
        }
        "finish-after" => {
            context.log("waiting");
            context.cancelled().await;
            context.log("stopping");
            tokio::time::sleep(Duration::from_millis(number())).await;
            Ok(None)
        }
        "big" => Ok(Some("x".repeat(usize::try_from(number()).unwrap_or(0)))),
        "flood" => {
            (0..number()).for_each(|line| context.log(format!("line {line}")));
            Ok(None)
        }
        other => Err(TaskError::permanent(format!("no such behaviour: {other}"))),
    }
}

fn failure(class: Option<ErrorClass>) -> TaskError {
    match class {
        Some(ErrorClass::Permanent) => TaskError::permanent("as requested"),
        Some(ErrorClass::Partial) => TaskError::partial("move", "as requested").hint("look at the folder"),
        Some(ErrorClass::RateLimited) => TaskError::rate_limited(Duration::from_secs(7), "as requested"),
        Some(ErrorClass::UsageLimit) => TaskError::usage_limit(Duration::from_secs(7), "as requested"),
        Some(ErrorClass::QueueStop) => TaskError::queue_stop("as requested"),
        Some(
            ErrorClass::Transient
            | ErrorClass::Timeout
            | ErrorClass::Stuck
            | ErrorClass::Crash
            | ErrorClass::Budget,
        )
        | None => TaskError::transient("as requested"),
    }
}
