//! Endings of a run: success, or the reason why not. An exit code alone is neither: a success is what the stream says, confirmed by the
//! exit.

use std::time::Duration;

use jiff::tz::TimeZone;
use ostler_core::{Failure, Outcome, Timestamp, Usage};

use crate::reason::Reason;
use crate::reset::hold_until;

/// The exit code of a shell's child that died of signal `n` is 128 + n; some agents exit like that themselves.
const SIGNAL_CODES: std::ops::RangeInclusive<i32> = 129..=159;
/// Bytes of the standard error that a message quotes.
const QUOTED_BYTES: usize = 500;

/// How the process ended.
#[derive(Clone, Copy, Debug)]
pub struct ProcessEnd<'a> {
    pub exit: ProcessExit,
    /// Why the executor stopped it, if it did.
    pub stop: StopCause,
    /// The end of its standard error.
    pub stderr: &'a str,
    pub now: Timestamp,
    /// The time zone in which the agent writes times of day.
    pub zone: &'a TimeZone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessExit {
    Code(i32),
    Signal(i32),
}

/// Why the executor stopped a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// It did not: the process ended by itself.
    None,
    /// Its result was there, and it did not exit.
    AfterResult,
    Cancelled,
    /// The whole time was up.
    Timeout,
    /// It was silent for too long, with no tool in flight.
    Idle,
    /// It did not open a session in time.
    Unopened,
    /// Its running cost passed the budget of the task.
    Budget,
    /// It went on after as many model requests as it may make.
    TurnLimit,
    /// It was about to repeat a request that will be refused again.
    Hopeless,
}

/// What is left of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunReport {
    pub end: AgentEnd,
    /// Usage that was seen and never reported, because the agent was killed or crashed: an estimate, and at least this.
    pub unreported: Vec<Usage>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum AgentEnd {
    Done(AgentAnswer),
    Failed(Trouble),
    Cancelled,
}

/// The answer of a successful run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentAnswer {
    pub text: String,
    /// The value that a schema asked for: JSON.
    pub structured: Option<String>,
    /// Tools that were denied on the way.
    pub denied: Vec<String>,
}

/// A failed run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub reason: Reason,
    /// One sentence, in the agent's words where it said something.
    pub message: String,
    /// What else it said.
    pub details: Option<String>,
}

impl Trouble {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), details: None }
    }

    /// When work on the account may go on, after a usage limit.
    #[must_use]
    pub fn hold_until(&self, now: Timestamp) -> Option<Timestamp> {
        if let Reason::UsageLimit { resets_at } = self.reason {
            Some(hold_until(resets_at, now))
        } else {
            None
        }
    }

    /// The failure, as the rules know it.
    #[must_use]
    pub fn failure(&self, now: Timestamp) -> Failure {
        let mut failure = Failure::new(self.reason.class(), self.message.clone());
        failure.details.clone_from(&self.details);
        failure.hint = self.reason.hint().map(str::to_owned);
        failure.retry_after =
            self.hold_until(now).map(|until| until.since(now)).filter(|wait| *wait > Duration::ZERO);
        failure
    }
}

impl AgentEnd {
    #[must_use]
    pub fn outcome(&self, now: Timestamp) -> Outcome {
        match self {
            Self::Done(_) => Outcome::Success,
            Self::Failed(trouble) => Outcome::Failed(trouble.failure(now)),
            Self::Cancelled => Outcome::Cancelled,
        }
    }
}

/// What the stream said of its end.
pub(crate) type Terminal = Option<Result<AgentAnswer, Trouble>>;

/// A reason, and the words on standard error that say it.
pub(crate) type SaidReason = (Reason, String);

