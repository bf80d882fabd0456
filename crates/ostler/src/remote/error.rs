//! Why a node did not do what was asked.

use ostler_wire::task::Waited;
use serde_json::Value;

/// What a caller may want to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteErrorKind {
    /// A value is wrong, or more than a bound allows. Repeating it is of no use.
    Invalid,
    /// There is no such task, job, queue or path.
    NotFound,
    /// The state of a thing does not allow it, or a key is taken.
    Conflict,
    /// The queue has as many waiting tasks as it may have.
    QueueFull,
    /// The node does not know the token, or there is none.
    Unauthorized,
    /// The token may only look.
    Forbidden,
    /// The node or its store cannot answer now.
    Unavailable,
    /// Nothing answers at the address, or the connection was lost and repeating did not help.
    Unreachable,
    /// The task failed for good.
    TaskFailed,
    /// The task was cancelled.
    TaskCancelled,
    /// The task has not ended, or not in time. It goes on.
    NotFinished,
    /// Another status, or an answer that is not the API's.
    Other,
}

impl RemoteErrorKind {
    /// The name, which is that of an error's class in the clients of other languages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "Invalid",
            Self::NotFound => "NotFound",
            Self::Conflict => "Conflict",
            Self::QueueFull => "QueueFull",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::Unavailable => "Unavailable",
            Self::Unreachable => "Unreachable",
            Self::TaskFailed => "TaskFailed",
            Self::TaskCancelled => "TaskCancelled",
            Self::NotFinished => "NotFinished",
            Self::Other => "OstlerError",
        }
    }

    const fn of(status: u16, code: &str) -> Self {
        match (status, code.as_bytes()) {
            (_, b"queue_full") => Self::QueueFull,
            (400 | 413 | 414 | 415, _) => Self::Invalid,
            (401, _) => Self::Unauthorized,
            (403, _) => Self::Forbidden,
            (404, _) => Self::NotFound,
            (409, _) => Self::Conflict,
            (502..=504, _) => Self::Unavailable,
            _ => Self::Other,
        }
    }
}

/// Why a node did not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct RemoteError {
    /// What to do about it.
    pub kind: RemoteErrorKind,
    /// For programs; it never changes.
    pub code: String,
    /// A sentence.
    pub message: String,
    /// Such things as the wrong field.
    pub details: Value,
    /// The HTTP status; `None`: the client itself found the error.
    pub status: Option<u16>,
    /// The task that did not complete.
    pub task: Option<Box<Waited>>,
}

impl RemoteError {
    pub(crate) fn new(kind: RemoteErrorKind, code: &str, message: String) -> Self {
        Self { kind, code: code.to_owned(), message, details: Value::Null, status: None, task: None }
    }

    pub(crate) fn invalid(field: &str, sentence: &str) -> Self {
        let details = serde_json::json!({ "field": field });
        Self { details, ..Self::new(RemoteErrorKind::Invalid, "invalid", format!("{field}: {sentence}")) }
    }

    pub(crate) fn unreachable(address: &str, why: &str) -> Self {
        let message =
            format!("no node answers at {address}: {why}; start one with `ostler up`, or name its address");
        Self::new(RemoteErrorKind::Unreachable, "unreachable", message)
    }

    /// The error of an answer that is no success. A proxy's answer may have no JSON.
    pub(crate) fn of_answer(status: u16, body: &[u8]) -> Self {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |name: &str| body["error"][name].as_str().map(str::to_owned);
        let code = text("code").unwrap_or_else(|| "http_error".to_owned());
        let message = text("message").unwrap_or_else(|| format!("the answer has the status {status}"));
        let message = match status {
            401 => format!("{message} (name the token or its file, or set OSTLER_TOKEN)"),
            _ => message,
        };
        let details = body["error"]["details"].clone();
        Self {
            details,
            status: Some(status),
            ..Self::new(RemoteErrorKind::of(status, &code), &code, message)
        }
    }

    /// The error of a task that has no output.
    pub(crate) fn of_task(waited: Waited) -> Self {
        let told = waited.error.as_ref().map(|error| error.message.clone());
        let (kind, code, usual) = match waited.state {
            "failed" => (RemoteErrorKind::TaskFailed, "task_failed", "the task failed".to_owned()),
            "cancelled" => {
                let usual = format!("task {} was cancelled", waited.id);
                (RemoteErrorKind::TaskCancelled, "task_cancelled", usual)
            }
            state => {
                return Self {
                    task: Some(Box::new(waited.clone())),
                    ..Self::not_finished(format!("task {} has not ended: it is {state}", waited.id))
                };
            }
        };
        Self { task: Some(Box::new(waited)), ..Self::new(kind, code, told.unwrap_or(usual)) }
    }

    pub(crate) fn not_finished(message: String) -> Self {
        Self::new(RemoteErrorKind::NotFinished, "not_finished", message)
    }

    /// The answer is not what the API describes.
    pub(crate) fn unreadable(error: &serde_json::Error) -> Self {
        let message = format!("the answer of the node cannot be read: {error}");
        Self::new(RemoteErrorKind::Other, "unreadable", message)
    }
}
