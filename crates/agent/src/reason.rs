//! Reasons of failed runs, the error classes that they map to, and how the next attempt begins.

use ostler_core::{ErrorClass, Timestamp};

/// Why a run failed.
///
/// Core's [`ErrorClass`] decides what follows for the task, and has no class for some of these: a turn limit, a refusal and a schema
/// violation are all permanent there. So the reason is kept beside the class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Too many requests at once; there is allowance left.
    Throttled,
    /// The provider has no capacity.
    Overloaded,
    /// The provider failed in another way.
    ServerError,
    /// The allowance of the account is used up.
    UsageLimit {
        /// `None`: the agent did not say it in a form that can be read.
        resets_at: Option<Timestamp>,
    },
    BadCredentials,
    /// It asks for a login, and does not say what is wrong with the one it has. Some agents answer so whatever goes wrong when a login is
    /// renewed, a broken network too.
    LoginNeeded,
    /// The account has to be paid for.
    Billing,
    TurnLimit,
    /// A budget that the agent or the executor watches.
    Budget,
    ContextTooLong,
    /// The answer was longer than the model may write.
    OutputLimit,
    /// The model will not do it.
    Refused,
    /// The answer is not what the schema asks for.
    Schema,
    /// A tool was denied, and the settings say that this is a failure.
    PermissionDenied,
    /// The provider rejected the request: an unknown model, invalid input.
    BadRequest,
    /// The agent rejected its arguments, settings or config, before it did anything.
    BadSettings,
    /// The connection or the stream broke.
    BrokenStream,
    /// The session id is in use: the conversation exists already.
    SessionInUse,
    /// There is no conversation with this id.
    UnknownSession,
    /// It was interrupted, and not by the executor.
    Interrupted,
    Killed {
        signal: i32,
    },
    /// The whole time was up.
    TimedOut,
    /// Silent for too long.
    Idle,
    /// It exited without saying how it went.
    NoResult,
    /// It completed without an answer.
    NoAnswer,
    /// The stream, the exit code and stderr match none of the reasons above.
    Unknown,
}

/// How the next attempt begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowUp {
    /// In the same conversation: what was asked is in its history, so the prompt is not sent again.
    Resume,
    /// In a new one.
    StartNew,
}

impl Reason {
    /// The name shown to users.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::Overloaded => "overloaded",
            Self::ServerError => "server_error",
            Self::UsageLimit { .. } => "usage_limit",
            Self::BadCredentials => "bad_credentials",
            Self::LoginNeeded => "login_needed",
            Self::Billing => "billing",
            Self::TurnLimit => "turn_limit",
            Self::Budget => "budget",
            Self::ContextTooLong => "context_too_long",
            Self::OutputLimit => "output_limit",
            Self::Refused => "refused",
            Self::Schema => "schema",
            Self::PermissionDenied => "permission_denied",
            Self::BadRequest => "bad_request",
            Self::BadSettings => "bad_settings",
            Self::BrokenStream => "broken_stream",
            Self::SessionInUse => "session_in_use",
            Self::UnknownSession => "unknown_session",
            Self::Interrupted => "interrupted",
            Self::Killed { .. } => "killed",
            Self::TimedOut => "timed_out",
            Self::Idle => "idle",
            Self::NoResult => "no_result",
            Self::NoAnswer => "no_answer",
            Self::Unknown => "unknown",
        }
    }

    /// The class on which the rules decide.
    #[must_use]
    pub const fn class(self) -> ErrorClass {
        match self {
            Self::Throttled => ErrorClass::RateLimited,
            Self::UsageLimit { .. } => ErrorClass::UsageLimit,
            Self::BadCredentials | Self::Billing => ErrorClass::QueueStop,
            // The budget of one task: the others of its queue have theirs.
            Self::Budget
            | Self::TurnLimit
            | Self::ContextTooLong
            | Self::OutputLimit
            | Self::Refused
            | Self::Schema
            | Self::PermissionDenied
            | Self::BadRequest
            | Self::BadSettings => ErrorClass::Permanent,
            Self::Killed { .. } => ErrorClass::Crash,
            Self::TimedOut => ErrorClass::Timeout,
            Self::Idle => ErrorClass::Stuck,
            Self::Overloaded
            | Self::ServerError
            | Self::LoginNeeded
            | Self::BrokenStream
            | Self::SessionInUse
            | Self::UnknownSession
            | Self::Interrupted
            | Self::NoResult
            | Self::NoAnswer
            | Self::Unknown => ErrorClass::Transient,
        }
    }

    #[must_use]
    pub const fn follow_up(self) -> FollowUp {
        match self {
            Self::UnknownSession
            | Self::ContextTooLong
            | Self::Refused
            | Self::NoAnswer
            | Self::BadRequest
            | Self::BadSettings => FollowUp::StartNew,
            Self::Throttled
            | Self::Overloaded
            | Self::ServerError
            | Self::UsageLimit { .. }
            | Self::BadCredentials
            | Self::LoginNeeded
            | Self::Billing
            | Self::TurnLimit
            | Self::Budget
            | Self::OutputLimit
            | Self::Schema
            | Self::PermissionDenied
            | Self::BrokenStream
            | Self::SessionInUse
            | Self::Interrupted
            | Self::Killed { .. }
            | Self::TimedOut
            | Self::Idle
            | Self::NoResult
            | Self::Unknown => FollowUp::Resume,
        }
    }

    /// The reason behind an HTTP status.
    #[must_use]
    pub const fn of_status(status: u64) -> Self {
        match status {
            401 | 403 => Self::BadCredentials,
            402 => Self::Billing,
            429 => Self::Throttled,
            503 | 529 => Self::Overloaded,
            500..=599 => Self::ServerError,
            400..=499 => Self::BadRequest,
            _ => Self::Unknown,
        }
    }

    /// What may help.
    pub(crate) const fn hint(self) -> Option<&'static str> {
        match self {
            Self::TurnLimit => Some("raise max_iterations, or make the task smaller"),
            Self::Budget => Some("raise budget.per_task, or make the task smaller"),
            Self::ContextTooLong => Some("give it less to read"),
            Self::PermissionDenied => Some("allow the tool, or a permission that includes it"),
            Self::BadCredentials | Self::LoginNeeded => Some("log in, or set the key of the agent"),
            Self::Throttled
            | Self::Overloaded
            | Self::ServerError
            | Self::UsageLimit { .. }
            | Self::Billing
            | Self::OutputLimit
            | Self::Refused
            | Self::Schema
            | Self::BadRequest
            | Self::BadSettings
            | Self::BrokenStream
            | Self::SessionInUse
            | Self::UnknownSession
            | Self::Interrupted
            | Self::Killed { .. }
            | Self::TimedOut
            | Self::Idle
            | Self::NoResult
            | Self::NoAnswer
            | Self::Unknown => None,
        }
    }
}