/// Joins what the stream said with how the process ended. `by_stderr` reads the messages that a dialect writes when it has no stream.
pub(crate) fn conclude(
    terminal: Terminal,
    end: &ProcessEnd<'_>,
    by_stderr: impl FnOnce(&str) -> Option<SaidReason>,
) -> AgentEnd {
    let trouble = match terminal {
        Some(Ok(answer)) if end.exit == ProcessExit::Code(0) || end.stop != StopCause::None => {
            return AgentEnd::Done(answer);
        }
        Some(Ok(_)) => after_success(end.exit),
        // An interruption is the executor's own, if it stopped the run.
        Some(Err(trouble)) if trouble.reason != Reason::Interrupted => trouble,
        Some(Err(interrupted)) => match stopped(end.stop) {
            Stopped::No => interrupted,
            Stopped::Cancelled => return AgentEnd::Cancelled,
            Stopped::For(trouble) => trouble,
        },
        None => match stopped(end.stop) {
            Stopped::No => without_result(end, by_stderr),
            Stopped::Cancelled => return AgentEnd::Cancelled,
            Stopped::For(trouble) => trouble,
        },
    };
    AgentEnd::Failed(with_stderr(trouble, end.stderr))
}

enum Stopped {
    No,
    Cancelled,
    For(Trouble),
}

fn stopped(stop: StopCause) -> Stopped {
    match stop {
        StopCause::None => Stopped::No,
        StopCause::Cancelled => Stopped::Cancelled,
        StopCause::Timeout => Stopped::For(Trouble::new(Reason::TimedOut, "its time was up")),
        StopCause::Idle => Stopped::For(Trouble::new(Reason::Idle, "it was silent for too long")),
        StopCause::Unopened => {
            Stopped::For(Trouble::new(Reason::NoResult, "it did not open a session in time"))
        }
        StopCause::Budget => Stopped::For(Trouble::new(Reason::Budget, "the budget of the task is spent")),
        StopCause::TurnLimit => Stopped::For(Trouble::new(
            Reason::TurnLimit,
            "it made as many model requests as it may, and was not done",
        )),
        StopCause::AfterResult | StopCause::Hopeless => {
            Stopped::For(Trouble::new(Reason::NoResult, "it was stopped before it had a result"))
        }
    }
}

fn after_success(exit: ProcessExit) -> Trouble {
    match signal(exit) {
        Some(signal) => {
            let message = format!("it was killed by signal {signal} after it had reported success");
            Trouble::new(Reason::Killed { signal }, message)
        }
        None => Trouble::new(Reason::Unknown, format!("it reported success, and {}", shown(exit))),
    }
}

fn without_result(end: &ProcessEnd<'_>, by_stderr: impl FnOnce(&str) -> Option<SaidReason>) -> Trouble {
    if let Some((reason, said)) = by_stderr(end.stderr) {
        return Trouble::new(reason, said);
    }
    if let Some(signal) = signal(end.exit) {
        return Trouble::new(Reason::Killed { signal }, format!("it was killed by signal {signal}"));
    }
    let said = last_line(end.stderr).map(|said| format!(": {said}")).unwrap_or_default();
    let reason = if end.exit == ProcessExit::Code(0) { Reason::NoResult } else { Reason::Unknown };
    Trouble::new(reason, format!("{} without a result{said}", shown(end.exit)))
}

fn with_stderr(trouble: Trouble, stderr: &str) -> Trouble {
    let stderr = stderr.trim();
    if trouble.details.is_some() || stderr.is_empty() {
        return trouble;
    }
    Trouble { details: Some(stderr.to_owned()), ..trouble }
}

/// The signal that ended it, if one did.
fn signal(exit: ProcessExit) -> Option<i32> {
    match exit {
        ProcessExit::Signal(signal) => Some(signal),
        ProcessExit::Code(code) => SIGNAL_CODES.contains(&code).then_some(code - 128),
    }
}

fn shown(exit: ProcessExit) -> String {
    match exit {
        ProcessExit::Signal(signal) => format!("it was killed by signal {signal}"),
        ProcessExit::Code(code) => format!("it exited with {code}"),
    }
}

/// The last line with words in it.
pub(crate) fn last_line(text: &str) -> Option<&str> {
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    Some(ostler_core::beginning(line, QUOTED_BYTES))
}
